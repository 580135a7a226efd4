//! Changes of basis that leave the update `B·A` alone, and those that leave the posterior alone.
//!
//! The product of the factors does not change under `A → R·A, B → B·R⁻¹` for any invertible `R`. A variational family breaks
//! most of these symmetries: `RankVariance` with distinct variances stays in its family for signed permutations only, and for
//! rotations inside equal variances; `NoiseToSignal` for permutations and rescalings only, even if all its ratios are equal.
//!
//! Source: Doyle et al., arXiv:2506.22809, Theorem 1, for the additive family; the rest is derived.

use crate::error::{Error, check_length, count_rows};
use crate::family::{VariationalFamily, clamp_log_variance};
use crate::linalg::{Svd, identity, svd, times, times_transposed, transpose, transposed_times};
use crate::posterior::{Entries, Posterior};

/// An invertible change of basis of rank space.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    size: usize,
    matrix: Vec<f64>,
    inverse: Vec<f64>,
}

impl Gauge {
    /// Checks a matrix `R [size, size]`.
    pub fn new(matrix: &[f64], size: usize) -> Result<Self, Error> {
        check_length("gauge", matrix.len(), size * size)?;
        // R = Σ_k ς_k·u_k·v_kᵀ, so R⁻¹ = Σ_k v_k·u_kᵀ/ς_k.
        let Svd { left, values, mut right } = svd(matrix, size, size);
        let least = f64::EPSILON * size as f64 * values.first().copied().unwrap_or(0.0);
        if !values.iter().all(|&value| value > least) {
            return Err(Error::undefined("gauge", "is singular to working precision"));
        }
        for (at, v) in right.iter_mut().enumerate() {
            *v /= values[at / size];
        }
        let inverse = transposed_times(&right, &left, size, size, size);
        Ok(Self { size, matrix: matrix.to_vec(), inverse })
    }

    /// Transforms both factors, `a [size, d_input]` and `b [size, d_output]`.
    ///
    /// ```text
    /// A' = R·A,   B' = B·R⁻¹      (rank-major: Bᵀ' = R⁻ᵀ·Bᵀ)
    /// ```
    pub fn apply(&self, a: &[f64], b: &[f64]) -> Result<Entries, Error> {
        let (n, inverse_t) = (self.size, transpose(&self.inverse, self.size, self.size));
        let (d_input, d_output) = (count_rows("a", a, n)?, count_rows("b", b, n)?);
        Ok(Entries {
            a: times(&self.matrix, a, n, n, d_input),
            b: times(&inverse_t, b, n, n, d_output),
        })
    }

    /// `max |R·Rᵀ − I|`: 0 for an orthogonal gauge.
    pub fn orthogonality_residual(&self) -> f64 {
        let gram = times_transposed(&self.matrix, &self.matrix, self.size, self.size, self.size);
        gram.iter().zip(identity(self.size)).map(|(g, i)| (g - i).abs()).fold(0.0, f64::max)
    }

    /// `max |R − round(R)|`: 0 together with orthogonality means a signed permutation.
    pub fn integer_residual(&self) -> f64 {
        self.matrix.iter().map(|v| (v - v.round()).abs()).fold(0.0, f64::max)
    }

    /// Action of the gauge on one number per rank. An orthogonal gauge is in the residual group of Theorem 1 if
    /// [`off_diagonal`](DiagonalAction::off_diagonal) is 0: signed permutations, and rotations inside equal numbers.
    pub fn diagonal_action(&self, diagonal: &[f64]) -> Result<DiagonalAction, Error> {
        check_length("diagonal", diagonal.len(), self.size)?;
        let r = self.size;
        let at = |i: usize, j: usize| self.matrix[i * r + j];
        let mut commutator = 0.0_f64;
        let mut off_diagonal = 0.0_f64;
        let mut transformed = vec![0.0; r];
        for i in 0..r {
            for j in 0..r {
                commutator = commutator.max((at(i, j) * (diagonal[j] - diagonal[i])).abs());
                let entry: f64 = (0..r).map(|k| at(i, k) * diagonal[k] * at(j, k)).sum();
                if i == j {
                    transformed[i] = entry;
                } else {
                    off_diagonal = off_diagonal.max(entry.abs());
                }
            }
        }
        Ok(DiagonalAction { commutator, off_diagonal, transformed })
    }
}

/// How a gauge acts on a diagonal matrix `D`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagonalAction {
    /// `max |R·D − D·R|`: 0 for the orthogonal gauges that leave `D` as it is, which not all of the residual group do.
    pub commutator: f64,
    /// `max` off-diagonal entry of `R·D·Rᵀ`.
    pub off_diagonal: f64,
    /// The diagonal of `R·D·Rᵀ`.
    pub transformed: Vec<f64>,
}

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
    /// `Σ Var ΔW` is the same before and after, unless a log-variance reaches the end of its range. Equal variances of
    /// balanced factors (`A·Aᵀ = Bᵀ·B`, where `R` is orthogonal) are unchanged, and so is the variance of every entry of `ΔW`.
    /// In other cases one number per rank cannot hold both `v_a` and `v_b`, and only the total is exact.
    pub fn log_variance(&self, posterior: &Posterior<'_>) -> Result<Vec<f64>, Error> {
        let family = posterior.family();
        if !matches!(family, VariationalFamily::RankVariance | VariationalFamily::AsymRankVariance)
        {
            return Err(family.unsupported("a basis change", "its noise belongs to entries"));
        }
        let is_b_random = family.has_random_b();
        let (rank, d_in, d_out) = (posterior.rank(), posterior.d_input(), posterior.d_output());
        check_length("a", self.a.len(), rank * d_in)?;
        check_length("b", self.b.len(), rank * d_out)?;
        let (a, b) = (posterior.a_mean(), posterior.b_mean());
        let v = posterior.a_noise().iter().map(|&l| clamp_log_variance(l).exp());
        let v: Vec<f64> = v.collect();
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

/// Rotates rank-major factors, `a [rank, d_input]` and `b [rank, d_output]`, to the singular directions of their product.
///
/// ```text
/// ΔW = Σ_k outer(b[k], a[k]) = Σ_k ς_k · outer(u_k, v_k)
/// a'[k] = √ς_k · v_k,   b'[k] = √ς_k · u_k
/// ```
///
/// `ΔW` is unchanged. No other factors of the same product have a smaller `‖A‖² + ‖B‖²`, which is here
/// `2·Σ ς_k`: of all gauges this one has the largest density under a Gaussian prior with one width for both factors.
pub fn singular_factors(a: &[f64], b: &[f64], rank: usize) -> Result<SingularFactors, Error> {
    let (d_input, d_output) = (count_rows("a", a, rank)?, count_rows("b", b, rank)?);
    let (of_a, of_b) = (svd(a, rank, d_input), svd(b, rank, d_output));
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
    use crate::testing::assert_near;

    fn turned(a: &[f64], b: &[f64], rank: usize) -> SingularFactors {
        singular_factors(a, b, rank).unwrap()
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
        let sizes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        close(&sizes(&found.a), &[0.6 * root, 0.8 * root, 0.0, 0.0]);
        close(&sizes(&found.b), &[root, 0.0, 0.0, 0.0]);
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
            let mut diagonal = vec![0.0; rank * rank];
            for (k, value) in found.values.iter().enumerate() {
                diagonal[k * (rank + 1)] = *value;
            }
            for (factor, width) in [(&found.a, d_input), (&found.b, d_output)] {
                close(&times_transposed(factor, factor, rank, width, rank), &diagonal);
            }
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn equal_variances_of_balanced_factors_stay_and_others_belong_to_entries() {
        // A·Aᵀ = Bᵀ·B = [[2, 1], [1, 2]].
        let (a, b) = ([1.0, 1.0, 0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
        let found = turned(&a, &b, 2);
        let of = |q: Result<Posterior<'_>, Error>| found.log_variance(&q.unwrap());
        let equal = [-3.0, -3.0];
        close(&of(Posterior::rank_variance(&a, &b, &equal)).unwrap(), &equal);
        close(&of(Posterior::asym_rank_variance(&a, &b, &equal)).unwrap(), &equal);
        // A value beyond the range of the forward pass counts as the end of the range.
        let drifted = of(Posterior::rank_variance(&a, &b, &[9.0, -3.0])).unwrap();
        close(&drifted, &of(Posterior::rank_variance(&a, &b, &[2.0, -3.0])).unwrap());
        assert!(of(Posterior::noise_to_signal(&a, &b, &equal)).is_err());
        assert!(of(Posterior::rank_variance(&a, &b[..4], &equal)).is_err());
    }

    #[test]
    fn an_inverse_undoes_the_product_and_singular_is_an_error() {
        let m = [0.0, 2.0, 1.0, 1.0, -1.0, 0.5, 3.0, 0.25, 4.0];
        let gauge = Gauge::new(&m, 3).unwrap();
        assert_near(&times(&m, &gauge.inverse, 3, 3, 3), &identity(3), 1e-13);
        for wrong in [&[1.0, 2.0, 2.0, 4.0][..], &[f64::NAN; 4], &[0.0; 4]] {
            assert!(Gauge::new(wrong, 2).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rank_zero_and_ragged_factors() {
        assert!(singular_factors(&[], &[], 0).unwrap().values.is_empty());
        assert!(singular_factors(&[], &[1.0], 0).is_err());
        assert!(singular_factors(&[1.0; 4], &[1.0; 3], 2).is_err());
        assert!(Gauge::new(&[1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 0.0, 0.0, 1.0], 3).is_err());
        assert_eq!(Gauge::new(&[], 0).unwrap().orthogonality_residual(), 0.0);
    }
}
