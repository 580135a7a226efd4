//! The inverse of a block whose wide factor has only a few columns.

use super::wide::WideFactor;
use crate::error::{Error, check_length};
use crate::numeric::dense::{dot, times, times_transposed, transpose};
use crate::numeric::{compensated_sum, symmetric_eigen};

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
/// # Formula
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
/// # References
///
/// Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Woodbury 1950.
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
