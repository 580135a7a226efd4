//! An adapter whose uncertainty depends on its input.
//!
//! Between the two factors stands an `r x r` Gaussian matrix whose mean and standard deviations a
//! small network reads off the down-projected token:
//!
//! ```text
//! z = A·x                                                         [rank]
//! o = w2·relu(w1·z + b1) + b2                                     [2·rank²]
//! mean = o[..rank²],   std_dev = logistic(o[rank²..])²            both [rank, rank], row-major
//! E = mean + std_dev ∘ noise,   out = scaling · B·E·z
//! ```
//!
//! # References
//!
//! Rahmati et al. 2025, C-LoRA, arXiv:2505.17773, and its code.

use super::shape::{check_signs, column_sums, count_rows, scaled};
use crate::error::{Error, ShapeError, check_length, check_range};
use crate::factor::FactorView;
use crate::numeric::dense::{dot, hadamard, times, times_transposed, transposed_times};
use crate::numeric::{compensated_sum, logistic, softplus};

/// Width of the hidden layer in the published code.
pub const HIDDEN: usize = 64;
/// Width of the prior on every entry of `E`.
pub const PRIOR_STD_DEV: f64 = 0.2;

/// Parameters of the contextual network: both layers with their biases.
///
/// # Formula
///
/// ```text
/// hidden·(rank + 1) + 2·rank²·(hidden + 1)          8896 at rank 8 and hidden 64
/// ```
pub const fn context_parameter_count(rank: usize, hidden: usize) -> usize {
    hidden * (rank + 1) + 2 * rank * rank * (hidden + 1)
}

/// The contextual network, `rank → hidden → 2·rank²` with a rectifier between.
///
/// # Shapes
///
/// | Name       | Shape                          |
/// |------------|--------------------------------|
/// | `w1`, `b1` | `[hidden, rank]`, `[hidden]`   |
/// | `w2`, `b2` | `[2·rank², hidden]`, `[2·rank²]`; the first `rank²` rows give the mean |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContextNetwork<'a> {
    /// Weight of the first layer, `[hidden, rank]`.
    pub w1: FactorView<'a>,
    /// Bias of the first layer, `[hidden]`.
    pub b1: &'a [f64],
    /// Weight of the second layer, `[2·rank², hidden]`.
    pub w2: FactorView<'a>,
    /// Bias of the second layer, `[2·rank²]`.
    pub b2: &'a [f64],
}

/// An adapter with a contextual matrix between its factors: `a [rank, d_input]`,
/// `b [rank, d_output]`, both rank-major.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContextAdapter<'a> {
    a: FactorView<'a>,
    b: FactorView<'a>,
    network: ContextNetwork<'a>,
    scaling: f64,
}

impl<'a> ContextAdapter<'a> {
    /// Puts the adapter together.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if the ranks differ or the network does not fit them.
    pub fn new(
        a: FactorView<'a>,
        b: FactorView<'a>,
        network: ContextNetwork<'a>,
        scaling: f64,
    ) -> Result<Self, ShapeError> {
        let (rank, hidden) = (a.rank(), network.w1.rank());
        check_length("rows of b", b.rank(), rank)?;
        check_length("columns of w1", network.w1.width(), rank)?;
        check_length("b1", network.b1.len(), hidden)?;
        check_length("rows of w2", network.w2.rank(), 2 * rank * rank)?;
        check_length("columns of w2", network.w2.width(), hidden)?;
        check_length("b2", network.b2.len(), 2 * rank * rank)?;
        Ok(Self { a, b, network, scaling })
    }
}

/// What a pass draws; the signs are those of flipout, here on the rank activations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContextNoise<'a> {
    /// Standard-normal numbers, a matrix per token, `[tokens, rank, rank]`.
    pub eps: &'a [f64],
    /// Signs of `z`, 1 or −1, `[tokens, rank]`.
    pub input_sign: &'a [f64],
    /// Signs of the noise's result, 1 or −1, `[tokens, rank]`.
    pub output_sign: &'a [f64],
}

/// The gradient of a loss with respect to everything that entered a pass, shaped alike.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each field is the gradient by the argument of its name")]
pub struct ContextGradient {
    pub x: Vec<f64>,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub w1: Vec<f64>,
    pub b1: Vec<f64>,
    pub w2: Vec<f64>,
    pub b2: Vec<f64>,
}

/// One forward pass with given noise, or at the mean of `E`.
///
/// # Formula
///
/// For token `n`, with `z`, `mean` and `std_dev` of the module's formula and signs `p`, `s`:
///
/// ```text
/// u   = mean·z + s ∘ ((std_dev ∘ eps)·(z ∘ p))        [rank]
/// out = scaling · Bᵀ·u                                B rank-major
/// ```
///
/// # Invariants
///
/// `eps` is drawn per token, so the signs do not change the law; they are kept because the published
/// code has them. `B = 0` gives 0, and then no gradient reaches the network but that of the KL.
#[derive(Debug, Clone)]
pub struct ContextPass<'a> {
    adapter: ContextAdapter<'a>,
    x: &'a [f64],
    noise: Option<ContextNoise<'a>>,
    tokens: usize,
    z: Vec<f64>,
    /// `relu(w1·z + b1)`, `[tokens, hidden]`.
    hidden: Vec<f64>,
    /// `[tokens, 2·rank²]`.
    raw: Vec<f64>,
    /// `E·z` with its noise, `[tokens, rank]`.
    mixed: Vec<f64>,
    output: Vec<f64>,
}

impl<'a> ContextPass<'a> {
    /// Runs the pass for `x [tokens, d_input]`.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `x` is not whole rows of `d_input` values or the noise does not fit;
    /// [`ParameterError::NotASign`](crate::ParameterError::NotASign) for a sign that is neither 1
    /// nor −1.
    pub fn new(
        adapter: ContextAdapter<'a>,
        x: &'a [f64],
        noise: Option<ContextNoise<'a>>,
    ) -> Result<Self, Error> {
        let ContextNetwork { w1, b1, w2, b2 } = adapter.network;
        let rank = adapter.a.rank();
        let (d_in, d_out, square) = (adapter.a.width(), adapter.b.width(), rank * rank);
        let tokens = count_rows("x", x, d_in)?;
        if let Some(noise) = noise {
            check_length("noise.eps", noise.eps.len(), tokens * square)?;
            check_length("noise.input_sign", noise.input_sign.len(), tokens * rank)?;
            check_length("noise.output_sign", noise.output_sign.len(), tokens * rank)?;
            check_signs("noise.input_sign", noise.input_sign)?;
            check_signs("noise.output_sign", noise.output_sign)?;
        }
        let z = times_transposed(x, adapter.a.values(), tokens, d_in, rank);
        let mut hidden = affine(&z, w1, b1, tokens);
        for value in &mut hidden {
            *value = value.max(0.0);
        }
        let raw = affine(&hidden, w2, b2, tokens);
        let mut pass = Self {
            adapter,
            x,
            noise,
            tokens,
            z,
            hidden,
            raw,
            mixed: Vec::new(),
            output: Vec::new(),
        };
        pass.mixed = (0..tokens).flat_map(|token| pass.mix(token)).collect();
        let output = times(&pass.mixed, adapter.b.values(), tokens, rank, d_out);
        pass.output = scaled(&output, adapter.scaling);
        Ok(pass)
    }

    /// The adapter's output, `[tokens, d_output]`.
    pub fn output(&self) -> &[f64] {
        &self.output
    }

    /// The mean of `E` for every token, `[tokens, rank, rank]`.
    pub fn mean(&self) -> Vec<f64> {
        (0..self.tokens).flat_map(|token| self.mean_of(token).to_vec()).collect()
    }

    /// The standard deviations of `E` for every token, `[tokens, rank, rank]`.
    pub fn std_dev(&self) -> Vec<f64> {
        (0..self.tokens).flat_map(|token| self.std_dev_of(token)).collect()
    }

    /// Divergence of `E` from `N(0, prior_std_dev²)` on every entry, nats per token, `[tokens]`.
    ///
    /// # Formula
    ///
    /// ```text
    /// KL_n = Σ_ij ln(prior/std_dev) + (std_dev² + mean²)/(2·prior²) − ½
    /// ```
    ///
    /// Direction: posterior from prior. The published objective adds the **sum** over all tokens of
    /// all modules, padding included, times `π_i·10⁻⁶/65`.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`](crate::ParameterError::OutOfRange) if the prior's width is not
    /// positive and finite.
    ///
    /// # Numerics
    ///
    /// `ln std_dev = −2·softplus(−o)`, so a standard deviation that underflows has a finite cost.
    pub fn kl_per_token(&self, prior_std_dev: f64) -> Result<Vec<f64>, Error> {
        check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
        let cost = |mean: f64, raw_std_dev: f64| {
            let log_ratio = -2.0 * softplus(-raw_std_dev) - prior_std_dev.ln();
            let scaled_mean = mean / prior_std_dev;
            0.5 * (2.0 * log_ratio).exp_m1() - log_ratio + 0.5 * scaled_mean * scaled_mean
        };
        Ok((0..self.tokens)
            .map(|token| {
                let (mean, raw) = (self.mean_of(token), self.raw_std_dev_of(token));
                compensated_sum(mean.iter().zip(raw).map(|(&m, &o)| cost(m, o)))
            })
            .collect())
    }

    /// The gradient of `⟨grad_output, out⟩ + Σ_n kl_weight[n]·KL_n`, for a loss with these parts.
    ///
    /// # Formula
    ///
    /// Per token, with `G = scaling · grad_output` and `o` the second half of the network's output:
    ///
    /// ```text
    /// du    = B·G                      dB     = u ⊗ G
    /// dmean = du ⊗ z + kl_weight·mean/prior²
    /// do    = [ std_dev ∘ eps ∘ ((du ∘ s) ⊗ (z ∘ p)) + kl_weight·(std_dev²/prior² − 1) ] · 2·logistic(−o)
    /// dz    = meanᵀ·du + p ∘ ((std_dev ∘ eps)ᵀ·(du ∘ s)) + w1ᵀ·relu'·w2ᵀ·[dmean, do]
    /// dA    = dz ⊗ x,   dx = Aᵀ·dz
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if `grad_output` is not shaped like the output or `kl_weight` is not
    /// one number per token;
    /// [`ParameterError::OutOfRange`](crate::ParameterError::OutOfRange) for the prior's width.
    pub fn backward(
        &self,
        grad_output: &[f64],
        kl_weight: &[f64],
        prior_std_dev: f64,
    ) -> Result<ContextGradient, Error> {
        check_length("grad_output", grad_output.len(), self.output.len())?;
        check_length("kl_weight", kl_weight.len(), self.tokens)?;
        check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
        let ContextAdapter { a, b, network, scaling } = self.adapter;
        let (n, rank, d_in, d_out) = (self.tokens, a.rank(), a.width(), b.width());
        let n_hidden = network.w1.rank();
        let g = scaled(grad_output, scaling);
        let d_mixed = times_transposed(&g, b.values(), n, d_out, rank);

        let mut d_z = Vec::with_capacity(n * rank);
        let mut d_raw = Vec::with_capacity(n * 2 * rank * rank);
        for (token, &weight) in kl_weight.iter().enumerate() {
            let d_u = &d_mixed[token * rank..(token + 1) * rank];
            let (by_raw, by_z) =
                self.pull_back_token(token, d_u, weight / prior_std_dev.powi(2), weight);
            d_raw.extend(by_raw);
            d_z.extend(by_z);
        }
        let mut d_hidden = times(&d_raw, network.w2.values(), n, 2 * rank * rank, n_hidden);
        for (gradient, &value) in d_hidden.iter_mut().zip(&self.hidden) {
            if value <= 0.0 {
                *gradient = 0.0;
            }
        }
        for (sum, share) in
            d_z.iter_mut().zip(times(&d_hidden, network.w1.values(), n, n_hidden, rank))
        {
            *sum += share;
        }
        Ok(ContextGradient {
            x: times(&d_z, a.values(), n, rank, d_in),
            a: transposed_times(&d_z, self.x, n, rank, d_in),
            b: transposed_times(&self.mixed, &g, n, rank, d_out),
            w1: transposed_times(&d_hidden, &self.z, n, n_hidden, rank),
            b1: column_sums(&d_hidden, n_hidden),
            w2: transposed_times(&d_raw, &self.hidden, n, 2 * rank * rank, n_hidden),
            b2: column_sums(&d_raw, 2 * rank * rank),
        })
    }

    /// Gradients of one token by the network's output and, past the network, by `z`.
    fn pull_back_token(
        &self,
        token: usize,
        d_u: &[f64],
        precision_weight: f64,
        weight: f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let rank = self.adapter.a.rank();
        let (z, mean, std_dev) = (self.z_of(token), self.mean_of(token), self.std_dev_of(token));
        let outer = times(d_u, z, rank, 1, rank);
        let mut by_raw: Vec<f64> =
            outer.iter().zip(mean).map(|(g, m)| g + precision_weight * m).collect();
        let mut by_z = times(d_u, mean, 1, rank, rank);
        let mut by_log_std_dev: Vec<f64> =
            std_dev.iter().map(|s| precision_weight * s * s - weight).collect();
        if let Some((noise, p, s)) = self.noise_of(token) {
            let d_signed = hadamard(d_u, s);
            let drawn = hadamard(&std_dev, noise);
            let through = times(&d_signed, &hadamard(z, p), rank, 1, rank);
            for ((sum, g), e) in by_log_std_dev.iter_mut().zip(&through).zip(&drawn) {
                *sum += g * e;
            }
            let through = hadamard(&times(&d_signed, &drawn, 1, rank, rank), p);
            for (sum, share) in by_z.iter_mut().zip(through) {
                *sum += share;
            }
        }
        let raw_std_dev = self.raw_std_dev_of(token);
        by_raw.extend(by_log_std_dev.iter().zip(raw_std_dev).map(|(g, &o)| g * 2.0 * logistic(-o)));
        (by_raw, by_z)
    }

    /// `u` of one token.
    fn mix(&self, token: usize) -> Vec<f64> {
        let rank = self.adapter.a.rank();
        let z = self.z_of(token);
        let row = |matrix: &[f64], i: usize, v: &[f64]| dot(&matrix[i * rank..(i + 1) * rank], v);
        let mut mixed: Vec<f64> = (0..rank).map(|i| row(self.mean_of(token), i, z)).collect();
        if let Some((eps, p, s)) = self.noise_of(token) {
            let drawn = hadamard(&self.std_dev_of(token), eps);
            let signed = hadamard(z, p);
            for (i, value) in mixed.iter_mut().enumerate() {
                *value += s[i] * row(&drawn, i, &signed);
            }
        }
        mixed
    }

    fn z_of(&self, token: usize) -> &[f64] {
        let rank = self.adapter.a.rank();
        &self.z[token * rank..(token + 1) * rank]
    }

    fn mean_of(&self, token: usize) -> &[f64] {
        let square = self.adapter.a.rank().pow(2);
        &self.raw[2 * token * square..(2 * token + 1) * square]
    }

    fn raw_std_dev_of(&self, token: usize) -> &[f64] {
        let square = self.adapter.a.rank().pow(2);
        &self.raw[(2 * token + 1) * square..(2 * token + 2) * square]
    }

    fn std_dev_of(&self, token: usize) -> Vec<f64> {
        self.raw_std_dev_of(token).iter().map(|&o| logistic(o).powi(2)).collect()
    }

    /// `eps`, input signs and output signs of one token.
    fn noise_of(&self, token: usize) -> Option<(&'a [f64], &'a [f64], &'a [f64])> {
        let rank = self.adapter.a.rank();
        let square = rank * rank;
        let (matrix, row) =
            (token * square..(token + 1) * square, token * rank..(token + 1) * rank);
        self.noise.map(|n| (&n.eps[matrix], &n.input_sign[row.clone()], &n.output_sign[row]))
    }
}

/// `x·weightᵀ + bias` for `n` rows.
fn affine(x: &[f64], weight: FactorView<'_>, bias: &[f64], n: usize) -> Vec<f64> {
    let product = times_transposed(x, weight.values(), n, weight.width(), weight.rank());
    product.iter().zip(bias.repeat(n)).map(|(p, b)| p + b).collect()
}
