//! Low-rank update of one layer: its factors, its singular directions, and the energy of its components.
//!
//! The product of the factors does not change under `A → R·A, B → B·R⁻¹` for any invertible `R`. A variational family breaks
//! most of these symmetries: `RankVariance` with distinct variances stays in its family for signed permutations only, and for
//! rotations inside equal variances; `NoiseToSignal` for permutations and rescalings only, even if all its ratios are equal.
//!
//! Source: Doyle et al., arXiv:2506.22809, Theorem 1, for the additive family; the rest is derived.

use crate::error::{Error, above, check_length, check_range};
use crate::linalg::{svd, times, times_transposed, transpose};

/// Factors of a low-rank update `ΔW = B·A`, with the orientation that PEFT's files have.
///
/// # Examples
///
/// ```
/// use lrvd_core::Factors;
///
/// // Rank 2, one input, three outputs.
/// let b = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
/// let factors = Factors { rank: 2, d_input: 1, d_output: 3, a: vec![0.5, -1.0], b };
/// assert_eq!(factors.b_by_rank(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
/// let second = factors.select(&[1])?;
/// assert_eq!((second.a, second.b), (vec![-1.0], vec![1.0, 3.0, 5.0]));
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Factors {
    /// Rank components; 0 is legal.
    pub rank: usize,
    /// Features in.
    pub d_input: usize,
    /// Features out.
    pub d_output: usize,
    /// `lora_A.weight`, `[rank, d_input]`.
    pub a: Vec<f64>,
    /// `lora_B.weight`, `[d_output, rank]`.
    pub b: Vec<f64>,
}

impl Factors {
    /// Factors from a B whose rows are rank components, `[rank, d_output]`.
    pub(crate) fn from_rows(sizes: [usize; 3], a: Vec<f64>, b_by_rank: &[f64]) -> Self {
        let [rank, d_input, d_output] = sizes;
        Self { rank, d_input, d_output, a, b: transpose(b_by_rank, rank, d_output) }
    }

    /// B with a row for each rank component, `[rank, d_output]`.
    pub fn b_by_rank(&self) -> Vec<f64> {
        transpose(&self.b, self.d_output, self.rank)
    }

    /// The components `kept`, in that order.
    ///
    /// # Errors
    ///
    /// The lengths do not fit the sizes, or a component does not exist.
    pub fn select(&self, kept: &[usize]) -> Result<Self, Error> {
        self.check()?;
        check_components(kept, self.rank)?;
        let a = select_rows(&self.a, self.d_input, kept);
        let b = select_columns(&self.b, self.rank, kept);
        Ok(Self { rank: kept.len(), a, b, ..*self })
    }

    /// Checks that the lengths fit the sizes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_size("a", self.a.len(), [self.rank, self.d_input])?;
        check_size("b", self.b.len(), [self.d_output, self.rank])
    }
}

fn check_size(name: &str, found: usize, [rows, columns]: [usize; 2]) -> Result<(), Error> {
    if rows.checked_mul(columns) == Some(found) {
        Ok(())
    } else {
        Err(Error::length(name, found, format!("{rows} x {columns}")))
    }
}

fn check_components(kept: &[usize], rank: usize) -> Result<(), Error> {
    match kept.iter().position(|&k| k >= rank) {
        Some(at) => Err(Error::entry("kept", at, kept[at], format!("a component below {rank}"))),
        None => Ok(()),
    }
}

pub(crate) fn select_rows(values: &[f64], width: usize, kept: &[usize]) -> Vec<f64> {
    kept.iter().flat_map(|k| &values[k * width..(k + 1) * width]).copied().collect()
}

pub(crate) fn select_columns(values: &[f64], width: usize, kept: &[usize]) -> Vec<f64> {
    let rows = values.chunks_exact(width.max(1));
    rows.flat_map(|row| kept.iter().map(|&k| row[k])).collect()
}

/// An update as the sum of its singular directions, each shared evenly between both factors.
#[derive(Debug, Clone, PartialEq)]
pub struct SingularFactors {
    /// Singular values of `ΔW`, largest first, `[rank]`; zero beyond the rank that it really has.
    pub values: Vec<f64>,
    /// Rows `√ς_k · v_k` of A and columns `√ς_k · u_k` of B.
    pub factors: Factors,
}

/// Rotates factors to the singular directions of their product.
///
/// ```text
/// ΔW = Σ_k outer(b[k], a[k]) = Σ_k ς_k · outer(u_k, v_k)
/// a'[k] = √ς_k · v_k,   b'[k] = √ς_k · u_k
/// ```
///
/// `ΔW` is unchanged. No other factors of the same product have a smaller `‖A‖² + ‖B‖²`, which is here
/// `2·Σ ς_k`: of all gauges this one has the largest density under a Gaussian prior with one width for both factors.
pub fn singular_factors(factors: &Factors) -> Result<SingularFactors, Error> {
    factors.check()?;
    let Factors { rank, d_input, d_output, .. } = *factors;
    let of_a = svd(&factors.a, rank, d_input);
    let of_b = svd(&factors.b_by_rank(), rank, d_output);
    let n_a = of_a.values.len();
    let n_b = of_b.values.len();
    // ΔW = Vbᵀ·(Sb·Ub·Uaᵀ·Sa)·Va with vectors as rows: only the small middle is left to decompose.
    let mut middle = times_transposed(&of_b.left, &of_a.left, n_b, rank, n_a);
    for (i, row) in middle.chunks_mut(n_a.max(1)).enumerate() {
        for (value, scale) in row.iter_mut().zip(&of_a.values) {
            *value *= of_b.values[i] * scale;
        }
    }
    let inner = svd(&middle, n_b, n_a);
    let n = inner.values.len();
    let mut a = times(&inner.right, &of_a.right, n, n_a, d_input);
    let mut b = times(&inner.left, &of_b.right, n, n_b, d_output);
    for (k, value) in inner.values.iter().enumerate() {
        let root = value.sqrt();
        a[k * d_input..(k + 1) * d_input].iter_mut().for_each(|v| *v *= root);
        b[k * d_output..(k + 1) * d_output].iter_mut().for_each(|v| *v *= root);
    }
    let mut values = inner.values;
    values.resize(rank, 0.0);
    a.resize(rank * d_input, 0.0);
    b.resize(rank * d_output, 0.0);
    let factors = Factors::from_rows([rank, d_input, d_output], a, &b);
    Ok(SingularFactors { values, factors })
}

/// Area under a curve `E(1..r)` by trapezoids from `E(0) = 0`: `(Σ_{k<r} E(k) + ½·E(r)) / r`.
pub fn area(curve: &[f64]) -> Result<f64, Error> {
    let last = curve.last().ok_or_else(|| Error::length("curve", 0, "at least 1"))?;
    Ok((curve.iter().sum::<f64>() - 0.5 * last) / curve.len() as f64)
}

/// The update of one adapter, `ΔW = Σ_k outer(b[k], a[k])`, prepared for energy questions.
#[derive(Debug, Clone)]
pub struct UpdateEnergy {
    /// `[rank, rank]`.
    overlap: Vec<f64>,
    total: f64,
    /// Singular values of the update, largest first, `min(rank, d_input, d_output)` of them.
    singular_values: Vec<f64>,
}

impl UpdateEnergy {
    /// Prepares the update of `factors`; `a[k]` is a row of A, `b[k]` a column of B.
    ///
    /// ```text
    /// H[i,j] = ⟨b[i], b[j]⟩ · ⟨a[i], a[j]⟩ = ⟨outer(b[i], a[i]), outer(b[j], a[j])⟩
    /// ‖ΔW‖² = 1ᵀ·H·1
    /// ```
    ///
    /// # Errors
    ///
    /// `‖ΔW‖²` is not positive (to working precision): there is nothing to capture. Rank 0 is legal.
    pub fn new(factors: &Factors) -> Result<Self, Error> {
        let mut singular_values = singular_factors(factors)?.values;
        let Factors { rank, d_input, d_output, ref a, .. } = *factors;
        let b = factors.b_by_rank();
        let a_gram = times_transposed(a, a, rank, d_input, rank);
        let b_gram = times_transposed(&b, &b, rank, d_output, rank);
        let overlap: Vec<f64> = a_gram.iter().zip(&b_gram).map(|(x, y)| x * y).collect();
        let total: f64 = overlap.iter().sum();
        let scale: f64 = overlap.iter().map(|v| v.abs()).sum();
        if rank > 0 {
            check_range("energy of the update", total, above(f64::EPSILON * scale))?;
        }
        singular_values.truncate(d_input.min(d_output));
        Ok(Self { overlap, total, singular_values })
    }

    /// The number of components.
    pub fn rank(&self) -> usize {
        self.overlap.len().isqrt()
    }

    /// Singular values of the update, largest first, `min(rank, d_input, d_output)` of them.
    pub fn singular_values(&self) -> &[f64] {
        &self.singular_values
    }

    /// The captured share `1 − ‖ΔW − ΔW_k‖² / ‖ΔW‖²` after `k = 1..r` components in the given order; it may be negative.
    ///
    /// ```text
    /// 1 − 1_Rᵀ·H·1_R / 1ᵀ·H·1      R the components still missing
    /// ```
    pub fn curve(&self, order: &[usize]) -> Result<Vec<f64>, Error> {
        self.check_order(order)?;
        // The missing part grows backwards from nothing, which keeps E(r) = 1 exact.
        let r = self.rank();
        let mut share = vec![1.0; r];
        let mut missing = 0.0;
        for k in (1..r).rev() {
            let i = order[k];
            let with_later: f64 =
                order[k + 1..].iter().rev().map(|&j| self.overlap[i * r + j]).sum();
            missing += self.overlap[i * r + i] + 2.0 * with_later;
            share[k - 1] = 1.0 - missing / self.total;
        }
        Ok(share)
    }

    /// The upper bound for every order (Eckart–Young), `k = 1..r`.
    ///
    /// ```text
    /// E_svd(k) = Σ_{i≤k} ς_i² / Σ_i ς_i²
    /// ```
    pub fn singular_value_curve(&self) -> Vec<f64> {
        let squares: Vec<f64> = self.singular_values.iter().map(|s| s * s).collect();
        let total: f64 = squares.iter().sum();
        let mut sum = 0.0;
        (0..self.rank())
            .map(|k| {
                sum += squares.get(k).unwrap_or(&0.0);
                if k + 1 >= squares.len() { 1.0 } else { sum / total }
            })
            .collect()
    }

    /// The mean of the curve over all orders, in closed form.
    ///
    /// ```text
    /// f(m) = [m/r · Σ_i H_ii + m(m−1)/(r(r−1)) · Σ_{i≠j} H_ij] / 1ᵀ·H·1
    /// E(k) = 1 − f(r − k)
    /// ```
    pub fn permutation_mean(&self) -> Vec<f64> {
        let r = self.rank();
        let diagonal: f64 = (0..r).map(|i| self.overlap[i * r + i]).sum();
        let rest = self.overlap.iter().sum::<f64>() - diagonal;
        let share = |m: usize| {
            let single = m as f64 / r as f64;
            let pair = if r > 1 { single * (m as f64 - 1.0) / (r as f64 - 1.0) } else { 0.0 };
            (single * diagonal + pair * rest) / self.total
        };
        // An empty remainder must give 1 exactly, and −0·(…) would not.
        (1..=r).map(|k| if k == r { 1.0 } else { 1.0 - share(r - k) }).collect()
    }

    /// Components by falling `‖a[k]‖·‖b[k]‖`, the baseline without variances.
    pub fn order_by_norm_product(&self) -> Vec<usize> {
        let r = self.rank();
        let mut order: Vec<usize> = (0..r).collect();
        order.sort_by(|&i, &j| self.overlap[j * r + j].total_cmp(&self.overlap[i * r + i]));
        order
    }

    fn check_order(&self, order: &[usize]) -> Result<(), Error> {
        let r = self.rank();
        check_length("order", order.len(), r)?;
        let mut places = order.iter().enumerate();
        match places.find(|&(place, index)| *index >= r || order[..place].contains(index)) {
            Some((place, &index)) => {
                let expected = format!("every index below {r} once");
                Err(Error::entry("order", place, index, expected))
            }
            None => Ok(()),
        }
    }
}

/// Components by rising prune statistic: the order the posterior proposes. Ties go to the lower
/// index; NaN comes last.
pub fn order_by_statistic(statistic: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..statistic.len()).collect();
    let key = |i: usize| if statistic[i].is_nan() { f64::NAN } else { statistic[i] };
    order.sort_by(|&i, &j| key(i).total_cmp(&key(j)));
    order
}

/// Area under the curve of an order, normalized so that random orders have 0 and the bound has 1.
///
/// ```text
/// gap = (auc − auc_random) / (auc_svd − auc_random)
/// ```
///
/// # Errors
///
/// Random orders are as good as the bound (rank 1), so the ratio has no value.
pub fn normalised_gap(auc: f64, auc_random: f64, auc_svd: f64) -> Result<f64, Error> {
    let room = auc_svd - auc_random;
    check_range("auc_svd - auc_random", room, f64::EPSILON..)?;
    Ok((auc - auc_random) / room)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{assert_near, factors};

    #[track_caller]
    fn near(found: &[f64], expected: &[f64]) {
        assert_near(found, expected, 1e-12);
    }

    #[test]
    fn one_direction_on_two_ranks_becomes_one() {
        // ΔW = outer((1, 0), (3, 4)) + outer((1, 0), (3, 4)): one direction of length 2·5.
        let found =
            singular_factors(&factors(2, &[3.0, 4.0, 3.0, 4.0], &[1.0, 0.0, 1.0, 0.0])).unwrap();
        near(&found.values, &[10.0, 0.0]);
        let root = 10_f64.sqrt();
        let sizes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        near(&sizes(&found.factors.a), &[0.6 * root, 0.8 * root, 0.0, 0.0]);
        near(&sizes(&found.factors.b_by_rank()), &[root, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_update_stays_and_its_parts_are_orthogonal_and_balanced() {
        // Wider and narrower than the rank, and unbalanced.
        for (rank, d_input, d_output) in [(3, 5, 4), (4, 2, 6), (4, 6, 3), (1, 4, 4)] {
            let number = |i: usize| ((i * i + 3 * i) % 11) as f64 - 4.5;
            let a: Vec<f64> = (0..rank * d_input).map(number).collect();
            let b: Vec<f64> = (0..rank * d_output).map(|i| 0.01 * number(i + 5)).collect();
            let before = factors(rank, &a, &b);
            let found = singular_factors(&before).unwrap();
            let update = |f: &Factors| times(&f.b, &f.a, d_output, rank, d_input);
            near(&update(&found.factors), &update(&before));
            let mut diagonal = vec![0.0; rank * rank];
            for (k, value) in found.values.iter().enumerate() {
                diagonal[k * (rank + 1)] = *value;
            }
            let b = found.factors.b_by_rank();
            for (factor, width) in [(found.factors.a, d_input), (b, d_output)] {
                near(&times_transposed(&factor, &factor, rank, width, rank), &diagonal);
            }
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn rank_zero_and_ragged_factors() {
        assert!(singular_factors(&factors(0, &[], &[])).unwrap().values.is_empty());
        let ragged = Factors { b: vec![1.0; 3], ..factors(2, &[1.0; 4], &[1.0; 4]) };
        assert_eq!(singular_factors(&ragged), Err(Error::length("b", 3, "2 x 2")));
    }

    #[test]
    fn orders_areas_and_gaps() {
        assert_eq!(order_by_statistic(&[3.0, -1.0, f64::NAN, -1.0, 2.0]), [1, 3, 4, 0, 2]);
        assert_eq!(area(&[0.5, 1.0]).unwrap(), 0.5);
        assert!(area(&[]).is_err());
        assert!((normalised_gap(0.8, 0.6, 1.0).unwrap() - 0.5).abs() < 1e-15);
        assert!(normalised_gap(1.0, 1.0, 1.0).is_err());
        let b = [1.0, 1.0];
        let update = UpdateEnergy::new(&factors(2, &[1.0, 0.0, 0.0, 2.0], &b)).unwrap();
        for wrong in [&[0, 0][..], &[0, 2], &[0]] {
            assert!(update.curve(wrong).is_err(), "{wrong:?}");
        }
        assert!(UpdateEnergy::new(&factors(2, &[0.0; 4], &b)).is_err());
        let none = UpdateEnergy::new(&factors(0, &[], &[])).unwrap();
        assert!(none.curve(&[]).unwrap().is_empty());
        assert!(none.singular_value_curve().is_empty());
    }

    #[test]
    fn the_closed_mean_over_orders_is_the_mean() {
        let a = [0.5, -0.25, 1.5, 0.125, 1.0, 0.3, 0.75, -1.25, 0.2];
        let b = [0.2, -0.4, 0.6, 1.1, 0.9, -0.7];
        let update = UpdateEnergy::new(&factors(3, &a, &b)).unwrap();
        let mut mean = [0.0; 3];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for (m, v) in mean.iter_mut().zip(update.curve(&order).unwrap()) {
                *m += v / 6.0;
            }
        }
        near(&update.permutation_mean(), &mean);
    }
}
