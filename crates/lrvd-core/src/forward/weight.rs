//! Forward pass that draws the weights themselves.

use super::ForwardGradient;
use crate::error::{ShapeError, check_length};
use crate::moments::count_tokens;
use crate::numeric::dense::{hadamard, times, times_transposed, transposed_times};
use crate::posterior::{Entries, Posterior};

/// The standard-normal draws of one weight sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightNoise<'a> {
    /// For A, `[rank, d_input]`.
    pub a: &'a [f64],
    /// For B, `[rank, d_output]`; not read where B is not random.
    pub b: &'a [f64],
}

/// One draw of both factors.
///
/// # Formula
///
/// ```text
/// A = a_mean + scale_A ∘ noise.a,   B alike;   scale as in Posterior::noise_scale
/// ```
///
/// # Errors
///
/// [`ShapeError::Length`] if the noise is not shaped like the factors.
pub fn sample_weights(
    posterior: &Posterior<'_>,
    noise: WeightNoise<'_>,
) -> Result<Entries, ShapeError> {
    let scale = posterior.noise_scale();
    check_length("noise.a", noise.a.len(), scale.a.len())?;
    let draw = |mean: &[f64], scale: &[f64], noise: &[f64]| -> Vec<f64> {
        mean.iter().zip(scale).zip(noise).map(|((m, s), e)| m + s * e).collect()
    };
    let b_mean = posterior.b_mean().values();
    let b = if posterior.family().has_random_b() {
        check_length("noise.b", noise.b.len(), scale.b.len())?;
        draw(b_mean, &scale.b, noise.b)
    } else {
        b_mean.to_vec()
    };
    Ok(Entries { a: draw(posterior.a_mean().values(), &scale.a, noise.a), b })
}

/// One forward pass with one weight draw, shared by all tokens it is given.
///
/// # Formula
///
/// ```text
/// out = scaling · (x·Aᵀ)·B      with B rank-major
/// ```
///
/// # Invariants
///
/// Exact for all its tokens together: the integrand of the evidence bound.
#[derive(Debug, Clone)]
pub struct WeightPass<'a> {
    posterior: Posterior<'a>,
    x: &'a [f64],
    noise: WeightNoise<'a>,
    scaling: f64,
    weights: Entries,
    rank_activation: Vec<f64>,
    output: Vec<f64>,
}

impl<'a> WeightPass<'a> {
    /// Runs the pass for `x [tokens, d_input]`.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `x` is not whole rows of `d_input` values or the noise does not fit.
    pub fn new(
        posterior: Posterior<'a>,
        x: &'a [f64],
        noise: WeightNoise<'a>,
        scaling: f64,
    ) -> Result<Self, ShapeError> {
        let n = count_tokens(&posterior, x)?;
        let (rank, d_in, d_out) = (posterior.rank(), posterior.d_input(), posterior.d_output());
        let weights = sample_weights(&posterior, noise)?;
        let rank_activation = times_transposed(x, &weights.a, n, d_in, rank);
        let mut output = times(&rank_activation, &weights.b, n, rank, d_out);
        for value in &mut output {
            *value *= scaling;
        }
        Ok(Self { posterior, x, noise, scaling, weights, rank_activation, output })
    }

    /// The adapter's output, `[tokens, d_output]`.
    pub fn output(&self) -> &[f64] {
        &self.output
    }

    /// The drawn factors.
    pub fn weights(&self) -> &Entries {
        &self.weights
    }

    /// The gradient of a loss whose gradient with respect to the output is `grad_output`.
    ///
    /// # Formula
    ///
    /// ```text
    /// G = scaling · grad_output,   dS = G·Bᵀ,   dA = dSᵀ·x,   dB = Sᵀ·G,   dx = dS·A
    /// dmean = dA (+ dA ∘ √α·noise, multiplicative)
    /// dℓ[k] = Σ ½·scale ∘ noise ∘ dA + the same for B      (0 outside the clamp)
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
        let g: Vec<f64> = grad_output.iter().map(|v| self.scaling * v).collect();
        let d_s = times_transposed(&g, &self.weights.b, n, d_out, rank);
        let d_a = transposed_times(&d_s, self.x, n, rank, d_in);
        let d_b = transposed_times(&self.rank_activation, &g, n, rank, d_out);
        let d_x = times(&d_s, &self.weights.a, n, rank, d_in);

        let by_scale = Entries {
            a: hadamard(&d_a, self.noise.a),
            b: if self.posterior.family().has_random_b() {
                hadamard(&d_b, self.noise.b)
            } else {
                vec![0.0; d_b.len()]
            },
        };
        let mut posterior = self.posterior.zero_gradient();
        posterior.a_mean = d_a;
        posterior.b_mean = d_b;
        self.posterior.pull_back_noise_scale(&by_scale, &mut posterior);
        Ok(ForwardGradient { x: d_x, posterior })
    }
}
