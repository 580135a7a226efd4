//! TFB: the largest noise of a finished adapter that leaves its predictions unchanged.

use crate::error::{Error, check_length, check_range, row_count};
use crate::linalg::{svd, times};
use crate::metrics::{Predictions, argmax_rows};

/// Published search range of `sigma_q`.
pub const RANGE: (f64, f64) = (0.001, 0.015);
/// Published number of bisections.
pub const ITERATIONS: u32 = 5;
/// Published bound of the relative change of the negative log-likelihood per anchor.
pub const TOLERANCE: f64 = 0.003;
/// Unlabelled training examples the criterion is evaluated on.
pub const ANCHORS: usize = 500;

/// Singular values below this share of the largest are zero: what rounding of an `f32` matrix leaves.
const SINGULAR_FLOOR: f64 = f32::EPSILON as f64;

/// An adapter in the basis in which one noise level means the same for every rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RotatedAdapter {
    /// The rank, `min(rank, d_output)`.
    pub rank: usize,
    /// `VᵀA`, `[rank, d_input]`.
    pub a: Vec<f64>,
    /// `(U diag(d))ᵀ`, `[rank, d_output]`: orthogonal rows, longest first.
    pub b: Vec<f64>,
    /// `d`, `[rank]`.
    pub singular_values: Vec<f64>,
}

impl RotatedAdapter {
    /// Rotates an adapter; its product, and so its mean prediction, stays.
    ///
    /// ```text
    /// B = U diag(d) Vᵀ,     A ← Vᵀ·A,     B ← U·diag(d)
    /// ```
    ///
    /// `a` is `[rank, d_input]`, `b` is `[rank, d_output]`, rank-major.
    ///
    /// Source: Shi et al. 2024, TFB, arXiv:2412.05723.
    pub fn new(a: &[f64], b: &[f64], rank: usize) -> Result<Self, Error> {
        let d_input = row_count("a", a, rank)?;
        let d_output = row_count("b", b, rank)?;
        // Rank-major B is Bᵀ = V diag(d) Uᵀ.
        let parts = svd(b, rank, d_output);
        let kept = parts.values.len();
        let rows = parts.values.iter().zip(parts.right.chunks(d_output.max(1)));
        Ok(Self {
            rank: kept,
            a: times(&parts.left, a, kept, rank, d_input),
            b: rows.flat_map(|(d, u)| u.iter().map(move |v| d * v)).collect(),
            singular_values: parts.values,
        })
    }

    /// The standard deviation of A's entries by rank, `[rank]`.
    ///
    /// ```text
    /// sigma_i = sigma_q/d_i        0 where d_i is 0 to the precision of f32
    /// ```
    ///
    /// The weight's noise is then `U·Z` with independent `Z ~ N(0, sigma_q²)`. A rank without a direction
    /// in the output has no noise either: the published code divides by `d_i + 1e-6`, whose product with
    /// `d_i` tends to the same.
    pub fn noise_std_dev(&self, sigma_q: f64) -> Result<Vec<f64>, Error> {
        check_range("sigma_q", sigma_q, 0.0..)?;
        let floor = SINGULAR_FLOOR * self.singular_values.first().copied().unwrap_or(0.0);
        let std_dev = |&d: &f64| if d > floor { sigma_q / d } else { 0.0 };
        Ok(self.singular_values.iter().map(std_dev).collect())
    }
}

/// Midpoint that a search returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum SearchAnswer {
    /// The last that was admissible; none if none was.
    #[default]
    LastAdmissible,
    /// The last that was not, as the published code does; the upper end if all were admissible.
    LastViolating,
}

/// The largest admissible value of a range by bisection, for a criterion that holds up to some point.
///
/// ```text
/// mid = (low + high)/2;     admissible(mid):  low ← mid     otherwise:  high ← mid
/// ```
///
/// The ends are never tried. With the published settings the answer is one of 31 values.
///
/// # Errors
///
/// Errors of `admissible`, and a range that is empty or not finite.
///
/// # Examples
///
/// ```
/// # use lrvd_core::{Error, baselines::tfb::{SearchAnswer, largest_admissible}};
/// let below = |v: f64| Ok::<_, Error>(v <= 0.3);
/// // 1/2 no, 1/4 yes, 3/8 no.
/// let found = largest_admissible((0.0, 1.0), 3, SearchAnswer::LastAdmissible, below)?;
/// assert_eq!(found, Some(0.25));
/// # Ok::<(), Error>(())
/// ```
pub fn largest_admissible<E: From<Error>>(
    (mut low, mut high): (f64, f64),
    iterations: u32,
    answer: SearchAnswer,
    mut admissible: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    check_range("low", low, ..)?;
    check_range("high", high, low..)?;
    let mut found = match answer {
        SearchAnswer::LastAdmissible => None,
        SearchAnswer::LastViolating => Some(high),
    };
    for _ in 0..iterations {
        let mid = 0.5 * low + 0.5 * high;
        let holds = admissible(mid)?;
        if holds == (answer == SearchAnswer::LastAdmissible) {
            found = Some(mid);
        }
        *(if holds { &mut low } else { &mut high }) = mid;
    }
    Ok(found)
}

/// Criterion for noisy predictions that still count as the mean ones.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", deny_unknown_fields))]
pub enum AdmissibleChange {
    /// The relative change of the negative log-likelihood of pseudo-labels, per anchor, at most `tolerance`.
    NllPerAnchor {
        /// Largest change; [`TOLERANCE`] in the publication.
        tolerance: f64,
    },
    /// The share of examples whose most probable class is another one, at most `tolerance`.
    Flipped {
        /// Largest share; 0.01 in the publication's variant.
        tolerance: f64,
    },
}

impl AdmissibleChange {
    /// `true` if `noisy` is still close enough to `reference`; both `[n, n_classes]` probabilities.
    pub fn holds(self, reference: &[f64], noisy: &[f64], n_classes: usize) -> Result<bool, Error> {
        Ok(match self {
            Self::NllPerAnchor { tolerance } => {
                let labels = argmax_rows(reference, n_classes)?;
                relative_nll_change(reference, noisy, n_classes, &labels)? <= tolerance
            }
            Self::Flipped { tolerance } => {
                flipped_fraction(reference, noisy, n_classes)? <= tolerance
            }
        })
    }
}

/// Relative change of the negative log-likelihood by noise, per anchor.
///
/// ```text
/// |NLL(noisy) − NLL(reference)| / NLL(reference) / n
/// ```
///
/// `labels` are pseudo-labels (the most probable classes of `reference`) or true ones. NLL is a mean over
/// the `n` anchors, with probabilities floored at [`NLL_FLOOR`](crate::metrics::NLL_FLOOR). The division by `n` makes the criterion
/// weaker the more anchors there are; it is the published one.
///
/// Both probabilities are `[n, n_classes]`, `labels` is `[n]`.
///
/// # Errors
///
/// The reference is certain of every label.
fn relative_nll_change(
    reference: &[f64],
    noisy: &[f64],
    n_classes: usize,
    labels: &[usize],
) -> Result<f64, Error> {
    let before = Predictions::new(reference, n_classes, labels)?.nll();
    let after = Predictions::new(noisy, n_classes, labels)?.nll();
    if before <= 0.0 {
        let reason = "is undefined: the reference is certain of every label";
        return Err(Error::undefined("relative_nll_change", reason));
    }
    Ok((after - before).abs() / before / labels.len() as f64)
}

/// Share of examples whose most probable class is another one with noise.
fn flipped_fraction(reference: &[f64], noisy: &[f64], n_classes: usize) -> Result<f64, Error> {
    check_length("noisy", noisy.len(), reference.len())?;
    let before = argmax_rows(reference, n_classes)?;
    let after = argmax_rows(noisy, n_classes)?;
    let flipped = before.iter().zip(&after).filter(|(b, a)| b != a).count();
    Ok(flipped as f64 / before.len() as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::linalg::{times_transposed, transposed_times};
    use crate::testing::assert_near;

    const A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.2, -0.3];
    const B: [f64; 8] = [0.2, -0.4, 1.0, 0.3, -0.1, 0.02, 0.5, -0.7];

    fn rotated() -> RotatedAdapter {
        RotatedAdapter::new(&A, &B, 2).unwrap()
    }

    #[test]
    fn the_rotation_keeps_the_product() {
        let found = rotated();
        // ΔWᵀ = Aᵀ·(rank-major B), [d_input, d_output].
        let expected = transposed_times(&A, &B, 2, 3, 4);
        assert_near(&transposed_times(&found.a, &found.b, 2, 3, 4), &expected, 1e-14);
        // Orthogonal rows of the singular values' lengths.
        let gram = times_transposed(&found.b, &found.b, 2, 4, 2);
        assert_near(
            &gram,
            &[found.singular_values[0].powi(2), 0.0, 0.0, found.singular_values[1].powi(2)],
            1e-14,
        );
    }

    #[test]
    fn the_weight_noise_is_isotropic_in_the_column_space() {
        let found = rotated();
        let std_dev = found.noise_std_dev(0.01).unwrap();
        let rows = found.b.chunks(4).zip(&std_dev);
        let root: Vec<f64> = rows.flat_map(|(row, s)| row.iter().map(move |v| s * v)).collect();
        let covariance = transposed_times(&root, &root, 2, 4, 4);
        // sigma_q²·U Uᵀ: 1e4 times it is a projector of trace 2.
        let projector: Vec<f64> = covariance.iter().map(|v| 1e4 * v).collect();
        let square = times(&projector, &projector, 4, 4, 4);
        assert_near(&square, &projector, 1e-12);
        assert!(((0..4).map(|i| projector[5 * i]).sum::<f64>() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_rank_without_output_has_no_noise() {
        let new = |b: &[f64]| RotatedAdapter::new(&A, b, 2).unwrap();
        let found = new(&[1.0, 2.0, 2.0, 2.0, 4.0, 4.0]);
        // d = √(9 + 36).
        let std_dev = found.noise_std_dev(0.01).unwrap();
        assert!((std_dev[0] - 0.01 / 45.0_f64.sqrt()).abs() < 1e-16);
        assert_eq!(std_dev[1], 0.0);
        assert_eq!(new(&[0.0; 6]).noise_std_dev(0.01).unwrap(), [0.0; 2]);
        // Wider than the output: the rank falls.
        let narrow = new(&[3.0, 4.0]);
        assert_eq!((narrow.rank, narrow.a.len()), (1, 3));
        assert!((narrow.b[0].abs() - 5.0).abs() < 1e-14);
        assert!(found.noise_std_dev(-1.0).is_err());
        assert!(RotatedAdapter::new(&A, &B, 4).is_err());
    }

    fn search(answer: SearchAnswer, limit: f64) -> (Option<f64>, Vec<f64>) {
        let mut tried = Vec::new();
        let found = largest_admissible(RANGE, ITERATIONS, answer, |v| {
            tried.push(v);
            Ok::<_, Error>(v <= limit)
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn the_search_ends_on_the_asked_side() {
        let step = (RANGE.1 - RANGE.0) / 32.0;
        for limit in [0.0021, 0.0076, 0.0149] {
            let (found, tried) = search(SearchAnswer::LastAdmissible, limit);
            let found = found.unwrap();
            assert!(found <= limit && limit - found < step, "{limit}: {found}");
            assert_eq!((tried.len(), tried[0]), (5, 0.008));
        }
        let (found, tried) = search(SearchAnswer::LastViolating, 0.0076);
        assert!(found.unwrap() > 0.0076 && tried.contains(&found.unwrap()));
        assert_eq!(search(SearchAnswer::LastAdmissible, 0.0).0, None);
        assert_eq!(search(SearchAnswer::LastViolating, 1.0).0, Some(0.015));
        let wrong =
            |range| largest_admissible(range, 3, SearchAnswer::default(), |_| Ok::<_, Error>(true));
        assert!(wrong((1.0, 0.0)).is_err() && wrong((f64::NAN, 1.0)).is_err());
        let failing = largest_admissible((0.0, 1.0), 3, SearchAnswer::default(), |_| {
            Err(Error::length("anchors", 0, "at least 1"))
        });
        assert_eq!(failing, Err(Error::length("anchors", 0, "at least 1")));
    }

    #[test]
    fn criteria_by_hand() {
        let reference = [0.8, 0.2, 0.4, 0.6];
        let noisy = [0.5, 0.5, 0.7, 0.3];
        // Pseudo-labels 0 and 1: NLL −ln(0.8·0.6)/2, then −ln(0.5·0.3)/2.
        let (before, after) = (-0.48_f64.ln() / 2.0, -0.15_f64.ln() / 2.0);
        let expected = (after - before) / before / 2.0;
        let found = relative_nll_change(&reference, &noisy, 2, &[0, 1]).unwrap();
        assert!((found - expected).abs() < 1e-14, "{found} {expected}");
        let nll =
            |tolerance| AdmissibleChange::NllPerAnchor { tolerance }.holds(&reference, &noisy, 2);
        assert_eq!(nll(expected + 1e-9), Ok(true));
        assert_eq!(nll(expected - 1e-9), Ok(false));
        // The tie of the first row goes to class 0, which it was before.
        assert_eq!(flipped_fraction(&reference, &noisy, 2), Ok(0.5));
        let flipped =
            |tolerance| AdmissibleChange::Flipped { tolerance }.holds(&reference, &noisy, 2);
        assert_eq!((flipped(0.5), flipped(0.49)), (Ok(true), Ok(false)));
    }

    #[test]
    fn predictions_that_cannot_be_compared_are_errors() {
        assert!(relative_nll_change(&[1.0, 0.0], &[0.5, 0.5], 2, &[0]).is_err());
        assert!(relative_nll_change(&[0.5, 0.5], &[0.5, 0.6], 2, &[0]).is_err());
        assert!(relative_nll_change(&[], &[], 2, &[]).is_err());
        assert!(flipped_fraction(&[0.5, 0.5], &[0.5, 0.5, 1.0, 0.0], 2).is_err());
    }
}
