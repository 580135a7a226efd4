//! One draw of weight noise for many tokens without correlating them.

use super::shape::{check_signs, count_rows, scaled};
use super::std_map::StdMap;
use crate::error::{Error, ShapeError, check_length};
use crate::factor::FactorView;
use crate::numeric::dense::{hadamard, times, times_transposed, transposed_times};

/// An adapter whose A is random entry by entry and whose B is not.
///
/// # Shapes
///
/// | Name      | Shape                          | Unit       |
/// |-----------|--------------------------------|------------|
/// | `a_mean`  | `[rank, d_input]`              | weight     |
/// | `a_rho`   | `[rank, d_input]`, row-major   | as the map |
/// | `b`       | `[rank, d_output]`, rank-major | weight     |
/// | `scaling` | scalar                         | ratio      |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlipoutAdapter<'a> {
    a_mean: FactorView<'a>,
    a_rho: &'a [f64],
    map: StdMap,
    b: FactorView<'a>,
    scaling: f64,
}

impl<'a> FlipoutAdapter<'a> {
    /// Puts the adapter together.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if there is not one `a_rho` per entry of A or the ranks differ.
    pub fn new(
        a_mean: FactorView<'a>,
        a_rho: &'a [f64],
        map: StdMap,
        b: FactorView<'a>,
        scaling: f64,
    ) -> Result<Self, ShapeError> {
        check_length("a_rho", a_rho.len(), a_mean.values().len())?;
        check_length("rows of b", b.rank(), a_mean.rank())?;
        Ok(Self { a_mean, a_rho, map, b, scaling })
    }

    /// The means of A, `[rank, d_input]`.
    pub fn a_mean(&self) -> FactorView<'a> {
        self.a_mean
    }

    /// The parameters of A's standard deviations, `[rank, d_input]`.
    pub fn a_rho(&self) -> &'a [f64] {
        self.a_rho
    }

    /// The up-projection, `[rank, d_output]`.
    pub fn b(&self) -> FactorView<'a> {
        self.b
    }

    /// The standard deviations of A, `[rank, d_input]`.
    pub fn a_std_dev(&self) -> Vec<f64> {
        self.a_rho.iter().map(|&r| self.map.value(r)).collect()
    }
}

/// What a flipout pass draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlipoutNoise<'a> {
    /// One standard-normal draw for A, shared by all tokens, `[rank, d_input]`.
    pub eps: &'a [f64],
    /// Signs of the inputs, 1 or −1, `[tokens, d_input]`.
    pub input_sign: &'a [f64],
    /// Signs of the rank activations, 1 or −1, `[tokens, rank]`.
    pub rank_sign: &'a [f64],
}

/// The gradient of a loss with respect to everything that entered a flipout pass.
#[derive(Debug, Clone, PartialEq)]
pub struct FlipoutGradient {
    /// With respect to the inputs, `[tokens, d_input]`.
    pub x: Vec<f64>,
    /// With respect to the means of A, `[rank, d_input]`.
    pub a_mean: Vec<f64>,
    /// With respect to the parameters of A's standard deviations, `[rank, d_input]`.
    pub a_rho: Vec<f64>,
    /// With respect to B, `[rank, d_output]`.
    pub b: Vec<f64>,
}

/// One forward pass with flipout noise on A.
///
/// # Formula
///
/// For token `n` with inputs `x_n`, signs `p_n` (inputs) and `s_n` (ranks):
///
/// ```text
/// h_n   = a_mean·x_n + ((sigma ∘ eps)·(x_n ∘ p_n)) ∘ s_n        [rank]
/// out_n = scaling · Bᵀ·h_n                                      B rank-major
/// ```
///
/// # Invariants
///
/// All signs 1: the draw `a_mean + sigma ∘ eps` of the weights. For one token the law over `eps` is
/// that of weight sampling whatever the signs; averaged over the signs, the noise of two tokens is
/// uncorrelated, and that of one token has mean 0 for every `eps`.
///
/// # References
///
/// Wen et al. 2018, arXiv:1803.04386; on A alone: Wang et al. 2024, BLoB, arXiv:2406.11675.
#[derive(Debug, Clone)]
pub struct FlipoutPass<'a> {
    adapter: FlipoutAdapter<'a>,
    x: &'a [f64],
    noise: FlipoutNoise<'a>,
    tokens: usize,
    /// `sigma ∘ eps`, `[rank, d_input]`.
    a_noise: Vec<f64>,
    /// `x ∘ input_sign`, `[tokens, d_input]`.
    signed_x: Vec<f64>,
    rank_activation: Vec<f64>,
    output: Vec<f64>,
}

impl<'a> FlipoutPass<'a> {
    /// Runs the pass for `x [tokens, d_input]`.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `x` is not whole rows of `d_input` values or the noise does not fit;
    /// [`ParameterError::NotASign`](crate::ParameterError::NotASign) for a sign that is neither 1
    /// nor −1.
    pub fn new(
        adapter: FlipoutAdapter<'a>,
        x: &'a [f64],
        noise: FlipoutNoise<'a>,
    ) -> Result<Self, Error> {
        let (rank, d_in, d_out) =
            (adapter.a_mean.rank(), adapter.a_mean.width(), adapter.b.width());
        let tokens = count_rows("x", x, d_in)?;
        check_length("noise.eps", noise.eps.len(), rank * d_in)?;
        check_length("noise.input_sign", noise.input_sign.len(), tokens * d_in)?;
        check_length("noise.rank_sign", noise.rank_sign.len(), tokens * rank)?;
        check_signs("noise.input_sign", noise.input_sign)?;
        check_signs("noise.rank_sign", noise.rank_sign)?;

        let a_noise = hadamard(&adapter.a_std_dev(), noise.eps);
        let signed_x = hadamard(x, noise.input_sign);
        let mean = times_transposed(x, adapter.a_mean.values(), tokens, d_in, rank);
        let drawn = times_transposed(&signed_x, &a_noise, tokens, d_in, rank);
        let rank_activation: Vec<f64> = mean
            .iter()
            .zip(hadamard(&drawn, noise.rank_sign))
            .map(|(mean, noise)| mean + noise)
            .collect();
        let output = times(&rank_activation, adapter.b.values(), tokens, rank, d_out);
        let output = scaled(&output, adapter.scaling);
        Ok(Self { adapter, x, noise, tokens, a_noise, signed_x, rank_activation, output })
    }

    /// The adapter's output, `[tokens, d_output]`.
    pub fn output(&self) -> &[f64] {
        &self.output
    }

    /// What B is applied to, `[tokens, rank]`.
    pub fn rank_activation(&self) -> &[f64] {
        &self.rank_activation
    }

    /// The gradient of a loss whose gradient with respect to the output is `grad_output`.
    ///
    /// # Formula
    ///
    /// ```text
    /// G = scaling · grad_output,   dH = G·Bᵀ,   dB = Hᵀ·G,   dN = dH ∘ rank_sign
    /// da_mean = dHᵀ·x
    /// da_rho  = (dNᵀ·(x ∘ input_sign)) ∘ eps ∘ sigma'(rho)
    /// dx      = dH·a_mean + (dN·(sigma ∘ eps)) ∘ input_sign
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if `grad_output` is not shaped like the output.
    pub fn backward(&self, grad_output: &[f64]) -> Result<FlipoutGradient, ShapeError> {
        check_length("grad_output", grad_output.len(), self.output.len())?;
        let FlipoutAdapter { a_mean, a_rho, map, b, scaling } = self.adapter;
        let (n, rank, d_in, d_out) = (self.tokens, a_mean.rank(), a_mean.width(), b.width());
        let g = scaled(grad_output, scaling);
        let d_h = times_transposed(&g, b.values(), n, d_out, rank);
        let d_noise = hadamard(&d_h, self.noise.rank_sign);
        let by_std_dev =
            hadamard(&transposed_times(&d_noise, &self.signed_x, n, rank, d_in), self.noise.eps);
        let through_noise =
            hadamard(&times(&d_noise, &self.a_noise, n, rank, d_in), self.noise.input_sign);
        let through_mean = times(&d_h, a_mean.values(), n, rank, d_in);
        Ok(FlipoutGradient {
            x: through_mean.iter().zip(&through_noise).map(|(m, s)| m + s).collect(),
            a_mean: transposed_times(&d_h, self.x, n, rank, d_in),
            a_rho: by_std_dev.iter().zip(a_rho).map(|(g, &r)| g * map.derivative(r)).collect(),
            b: transposed_times(&self.rank_activation, &g, n, rank, d_out),
        })
    }
}
