//! A Kronecker-factored precision whose factors are both diagonal.

use crate::error::{Error, check_length};
use crate::numeric::dense::{times, times_transposed};
use crate::numeric::{compensated_sum, symmetric_eigen};

/// A block `S ⊗ A + δ·I` with both factors diagonalised, for any `δ`.
///
/// # Formula
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
