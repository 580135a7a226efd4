//! The gauge in which the components of an update are its singular directions.

use crate::error::{Error, check_length};
use crate::factor::FactorView;
use crate::family::clamp_log_variance;
use crate::numeric::dense::{times, times_transposed};
use crate::numeric::svd;
use crate::posterior::{NoiseParameters, Posterior};

/// A singular value below this share of the largest is zero.
const ZERO: f64 = 1e-10;

/// An update as the sum of its singular directions, each shared evenly between both factors.
#[derive(Debug, Clone, PartialEq)]
pub struct SingularFactors {
    /// Singular values of `ΔW`, largest first, `[rank]`; zero beyond the rank that it really has.
    pub values: Vec<f64>,
    /// `√ς_k · v_k`, rank-major `[rank, d_input]`.
    pub a: Vec<f64>,
    /// `√ς_k · u_k`, rank-major `[rank, d_output]`.
    pub b: Vec<f64>,
}

impl SingularFactors {
    /// The log-variance of every singular direction, where `posterior` is over the factors that were decomposed and has one
    /// log-variance per rank.
    ///
    /// With `v = exp(clamp(log_variance))` and the basis change `A' = R·A`, `B' = B·R⁻¹`:
    ///
    /// ```text
    /// R[i,k] = ⟨b_k, b'_i⟩ / ς_i,    R⁻¹[k,i] = ⟨a_k, a'_i⟩ / ς_i
    /// v_a[i] = Σ_k R[i,k]²·v[k],     v_b[i] = Σ_k R⁻¹[k,i]²·v[k]
    /// v'[i]  = s·√(v_a[i]·v_b[i])    RankVariance
    ///          s·v_a[i]              AsymRankVariance
    ///          s·mean(v)             where ς_i = 0: both means are zero
    /// ```
    ///
    /// The factor `s > 0` keeps the total variance of the update,
    ///
    /// ```text
    /// Σ Var ΔW = Σ_k d_input·‖b_k‖²·v[k] + (d_output·‖a_k‖²·v[k] + d_input·d_output·v[k]²  where B is random)
    /// ```
    ///
    /// # Errors
    ///
    /// A posterior without one log-variance per rank, or over other factors.
    ///
    /// # Invariants
    ///
    /// `Σ Var ΔW` is the same before and after, unless a log-variance reaches the end of its range. Equal variances of
    /// balanced factors (`A·Aᵀ = Bᵀ·B`, where `R` is orthogonal) are unchanged, and so is the variance of every entry of `ΔW`.
    /// In other cases one number per rank cannot hold both `v_a` and `v_b`, and only the total is exact.
    pub fn log_variance(&self, posterior: &Posterior<'_>) -> Result<Vec<f64>, Error> {
        let (log_variance, is_b_random) = match posterior.parameters() {
            NoiseParameters::RankVariance(v) => (v, true),
            NoiseParameters::AsymRankVariance(v) => (v, false),
            NoiseParameters::NoiseToSignal(_) | NoiseParameters::ElementVariance { .. } => {
                let family = posterior.family();
                return Err(family.unsupported("a basis change", "its noise belongs to entries"));
            }
        };
        let (rank, d_in, d_out) = (posterior.rank(), posterior.d_input(), posterior.d_output());
        check_length("a", self.a.len(), rank * d_in)?;
        check_length("b", self.b.len(), rank * d_out)?;
        let (a, b) = (posterior.a_mean().values(), posterior.b_mean().values());
        let v: Vec<f64> = log_variance.iter().map(|&l| clamp_log_variance(l).exp()).collect();
        let mean = v.iter().sum::<f64>() / rank.max(1) as f64;
        // [directions, ranks]
        let overlap_a = times_transposed(&self.a, a, rank, d_in, rank);
        let overlap_b = times_transposed(&self.b, b, rank, d_out, rank);
        let least = ZERO * self.values.first().copied().unwrap_or(0.0);
        let carried = |(i, &value): (usize, &f64)| {
            if value <= least {
                return mean;
            }
            let through = |overlap: &[f64]| {
                let row = overlap[i * rank..(i + 1) * rank].iter().zip(&v);
                row.map(|(o, v)| (o / value).powi(2) * v).sum::<f64>()
            };
            let of_a = through(&overlap_b);
            if is_b_random { (of_a * through(&overlap_a)).sqrt() } else { of_a }
        };
        let directions: Vec<f64> = self.values.iter().enumerate().map(carried).collect();
        // Σ Var ΔW as a polynomial of a common factor: what is linear in the variances, and what is quadratic.
        let parts = |a: &[f64], b: &[f64], v: &[f64]| {
            let square = |factor: &[f64], width: usize, k: usize| -> f64 {
                factor[k * width..(k + 1) * width].iter().map(|x| x * x).sum()
            };
            let random = f64::from(u8::from(is_b_random));
            v.iter().enumerate().fold((0.0, 0.0), |(linear, quadratic), (k, v)| {
                let of_b = d_in as f64 * square(b, d_out, k);
                let of_a = random * d_out as f64 * square(a, d_in, k);
                (linear + v * (of_a + of_b), quadratic + random * (d_in * d_out) as f64 * v * v)
            })
        };
        let (linear, quadratic) = parts(a, b, &v);
        let total = linear + quadratic;
        let (linear, quadratic) = parts(&self.a, &self.b, &directions);
        let scale = if total > 0.0 {
            2.0 * total / (linear + (linear * linear + 4.0 * quadratic * total).sqrt())
        } else {
            1.0
        };
        Ok(directions.iter().map(|v| clamp_log_variance((scale * v).ln())).collect())
    }
}

/// Rotates rank-major factors to the singular directions of their product.
///
/// ```text
/// ΔW = Σ_k outer(b[k], a[k]) = Σ_k ς_k · outer(u_k, v_k)
/// a'[k] = √ς_k · v_k,   b'[k] = √ς_k · u_k
/// ```
///
/// # Errors
///
/// The ranks of the factors differ. Rank 0 is legal.
///
/// # Invariants
///
/// `ΔW` is unchanged. No other factors of the same product have a smaller `‖A‖² + ‖B‖²`, which is here
/// `2·Σ ς_k`: of all gauges this one has the largest density under a Gaussian prior with one width for both factors.
pub fn singular_factors(a: FactorView<'_>, b: FactorView<'_>) -> Result<SingularFactors, Error> {
    check_length("rows of b", b.rank(), a.rank())?;
    let (rank, d_input, d_output) = (a.rank(), a.width(), b.width());
    let (of_a, of_b) = (svd(a.values(), rank, d_input), svd(b.values(), rank, d_output));
    let (n_a, n_b) = (of_a.values.len(), of_b.values.len());
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
    Ok(SingularFactors { values, a, b })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numeric::dense::transposed_times;
    use crate::testing::assert_near;

    fn turned(a: &[f64], b: &[f64], rank: usize) -> SingularFactors {
        let a = FactorView::new("a", a, rank, a.len() / rank).unwrap();
        singular_factors(a, FactorView::new("b", b, rank, b.len() / rank).unwrap()).unwrap()
    }

    #[track_caller]
    fn close(found: &[f64], expected: &[f64]) {
        assert_near(found, expected, 1e-12);
    }

    #[test]
    fn one_direction_on_two_ranks_becomes_one() {
        // ΔW = outer((1, 0), (3, 4)) + outer((1, 0), (3, 4)): one direction of length 2·5.
        let found = turned(&[3.0, 4.0, 3.0, 4.0], &[1.0, 0.0, 1.0, 0.0], 2);
        close(&found.values, &[10.0, 0.0]);
        let root = 10_f64.sqrt();
        close(
            &found.a.iter().map(|v| v.abs()).collect::<Vec<_>>(),
            &[0.6 * root, 0.8 * root, 0.0, 0.0],
        );
        close(&found.b.iter().map(|v| v.abs()).collect::<Vec<_>>(), &[root, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_update_stays_and_its_parts_are_orthogonal_and_balanced() {
        // Wider and narrower than the rank, and unbalanced.
        for (rank, d_input, d_output) in [(3, 5, 4), (4, 2, 6), (4, 6, 3), (1, 4, 4)] {
            let number = |i: usize| ((i * i + 3 * i) % 11) as f64 - 4.5;
            let a: Vec<f64> = (0..rank * d_input).map(number).collect();
            let b: Vec<f64> = (0..rank * d_output).map(|i| 0.01 * number(i + 5)).collect();
            let found = turned(&a, &b, rank);
            let before = transposed_times(&b, &a, rank, d_output, d_input);
            close(&transposed_times(&found.b, &found.a, rank, d_output, d_input), &before);
            for factor in [(&found.a, d_input), (&found.b, d_output)] {
                let gram = times_transposed(factor.0, factor.0, rank, factor.1, rank);
                for i in 0..rank {
                    for j in 0..rank {
                        let expected = if i == j { found.values[i] } else { 0.0 };
                        assert!((gram[i * rank + j] - expected).abs() < 1e-12);
                    }
                }
            }
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn equal_variances_of_balanced_factors_stay_and_others_belong_to_entries() {
        // A·Aᵀ = Bᵀ·B = [[2, 1], [1, 2]].
        let (a, b) = ([1.0, 1.0, 0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
        let found = turned(&a, &b, 2);
        let a = FactorView::new("a", &a, 2, 3).unwrap();
        let b = FactorView::new("b", &b, 2, 3).unwrap();
        let of = |noise| found.log_variance(&Posterior::new(a, b, noise).unwrap());
        close(&of(NoiseParameters::RankVariance(&[-3.0, -3.0])).unwrap(), &[-3.0, -3.0]);
        close(&of(NoiseParameters::AsymRankVariance(&[-3.0, -3.0])).unwrap(), &[-3.0, -3.0]);
        // A value beyond the range of the forward pass counts as the end of the range.
        let drifted = of(NoiseParameters::RankVariance(&[9.0, -3.0])).unwrap();
        close(&drifted, &of(NoiseParameters::RankVariance(&[2.0, -3.0])).unwrap());
        assert!(of(NoiseParameters::NoiseToSignal(&[0.0, 0.0])).is_err());
    }

    #[test]
    fn rank_zero_and_other_ranks() {
        let none = FactorView::new("a", &[], 0, 3).unwrap();
        assert!(singular_factors(none, none).unwrap().values.is_empty());
        let one = FactorView::new("b", &[1.0], 1, 1).unwrap();
        assert!(singular_factors(none, one).is_err());
    }
}
