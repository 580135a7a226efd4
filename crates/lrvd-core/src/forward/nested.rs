//! Forward pass that draws the rank activations first and the outputs given them.

use super::ForwardGradient;
use super::moment_matched::add_twice_product;
use crate::error::{ShapeError, check_length};
use crate::family::EPS_VARIANCE;
use crate::moments::count_tokens;
use crate::numeric::dense::{squared, times, times_transposed, transposed_times};
use crate::posterior::{Entries, Posterior};

/// The two sets of standard-normal draws of a nested pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NestedNoise<'a> {
    /// For the rank activations, `[tokens, rank]`.
    pub rank: &'a [f64],
    /// For the outputs, `[tokens, d_output]`; not read where B is not random.
    pub output: &'a [f64],
}

/// One forward pass with nested activation noise.
///
/// # Formula
///
/// ```text
/// s[n,k]   = m_s[n,k] + noise.rank[n,k] · sqrt(v_s[n,k] + EPS_VARIANCE)
/// ρ[n,o]   = Σ_k s[n,k]²·Var B[k,o]
/// out[n,o] = scaling · (Σ_k s[n,k]·b_mean[k,o] + noise.output[n,o] · sqrt(ρ[n,o] + EPS_VARIANCE))
/// ```
///
/// Where B is not random the last term is absent, so that no noise enters that the posterior does
/// not have.
///
/// # Invariants
///
/// Up to `EPS_VARIANCE`, the exact law of one token's outputs, covariances and tails included.
/// Tokens are independent, which they are not under one weight draw.
///
/// # References
///
/// Derived; the inner step is Kingma et al. 2015, arXiv:1506.02557, in rank space.
#[derive(Debug, Clone)]
pub struct NestedPass<'a> {
    posterior: Posterior<'a>,
    x: &'a [f64],
    noise: NestedNoise<'a>,
    scaling: f64,
    rank_variance: Vec<f64>,
    rank_sample: Vec<f64>,
    conditional_variance: Vec<f64>,
    output: Vec<f64>,
}

impl<'a> NestedPass<'a> {
    /// Runs the pass for `x [tokens, d_input]`.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `x` is not whole rows of `d_input` values or the noise does not fit.
    pub fn new(
        posterior: Posterior<'a>,
        x: &'a [f64],
        noise: NestedNoise<'a>,
        scaling: f64,
    ) -> Result<Self, ShapeError> {
        let n = count_tokens(&posterior, x)?;
        let (rank, d_in, d_out) = (posterior.rank(), posterior.d_input(), posterior.d_output());
        check_length("noise.rank", noise.rank.len(), n * rank)?;
        if posterior.family().has_random_b() {
            check_length("noise.output", noise.output.len(), n * d_out)?;
        }
        let variance = posterior.variance();
        let rank_variance = times_transposed(&squared(x), &variance.a, n, d_in, rank);
        let mut rank_sample = times_transposed(x, posterior.a_mean().values(), n, d_in, rank);
        for ((s, v), e) in rank_sample.iter_mut().zip(&rank_variance).zip(noise.rank) {
            *s += e * (v + EPS_VARIANCE).sqrt();
        }
        let conditional_variance = times(&squared(&rank_sample), &variance.b, n, rank, d_out);
        let mut output = times(&rank_sample, posterior.b_mean().values(), n, rank, d_out);
        if rank > 0 && posterior.family().has_random_b() {
            for ((o, v), e) in output.iter_mut().zip(&conditional_variance).zip(noise.output) {
                *o += e * (v + EPS_VARIANCE).sqrt();
            }
        }
        for value in &mut output {
            *value *= scaling;
        }
        Ok(Self {
            posterior,
            x,
            noise,
            scaling,
            rank_variance,
            rank_sample,
            conditional_variance,
            output,
        })
    }

    /// The adapter's output, `[tokens, d_output]`.
    pub fn output(&self) -> &[f64] {
        &self.output
    }

    /// The drawn rank activations, `[tokens, rank]`.
    pub fn rank_sample(&self) -> &[f64] {
        &self.rank_sample
    }

    /// The gradient of a loss whose gradient with respect to the output is `grad_output`.
    ///
    /// # Formula
    ///
    /// ```text
    /// G = scaling · grad_output
    /// dρ   = G ∘ noise.output / (2·sqrt(ρ + EPS_VARIANCE))
    /// ds   = G·b_meanᵀ + 2 s ∘ (dρ·Var Bᵀ)      db = sᵀ·G       dVar B = (s²)ᵀ·dρ
    /// dv_s = ds ∘ noise.rank / (2·sqrt(v_s + EPS_VARIANCE))
    /// da   = dsᵀ·x                              dVar A = dv_sᵀ·x²
    /// dx   = ds·a_mean + 2 x ∘ (dv_s·Var A)
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if `grad_output` is not shaped like the output.
    pub fn backward(&self, grad_output: &[f64]) -> Result<ForwardGradient, ShapeError> {
        check_length("grad_output", grad_output.len(), self.output.len())?;
        let n = count_tokens(&self.posterior, self.x)?;
        let (rank, d_in, d_out) =
            (self.posterior.rank(), self.posterior.d_input(), self.posterior.d_output());
        let variance = self.posterior.variance();
        let s = &self.rank_sample;
        let mut posterior = self.posterior.zero_gradient();

        let g: Vec<f64> = grad_output.iter().map(|v| self.scaling * v).collect();
        let d_rho: Vec<f64> = if self.posterior.family().has_random_b() {
            g.iter()
                .zip(self.noise.output)
                .zip(&self.conditional_variance)
                .map(|((g, e), v)| g * e / (2.0 * (v + EPS_VARIANCE).sqrt()))
                .collect()
        } else {
            vec![0.0; g.len()]
        };
        let mut d_s = times_transposed(&g, self.posterior.b_mean().values(), n, d_out, rank);
        add_twice_product(&mut d_s, s, &times_transposed(&d_rho, &variance.b, n, d_out, rank));
        posterior.b_mean = transposed_times(s, &g, n, rank, d_out);
        let d_var_b = transposed_times(&squared(s), &d_rho, n, rank, d_out);

        let d_v_s: Vec<f64> = d_s
            .iter()
            .zip(self.noise.rank)
            .zip(&self.rank_variance)
            .map(|((d, e), v)| d * e / (2.0 * (v + EPS_VARIANCE).sqrt()))
            .collect();
        posterior.a_mean = transposed_times(&d_s, self.x, n, rank, d_in);
        let d_var_a = transposed_times(&d_v_s, &squared(self.x), n, rank, d_in);
        let mut d_x = times(&d_s, self.posterior.a_mean().values(), n, rank, d_in);
        add_twice_product(&mut d_x, self.x, &times(&d_v_s, &variance.a, n, rank, d_in));

        let by_variance = Entries { a: d_var_a, b: d_var_b };
        self.posterior.pull_back_variance(&by_variance, &mut posterior);
        Ok(ForwardGradient { x: d_x, posterior })
    }
}
