//! A change of basis, as it acts on factors, on one number per rank and on a posterior.

use crate::error::{Error, check_length};
use crate::factor::FactorView;
use crate::family::VariationalFamily;
use crate::numeric::dense::{identity, inverse, times, times_transposed, transpose};
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
    ///
    /// # Errors
    ///
    /// The matrix cannot be inverted.
    pub fn new(matrix: &[f64], size: usize) -> Result<Self, Error> {
        check_length("gauge", matrix.len(), size * size)?;
        let inverse = inverse("gauge", matrix, size)?;
        Ok(Self { size, matrix: matrix.to_vec(), inverse })
    }

    /// The number of rank components it acts on.
    pub fn size(&self) -> usize {
        self.size
    }

    /// `R`, row-major.
    pub fn matrix(&self) -> &[f64] {
        &self.matrix
    }

    /// `R⁻¹`, row-major.
    pub fn inverse(&self) -> &[f64] {
        &self.inverse
    }

    /// Transforms both factors, rank-major.
    ///
    /// ```text
    /// A' = R·A,   B' = B·R⁻¹      (rank-major: Bᵀ' = R⁻ᵀ·Bᵀ)
    /// ```
    pub fn apply(&self, a: FactorView<'_>, b: FactorView<'_>) -> Result<Entries, Error> {
        check_length("rows of a", a.rank(), self.size)?;
        check_length("rows of b", b.rank(), self.size)?;
        let inverse_t = transpose(&self.inverse, self.size, self.size);
        Ok(Entries {
            a: times(&self.matrix, a.values(), self.size, self.size, a.width()),
            b: times(&inverse_t, b.values(), self.size, self.size, b.width()),
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

    /// How the gauge acts on one number per rank.
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

    /// Whether the gauge is a symmetry that the tied additive family leaves unbroken: orthogonal,
    /// and mixing only ranks whose parameter is equal.
    pub fn is_residual(&self, diagonal: &[f64], tolerance: f64) -> Result<bool, Error> {
        let action = self.diagonal_action(diagonal)?;
        Ok(self.orthogonality_residual() <= tolerance && action.commutator <= tolerance)
    }
}

/// How a gauge acts on a diagonal matrix `D`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagonalAction {
    /// `max |R·D − D·R|`.
    pub commutator: f64,
    /// `max` off-diagonal entry of `R·D·Rᵀ`.
    pub off_diagonal: f64,
    /// The diagonal of `R·D·Rᵀ`.
    pub transformed: Vec<f64>,
}

/// The posterior after a change of basis, as far as two moments tell.
#[derive(Debug, Clone, PartialEq)]
pub struct PushForward {
    /// New means.
    pub mean: Entries,
    /// New variances.
    pub variance: Entries,
    /// Largest covariance between two ranks in one column of A or B, relative to the largest
    /// variance of that factor: 0 if rows stay independent.
    pub cross_covariance: f64,
    /// How far the new variances are from the family's tying, relative: 0 if it still holds.
    pub tying: f64,
}

impl PushForward {
    /// Whether the transformed posterior is again a member of its family.
    pub fn is_in_family(&self, tolerance: f64) -> bool {
        self.cross_covariance <= tolerance && self.tying <= tolerance
    }
}

/// Pushes a posterior through a gauge.
///
/// ```text
/// Cov(A'[i,j], A'[l,j]) = Σ_k R[i,k]·R[l,k]·Var A[k,j],   B alike with R⁻ᵀ
/// ```
///
/// # Invariants
///
/// `RankVariance` with distinct variances stays in its family for signed permutations only, and for
/// rotations inside equal variances. `NoiseToSignal` stays for permutations and rescalings only,
/// even if all its ratios are equal.
///
/// Source: Doyle et al., arXiv:2506.22809, Theorem 1, for the additive family; the rest is derived.
pub fn push_forward(posterior: &Posterior<'_>, gauge: &Gauge) -> Result<PushForward, Error> {
    let mean = gauge.apply(posterior.a_mean(), posterior.b_mean())?;
    let before = posterior.variance();
    let inverse_t = transpose(gauge.inverse(), gauge.size(), gauge.size());
    let (a, a_cross) = push_variance(gauge.matrix(), &before.a, gauge.size(), posterior.d_input());
    let (b, b_cross) = push_variance(&inverse_t, &before.b, gauge.size(), posterior.d_output());
    let variance = Entries { a, b };
    let widths = (posterior.d_input(), posterior.d_output());
    let tying = tying_residual(posterior.family(), &mean, &variance, gauge.size(), widths);
    Ok(PushForward { mean, variance, cross_covariance: a_cross.max(b_cross), tying })
}

fn push_variance(r: &[f64], before: &[f64], size: usize, width: usize) -> (Vec<f64>, f64) {
    let squares: Vec<f64> = r.iter().map(|v| v * v).collect();
    let variance = times(&squares, before, size, size, width);
    let largest = variance.iter().copied().fold(0.0, f64::max);
    let mut cross = 0.0_f64;
    for i in 0..size {
        for l in i + 1..size {
            let pair: Vec<f64> = (0..size).map(|k| r[i * size + k] * r[l * size + k]).collect();
            let row = times(&pair, before, 1, size, width);
            cross = row.iter().fold(cross, |m, v| m.max(v.abs()));
        }
    }
    (variance, if largest > 0.0 { cross / largest } else { 0.0 })
}

/// Relative spread of what the family ties together, over all ranks.
fn tying_residual(
    family: VariationalFamily,
    mean: &Entries,
    variance: &Entries,
    rank: usize,
    (d_input, d_output): (usize, usize),
) -> f64 {
    let spread = |tied: &mut dyn Iterator<Item = f64>| {
        let (low, high) =
            tied.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high > 0.0 && low.is_finite() { (high - low) / high } else { 0.0 }
    };
    let residual = |k: usize| {
        let (a, b) = (k * d_input..(k + 1) * d_input, k * d_output..(k + 1) * d_output);
        let (a_var, b_var) = (&variance.a[a.clone()], &variance.b[b.clone()]);
        match family {
            VariationalFamily::ElementVariance => 0.0,
            VariationalFamily::RankVariance => spread(&mut a_var.iter().chain(b_var).copied()),
            VariationalFamily::AsymRankVariance => spread(&mut a_var.iter().copied()),
            VariationalFamily::NoiseToSignal => {
                let means = mean.a[a].iter().chain(&mean.b[b]);
                let ratios = a_var.iter().chain(b_var).zip(means).map(|(v, m)| v / (m * m));
                // 0/0: neither signal nor noise, compatible with any ratio.
                spread(&mut ratios.filter(|ratio| !ratio.is_nan()))
            }
        }
    };
    (0..rank).map(residual).fold(0.0, f64::max)
}
