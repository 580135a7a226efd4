//! Curvature of one LoRA matrix: a Kronecker product, with a factor of few columns on the wide side.

use crate::error::{Error, above, check_length, check_range, row_count};
use crate::linalg::{dot, scaled, svd, symmetric_eigen, times, times_transposed, transpose};
use crate::special::compensated_sum;

/// The curvature of one LoRA matrix `W [d_output, d_input]`, diagonalised; the precision is `curvature + δ·I`, for any `δ`.
///
/// Eigenvalues that rounding made negative count as 0.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvatureBlock {
    n_parameters: usize,
    /// Eigenvalues that may not be 0.
    curvature: Vec<f64>,
    form: Form,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    /// Eigenvectors of both factors, as rows.
    Full { output: Vec<f64>, input: Vec<f64>, d_output: usize, d_input: usize },
    /// `Qᵀ [k, width]` and `Lᵀ [small, small]`.
    LowRank { side: WideSide, columns: Vec<f64>, root: Vec<f64>, width: usize, small: usize },
}

/// Side of `W [d_output, d_input]` that the wide factor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WideSide {
    /// The inputs: LoRA's `A [rank, d_input]`.
    Input,
    /// The outputs: LoRA's `B [d_output, rank]`.
    Output,
}

impl CurvatureBlock {
    /// A block `S ⊗ A` of its factors `S [d_output, d_output]` and `A [d_input, d_input]`.
    ///
    /// With `S = Q_Sᵀ diag(λ_S) Q_S`, `A = Q_Aᵀ diag(λ_A) Q_A` (eigenvectors as rows) and gradients `G [d_output, d_input]`:
    ///
    /// ```text
    /// ln det P       = Σ_pq ln(λ_S[p]·λ_A[q] + δ)
    /// ⟨G, P⁻¹ G'⟩    = Σ_pq (Q_S G Q_Aᵀ)[p,q]·(Q_S G' Q_Aᵀ)[p,q] / (λ_S[p]·λ_A[q] + δ)
    /// ```
    pub fn full(
        output_factor: &[f64],
        d_output: usize,
        input_factor: &[f64],
        d_input: usize,
    ) -> Result<Self, Error> {
        check_length("output_factor", output_factor.len(), d_output * d_output)?;
        check_length("input_factor", input_factor.len(), d_input * d_input)?;
        let output = symmetric_eigen(output_factor, d_output);
        let input = symmetric_eigen(input_factor, d_input);
        let curvature = output.values.iter();
        let curvature = curvature
            .flat_map(|s| input.values.iter().map(move |a| s.max(0.0) * a.max(0.0)))
            .collect();
        let (output, input) = (output.vectors, input.vectors);
        let form = Form::Full { output, input, d_output, d_input };
        Ok(Self { n_parameters: d_output * d_input, curvature, form })
    }

    /// A block whose factor on one side is `Q·Qᵀ` with few columns, with the other factor, `[small, small]`.
    ///
    /// With the wide factor `Q·Qᵀ` (`[d, d]`), the small one `L·Lᵀ` (`[r, r]`), `s² = 1/δ`, the gradient `G [d, r]` (wide side
    /// first) and `K = I + s²·(QᵀQ) ⊗ (LᵀL)`:
    ///
    /// ```text
    /// ln det P    = ln det K − d·r·ln s²
    /// ⟨G, P⁻¹ G'⟩ = s²·⟨G, G'⟩ − s⁴·vec(QᵀGL)ᵀ K⁻¹ vec(QᵀG'L)
    /// ```
    ///
    /// Any root `L` will do. The one used is that of the eigen-decomposition, which makes `K` diagonal (the columns of `Q` are
    /// orthogonal by construction) and exists for singular factors, where Cholesky's does not.
    ///
    /// Source: Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Woodbury 1950.
    pub fn low_rank(
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
        let width = wide.width;
        let columns = wide.columns.clone();
        let curvature = (0..wide.rank())
            .map(|k| &columns[k * width..(k + 1) * width])
            .flat_map(|column| {
                let square = dot(column, column);
                values.iter().map(move |v| square * v)
            })
            .collect();
        let form = Form::LowRank { side, columns, root, width, small };
        Ok(Self { n_parameters: width * small, curvature, form })
    }

    /// Entries of the matrix, `P`.
    pub fn n_parameters(&self) -> usize {
        self.n_parameters
    }

    /// Numbers that the two factors take: the entries of a square, or of the columns kept of a wide one.
    pub fn n_factor_entries(&self) -> usize {
        match &self.form {
            Form::Full { output, input, .. } => output.len() + input.len(),
            Form::LowRank { columns, root, .. } => columns.len() + root.len(),
        }
    }

    /// `ln det(curvature + δ·I)`.
    pub fn log_det(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let (curvature, delta) = (self.curvature.iter(), prior_precision);
        Ok(match self.form {
            Form::Full { .. } => compensated_sum(curvature.map(|c| (c + delta).ln())),
            Form::LowRank { .. } => {
                let excess = compensated_sum(curvature.map(|c| (c / delta).ln_1p()));
                excess + self.n_parameters as f64 * delta.ln()
            }
        })
    }

    /// The derivative of [`log_det`](Self::log_det) with respect to `ln δ`: `Σ δ/(λ + δ)`.
    pub fn log_det_slope(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let flat = (self.n_parameters - self.curvature.len()) as f64;
        let share = |c: &f64| prior_precision / (c + prior_precision);
        Ok(flat + compensated_sum(self.curvature.iter().map(share)))
    }

    /// `⟨G_c, (curvature + δ·I)⁻¹ G_c'⟩` for every pair of `gradients [n, d_output, d_input]`, row-major: `[n, n]`.
    pub fn covariance(
        &self,
        gradients: &[f64],
        n: usize,
        prior_precision: f64,
    ) -> Result<Vec<f64>, Error> {
        check_precision(prior_precision)?;
        let len = self.n_parameters;
        let delta = prior_precision;
        check_length("gradients", gradients.len(), n * len)?;
        // Along the eigenvectors, over the root of the precision (full) or of K (low rank).
        let whitened: Vec<f64> = (0..n)
            .map(|row| &gradients[row * len..(row + 1) * len])
            .flat_map(|gradient| {
                let turned = self.form.along(gradient).into_iter().zip(&self.curvature);
                turned
                    .map(|(v, c)| match self.form {
                        Form::Full { .. } => v / (c + delta).sqrt(),
                        Form::LowRank { .. } => v / (1.0 + c / delta).sqrt(),
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let known = times_transposed(&whitened, &whitened, n, self.curvature.len(), n);
        if matches!(self.form, Form::Full { .. }) {
            return Ok(known);
        }
        let plain = times_transposed(gradients, gradients, n, len, n);
        let mut covariance: Vec<f64> =
            plain.iter().zip(known).map(|(p, q)| p / delta - q / (delta * delta)).collect();
        // Both terms of a variance are of size |G|²/δ, and rounding may leave less than nothing of their difference.
        for i in 0..n {
            covariance[i * n + i] = covariance[i * n + i].max(0.0);
        }
        Ok(covariance)
    }
}

impl Form {
    /// `Q_S G Q_Aᵀ`, or `QᵀGL`, in the order of the curvature.
    fn along(&self, gradient: &[f64]) -> Vec<f64> {
        match self {
            Self::Full { output, input, d_output: o, d_input: i } => {
                let half = times(output, gradient, *o, *o, *i);
                times_transposed(&half, input, *o, *i, *i)
            }
            Self::LowRank { side, columns, root, width, small } => {
                let wide_first = match side {
                    WideSide::Output => gradient.to_vec(),
                    WideSide::Input => transpose(gradient, *small, *width),
                };
                let k = columns.len().checked_div(*width).unwrap_or(0);
                let half = times(columns, &wide_first, k, *width, *small);
                times_transposed(&half, root, k, *small, *small)
            }
        }
    }
}

pub(super) fn check_precision(prior_precision: f64) -> Result<(), Error> {
    check_range("prior_precision", prior_precision, above(0.0))
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
        check_range("n_columns", n_columns, 1..)?;
        Ok(Self { width, n_columns, columns: Vec::new() })
    }

    /// Folds a batch of vectors `[b, width]` in, each scaled by `weight` (the root of a probability).
    pub fn add(&mut self, weight: f64, vectors: &[f64]) -> Result<(), Error> {
        row_count("vectors", vectors, self.width)?;
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
        check_range("weight", weight, 0.0..)?;
        Ok(Self { columns: scaled(&self.columns, weight.sqrt()), ..*self })
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
    use crate::linalg::transposed_times;
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
        assert_eq!(factor.rank(), 0);
    }
}
