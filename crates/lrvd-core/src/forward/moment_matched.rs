//! Forward pass in which every output gets independent noise of the right mean and variance.

use super::ForwardGradient;
use crate::error::{ShapeError, check_length};
use crate::family::EPS_VARIANCE;
use crate::moments::{CrossTerm, Moments, count_tokens, effective_b_square, moments};
use crate::numeric::dense::{hadamard, squared, times, times_transposed, transposed_times};
use crate::posterior::{Entries, Posterior};

/// One forward pass with moment-matched activation noise (the published "local
/// reparameterisation").
///
/// # Formula
///
/// ```text
/// out[n,o] = scaling · (m_y[n,o] + eps[n,o] · sqrt(v_y[n,o] + EPS_VARIANCE))
/// ```
///
/// # Invariants
///
/// Right mean and variance of every output; drops the covariance between outputs and between
/// tokens, and the heavy tails of a product of Gaussians.
///
/// # References
///
/// Kingma et al. 2015, arXiv:1506.02557; Doyle et al., arXiv:2506.22809.
#[derive(Debug, Clone)]
pub struct MomentMatchedPass<'a> {
    posterior: Posterior<'a>,
    x: &'a [f64],
    eps: &'a [f64],
    scaling: f64,
    cross: CrossTerm,
    moments: Moments,
    output: Vec<f64>,
}

impl<'a> MomentMatchedPass<'a> {
    /// Runs the pass.
    ///
    /// # Shapes
    ///
    /// | Name  | Shape                | Unit            |
    /// |-------|----------------------|-----------------|
    /// | `x`   | `[tokens, d_input]`  | activation      |
    /// | `eps` | `[tokens, d_output]` | standard normal |
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `x` is not whole rows of `d_input` values or `eps` does not fit.
    pub fn new(
        posterior: Posterior<'a>,
        x: &'a [f64],
        eps: &'a [f64],
        scaling: f64,
        cross: CrossTerm,
    ) -> Result<Self, ShapeError> {
        let moments = moments(&posterior, x, cross)?;
        check_length("eps", eps.len(), moments.mean.len())?;
        let output = if posterior.rank() == 0 {
            vec![0.0; eps.len()]
        } else {
            let of =
                |((m, v), e): ((&f64, &f64), &f64)| scaling * (m + e * (v + EPS_VARIANCE).sqrt());
            moments.mean.iter().zip(&moments.variance).zip(eps).map(of).collect()
        };
        Ok(Self { posterior, x, eps, scaling, cross, moments, output })
    }

    /// The adapter's output, `[tokens, d_output]`.
    pub fn output(&self) -> &[f64] {
        &self.output
    }

    /// The moments the noise was matched to.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The gradient of a loss whose gradient with respect to the output is `grad_output`.
    ///
    /// # Formula
    ///
    /// ```text
    /// G = scaling · grad_output,   Γ = G ∘ eps / (2·sqrt(v_y + EPS_VARIANCE)),   M = b_mean² + κ·Var B
    /// dv_s = Γ·Mᵀ                       dm_s = G·b_meanᵀ + 2 m_s ∘ (Γ·Var Bᵀ)
    /// db   = m_sᵀ·G + 2 b_mean ∘ (v_sᵀ·Γ)     dVar B = (m_s²)ᵀ·Γ + κ·v_sᵀ·Γ
    /// da   = dm_sᵀ·x                    dVar A = dv_sᵀ·x²
    /// dx   = dm_s·a_mean + 2 x ∘ (dv_s·Var A)
    /// ```
    ///
    /// followed by the family's own pull-back of `dVar A` and `dVar B`.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if `grad_output` is not shaped like the output.
    pub fn backward(&self, grad_output: &[f64]) -> Result<ForwardGradient, ShapeError> {
        check_length("grad_output", grad_output.len(), self.output.len())?;
        let mut posterior = self.posterior.zero_gradient();
        let (rank, d_in, d_out) =
            (self.posterior.rank(), self.posterior.d_input(), self.posterior.d_output());
        if rank == 0 {
            return Ok(ForwardGradient { x: vec![0.0; self.x.len()], posterior });
        }
        let n = count_tokens(&self.posterior, self.x)?;
        let variance = self.posterior.variance();
        let (a_mean, b_mean) = (self.posterior.a_mean().values(), self.posterior.b_mean().values());
        let (m_s, v_s) = (&self.moments.rank_mean, &self.moments.rank_variance);

        let g: Vec<f64> = grad_output.iter().map(|v| self.scaling * v).collect();
        let gamma: Vec<f64> = g
            .iter()
            .zip(self.eps)
            .zip(&self.moments.variance)
            .map(|((g, e), v)| g * e / (2.0 * (v + EPS_VARIANCE).sqrt()))
            .collect();

        let effective = effective_b_square(b_mean, &variance.b, self.cross);
        let d_v_s = times_transposed(&gamma, &effective, n, d_out, rank);
        let mut d_m_s = times_transposed(&g, b_mean, n, d_out, rank);
        let through_b = times_transposed(&gamma, &variance.b, n, d_out, rank);
        add_twice_product(&mut d_m_s, m_s, &through_b);

        let v_s_gamma = transposed_times(v_s, &gamma, n, rank, d_out);
        posterior.b_mean = transposed_times(m_s, &g, n, rank, d_out);
        add_twice_product(&mut posterior.b_mean, b_mean, &v_s_gamma);
        let mut d_var_b = transposed_times(&squared(m_s), &gamma, n, rank, d_out);
        for (d, v) in d_var_b.iter_mut().zip(&v_s_gamma) {
            *d += self.cross.weight() * v;
        }

        posterior.a_mean = transposed_times(&d_m_s, self.x, n, rank, d_in);
        let d_var_a = transposed_times(&d_v_s, &squared(self.x), n, rank, d_in);
        let mut d_x = times(&d_m_s, a_mean, n, rank, d_in);
        add_twice_product(&mut d_x, self.x, &times(&d_v_s, &variance.a, n, rank, d_in));

        let by_variance = Entries { a: d_var_a, b: d_var_b };
        self.posterior.pull_back_variance(&by_variance, &mut posterior);
        Ok(ForwardGradient { x: d_x, posterior })
    }
}

/// `into += 2 · x ∘ y`.
pub(super) fn add_twice_product(into: &mut [f64], x: &[f64], y: &[f64]) {
    for (i, product) in into.iter_mut().zip(hadamard(x, y)) {
        *i += 2.0 * product;
    }
}
