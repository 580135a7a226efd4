//! One LoRA matrix's share of the posterior precision: both factors in full, or one of them with few columns.

use crate::error::{Error, check_length, check_range, count_rows};
use crate::numeric::dense::{dot, scaled, times, times_transposed, transpose};
use crate::numeric::{compensated_sum, svd, symmetric_eigen};

/// The curvature of one LoRA matrix `W [d_output, d_input]`; the precision is `curvature + δ·I`.
#[derive(Debug, Clone, PartialEq)]
pub enum CurvatureBlock {
    /// Both factors in full.
    Full(KronBlock),
    /// One factor with few columns.
    LowRank(LowRankBlock),
}

impl From<KronBlock> for CurvatureBlock {
    fn from(block: KronBlock) -> Self {
        Self::Full(block)
    }
}

impl From<LowRankBlock> for CurvatureBlock {
    fn from(block: LowRankBlock) -> Self {
        Self::LowRank(block)
    }
}

impl CurvatureBlock {
    /// Entries of the matrix, `P`.
    pub fn n_parameters(&self) -> usize {
        match self {
            Self::Full(block) => block.n_parameters(),
            Self::LowRank(block) => block.n_parameters(),
        }
    }

    /// Numbers that the two factors take: the entries of a square, or of the columns kept of a wide one.
    pub fn n_factor_entries(&self) -> usize {
        match self {
            Self::Full(block) => block.n_factor_entries(),
            Self::LowRank(block) => block.n_factor_entries(),
        }
    }

    /// `ln det(curvature + δ·I)`; formulas at [`KronBlock`] and [`LowRankBlock`].
    ///
    /// # Errors
    ///
    /// `prior_precision` is not positive and finite.
    pub fn log_det(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        Ok(match self {
            Self::Full(block) => block.log_det(prior_precision),
            Self::LowRank(block) => block.log_det(prior_precision),
        })
    }

    /// The derivative of [`log_det`](Self::log_det) with respect to `ln δ`: `Σ δ/(λ + δ)`.
    pub fn log_det_slope(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        Ok(match self {
            Self::Full(block) => block.log_det_slope(prior_precision),
            Self::LowRank(block) => block.log_det_slope(prior_precision),
        })
    }

    /// `⟨G_c, (curvature + δ·I)⁻¹ G_c'⟩` for every pair of `gradients [n, d_output, d_input]`, row-major: `[n, n]`.
    pub fn covariance(
        &self,
        gradients: &[f64],
        n: usize,
        prior_precision: f64,
    ) -> Result<Vec<f64>, Error> {
        check_precision(prior_precision)?;
        check_length("gradients", gradients.len(), n * self.n_parameters())?;
        Ok(match self {
            Self::Full(block) => block.covariance(gradients, n, prior_precision),
            Self::LowRank(block) => block.covariance(gradients, n, prior_precision),
        })
    }
}

pub(super) fn check_precision(prior_precision: f64) -> Result<(), Error> {
    check_range("prior_precision", prior_precision, f64::MIN_POSITIVE, f64::MAX)
}

/// A block `S ⊗ A + δ·I` with both factors diagonalised, for any `δ`.
///
/// With `S = Q_Sᵀ diag(λ_S) Q_S`, `A = Q_Aᵀ diag(λ_A) Q_A` (eigenvectors as rows) and gradients
/// `G [d_output, d_input]`:
///
/// ```text
/// ln det P       = Σ_pq ln(λ_S[p]·λ_A[q] + δ)
/// ⟨G, P⁻¹ G'⟩    = Σ_pq (Q_S G Q_Aᵀ)[p,q]·(Q_S G' Q_Aᵀ)[p,q] / (λ_S[p]·λ_A[q] + δ)
/// ```
///
/// # Numerics
///
/// Eigenvalues that rounding made negative count as 0.
#[derive(Debug, Clone, PartialEq)]
pub struct KronBlock {
    d_output: usize,
    d_input: usize,
    /// `λ_S ⊗ λ_A`, `[d_output, d_input]`.
    curvature: Vec<f64>,
    output_vectors: Vec<f64>,
    input_vectors: Vec<f64>,
}

impl KronBlock {
    /// Diagonalises the factors `S [d_output, d_output]` and `A [d_input, d_input]`.
    pub fn new(
        output_factor: &[f64],
        d_output: usize,
        input_factor: &[f64],
        d_input: usize,
    ) -> Result<Self, Error> {
        check_length("output_factor", output_factor.len(), d_output * d_output)?;
        check_length("input_factor", input_factor.len(), d_input * d_input)?;
        let output = symmetric_eigen(output_factor, d_output);
        let input = symmetric_eigen(input_factor, d_input);
        let curvature = output
            .values
            .iter()
            .flat_map(|s| input.values.iter().map(move |a| s.max(0.0) * a.max(0.0)))
            .collect();
        Ok(Self {
            d_output,
            d_input,
            curvature,
            output_vectors: output.vectors,
            input_vectors: input.vectors,
        })
    }

    /// Entries of the matrix this block is about.
    pub fn n_parameters(&self) -> usize {
        self.d_output * self.d_input
    }

    pub(super) fn n_factor_entries(&self) -> usize {
        self.output_vectors.len() + self.input_vectors.len()
    }

    pub(super) fn log_det(&self, delta: f64) -> f64 {
        compensated_sum(self.curvature.iter().map(|c| (c + delta).ln()))
    }

    pub(super) fn log_det_slope(&self, delta: f64) -> f64 {
        compensated_sum(self.curvature.iter().map(|c| delta / (c + delta)))
    }

    pub(super) fn covariance(&self, gradients: &[f64], n: usize, delta: f64) -> Vec<f64> {
        let (o, i) = (self.d_output, self.d_input);
        let whitened: Vec<f64> = (0..n)
            .flat_map(|row| {
                let gradient = &gradients[row * o * i..(row + 1) * o * i];
                let half = times(&self.output_vectors, gradient, o, o, i);
                let turned = times_transposed(&half, &self.input_vectors, o, i, i);
                turned.into_iter().zip(&self.curvature).map(|(v, c)| v / (c + delta).sqrt())
            })
            .collect();
        times_transposed(&whitened, &whitened, n, o * i, n)
    }
}

/// Which side of `W [d_output, d_input]` the wide factor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WideSide {
    /// The inputs: LoRA's `A [rank, d_input]`.
    Input,
    /// The outputs: LoRA's `B [d_output, rank]`.
    Output,
}

/// A block whose factor on one side is `Q·Qᵀ` with few columns, for any `δ`.
///
/// With the wide factor `Q·Qᵀ` (`[d, d]`), the small one `L·Lᵀ` (`[r, r]`), `s² = 1/δ`, the gradient
/// `G [d, r]` (wide side first) and `K = I + s²·(QᵀQ) ⊗ (LᵀL)`:
///
/// ```text
/// ln det P    = ln det K − d·r·ln s²
/// ⟨G, P⁻¹ G'⟩ = s²·⟨G, G'⟩ − s⁴·vec(QᵀGL)ᵀ K⁻¹ vec(QᵀG'L)
/// ```
///
/// Any root `L` will do. The one used is that of the eigen-decomposition, which makes `K` diagonal (the
/// columns of `Q` are orthogonal by construction) and exists for singular factors, where Cholesky's
/// does not.
///
/// Source: Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Woodbury 1950.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRankBlock {
    side: WideSide,
    width: usize,
    small: usize,
    /// `QᵀQ`'s diagonal times `LᵀL`'s, `[k, small]`.
    curvature: Vec<f64>,
    /// `Qᵀ`, `[k, width]`.
    columns: Vec<f64>,
    /// `Lᵀ`, `[small, small]`.
    root: Vec<f64>,
}

impl LowRankBlock {
    /// A block from its wide factor and the small one, `[small, small]`.
    pub fn new(
        wide: &WideFactor,
        side: WideSide,
        small_factor: &[f64],
        small: usize,
    ) -> Result<Self, Error> {
        check_length("small_factor", small_factor.len(), small * small)?;
        let eigen = symmetric_eigen(small_factor, small);
        let values: Vec<f64> = eigen.values.iter().map(|v| v.max(0.0)).collect();
        let root =
            (0..small * small).map(|at| values[at / small].sqrt() * eigen.vectors[at]).collect();
        let width = wide.width();
        let curvature = (0..wide.rank())
            .map(|k| &wide.columns()[k * width..(k + 1) * width])
            .flat_map(|column| {
                let square = dot(column, column);
                values.iter().map(move |v| square * v)
            })
            .collect();
        Ok(Self { side, width, small, curvature, columns: wide.columns().to_vec(), root })
    }

    /// Entries of the matrix this block is about.
    pub fn n_parameters(&self) -> usize {
        self.width * self.small
    }

    pub(super) fn n_factor_entries(&self) -> usize {
        self.columns.len() + self.root.len()
    }

    pub(super) fn log_det(&self, delta: f64) -> f64 {
        compensated_sum(self.curvature.iter().map(|c| (c / delta).ln_1p()))
            + self.n_parameters() as f64 * delta.ln()
    }

    pub(super) fn log_det_slope(&self, delta: f64) -> f64 {
        let flat = self.n_parameters() - self.curvature.len();
        flat as f64 + compensated_sum(self.curvature.iter().map(|c| delta / (c + delta)))
    }

    pub(super) fn covariance(&self, gradients: &[f64], n: usize, delta: f64) -> Vec<f64> {
        let n_parameters = self.n_parameters();
        let k = self.curvature.len().checked_div(self.small).unwrap_or(0);
        let gradient = |row: usize| &gradients[row * n_parameters..(row + 1) * n_parameters];
        // vec(QᵀGL)·√(K⁻¹) of every gradient.
        let projected: Vec<f64> = (0..n)
            .flat_map(|row| {
                let wide_first = match self.side {
                    WideSide::Output => gradient(row).to_vec(),
                    WideSide::Input => transpose(gradient(row), self.small, self.width),
                };
                let half = times(&self.columns, &wide_first, k, self.width, self.small);
                let turned = times_transposed(&half, &self.root, k, self.small, self.small);
                turned.into_iter().zip(&self.curvature).map(|(v, c)| v / (1.0 + c / delta).sqrt())
            })
            .collect();
        let known = times_transposed(&projected, &projected, n, self.curvature.len(), n);
        let plain = times_transposed(gradients, gradients, n, n_parameters, n);
        let mut covariance: Vec<f64> =
            plain.iter().zip(known).map(|(p, q)| p / delta - q / (delta * delta)).collect();
        // Both terms of a variance are of size |G|²/δ, and rounding may leave less than nothing of their difference.
        for i in 0..n {
            covariance[i * n + i] = covariance[i * n + i].max(0.0);
        }
        covariance
    }
}

/// Columns kept of a wide factor.
pub const LOW_RANK: usize = 10;
/// Width from which on a factor is kept in this form.
pub const LOW_RANK_FROM: usize = 100;

/// A running approximation `Q·Qᵀ` of `Σ a·aᵀ` with few columns.
///
/// ```text
/// [Q, a_1, …, a_b] = U diag(S) Vᵀ,     Q ← U[:, ..n]·diag(S[..n])
/// ```
///
/// Columns are kept as rows: `columns` is `Qᵀ`, `[k, width]` with `k ≤ n_columns`.
///
/// # Numerics
///
/// In `f64`, by one-sided Jacobi. Exact as long as the vectors span no more than `n_columns` dimensions; after
/// that every update loses the smallest directions, so the approximation is from below and depends on
/// how the vectors were batched.
#[derive(Debug, Clone, PartialEq)]
pub struct WideFactor {
    width: usize,
    n_columns: usize,
    columns: Vec<f64>,
}

impl WideFactor {
    /// Nothing gathered yet, with at most `n_columns` columns ([`LOW_RANK`] in the published code).
    pub fn new(width: usize, n_columns: usize) -> Result<Self, Error> {
        check_range("n_columns", n_columns as f64, 1.0, f64::MAX)?;
        Ok(Self { width, n_columns, columns: Vec::new() })
    }

    /// Folds a batch of vectors `[b, width]` in, each scaled by `weight` (the root of a probability).
    pub fn add(&mut self, weight: f64, vectors: &[f64]) -> Result<(), Error> {
        count_rows("vectors", vectors, self.width)?;
        self.columns.extend(vectors.iter().map(|v| weight * v));
        let rows = self.columns.len().checked_div(self.width).unwrap_or(0);
        let parts = svd(&self.columns, rows, self.width);
        let kept = parts.values.iter().take(self.n_columns).take_while(|&&s| s > 0.0);
        self.columns = kept
            .zip(parts.right.chunks(self.width.max(1)))
            .flat_map(|(&s, direction)| scaled(direction, s))
            .collect();
        Ok(())
    }

    /// The factor times `weight`, `Q·Qᵀ ← weight·Q·Qᵀ`: the data's scale, applied once at the end.
    #[must_use = "the scaled factor is returned"]
    pub fn scaled_by(&self, weight: f64) -> Result<Self, Error> {
        check_range("weight", weight, 0.0, f64::MAX)?;
        Ok(Self { columns: scaled(&self.columns, weight.sqrt()), ..*self })
    }

    /// The width of the factor.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of columns in use.
    pub fn rank(&self) -> usize {
        self.columns.len().checked_div(self.width).unwrap_or(0)
    }

    /// `Qᵀ`, `[rank, width]`: orthogonal rows, longest first.
    pub fn columns(&self) -> &[f64] {
        &self.columns
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numeric::dense::{times_transposed, transposed_times};
    use crate::testing::assert_near;

    /// Six vectors of width 5 within three dimensions.
    fn vectors() -> Vec<f64> {
        let basis = [1.0, 0.5, -2.0, 0.0, 0.25, 0.0, 1.5, 1.0, -1.0, 0.5, 2.0, 0.0, 0.5, 0.5, -0.5];
        (0..6)
            .flat_map(|n| {
                let at = move |k: usize| ((7 * n * n + 3 * k) as f64).sin();
                (0..5).map(move |j| (0..3).map(|k| at(k) * basis[5 * k + j]).sum())
            })
            .collect()
    }

    fn gram(factor: &WideFactor) -> Vec<f64> {
        transposed_times(factor.columns(), factor.columns(), factor.rank(), 5, 5)
    }

    #[test]
    fn updates_are_exact_within_the_rank_however_they_are_batched() {
        let all = vectors();
        let expected = transposed_times(&all, &all, 6, 5, 5);
        for batch in [1, 2, 4, 6] {
            let mut factor = WideFactor::new(5, 3).unwrap();
            for part in all.chunks(batch * 5) {
                factor.add(1.0, part).unwrap();
            }
            assert_eq!(factor.rank(), 3);
            assert_near(&gram(&factor), &expected, 1e-12);
            let products = times_transposed(factor.columns(), factor.columns(), 3, 5, 3);
            assert!(products[1].abs() < 1e-12 && products[0] > products[4]);
        }
    }

    #[test]
    fn beyond_the_rank_the_trace_can_only_fall() {
        let all = vectors();
        let trace = |g: &[f64]| (0..5).map(|i| g[6 * i]).sum::<f64>();
        let whole = trace(&transposed_times(&all, &all, 6, 5, 5));
        let mut factor = WideFactor::new(5, 2).unwrap();
        factor.add(1.0, &all).unwrap();
        let best = trace(&gram(&factor));
        assert!(best < whole);
        let mut stepwise = WideFactor::new(5, 2).unwrap();
        for part in all.chunks(5) {
            stepwise.add(1.0, part).unwrap();
        }
        assert!(trace(&gram(&stepwise)) <= best * (1.0 + 1e-12));
    }

    #[test]
    fn weights_scale_the_square() {
        let mut factor = WideFactor::new(2, 1).unwrap();
        factor.add(0.5, &[3.0, 4.0]).unwrap();
        // 0.25·(9, 12; 12, 16), then times 4.
        let factor = factor.scaled_by(4.0).unwrap();
        let found = transposed_times(factor.columns(), factor.columns(), 1, 2, 2);
        assert_near(&found, &[9.0, 12.0, 12.0, 16.0], 1e-14);
        assert!(factor.scaled_by(-1.0).is_err());
        assert!(WideFactor::new(2, 0).is_err());
        let mut factor = WideFactor::new(2, 1).unwrap();
        assert!(factor.add(1.0, &[1.0; 3]).is_err());
        factor.add(1.0, &[0.0; 2]).unwrap();
        assert_eq!((factor.rank(), factor.width()), (0, 2));
    }
}
