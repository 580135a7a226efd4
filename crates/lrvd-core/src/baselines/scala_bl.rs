//! Adapters of which only the `r` scales are random.
//!
//! # Parametrisation
//!
//! The scales themselves are Gaussian; what is stored and trained are the logarithms of their means
//! and of their standard deviations, `2r` numbers beyond `B` and the basis `v_h` (which takes the
//! place of `A`, is trained with the rest and stays orthonormal only at the start):
//!
//! ```text
//! s ~ N(exp(log_mean), exp(log_std_dev)²)            per rank, one draw per module and forward
//! ΔW = scaling · B diag(s) v_h
//! ```
//!
//! So a mean scale is always positive while a drawn one need not be, and the prior `N(0, 1)` is on
//! `s`, not on its logarithm.
//!
//! # References
//!
//! Samplawski et al. 2025, `ScalaBL`, arXiv:2506.21408; code in `BayesAdapt`.

use super::shape::{column_sums, count_rows, scaled};
use crate::error::{ParameterError, ShapeError, check_length, check_range};
use crate::factor::FactorView;
use crate::numeric::dense::{hadamard, times, times_transposed, transposed_times};
use crate::numeric::{compensated_sum, svd};

/// Upper end of the law of the initial standard deviations, `U(eps/√2, eps)`.
pub const INITIAL_STD_DEV_LIMIT: f64 = 0.05;

/// Starting values of the parts that an SVD determines.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalaBlBasis {
    /// Logarithms of the mean scales, `[rank]`, largest first.
    pub log_mean: Vec<f64>,
    /// Orthonormal rows, `[rank, d_input]`.
    pub v_h: Vec<f64>,
}

/// The starting point from a random `A`: its singular values and right singular vectors.
///
/// # Formula
///
/// ```text
/// A = U diag(s) v_h,     log_mean = ln s        (U is dropped)
/// ```
///
/// # Shapes
///
/// `a` is `[rank, d_input]` with `rank ≤ d_input`, drawn as a fresh LoRA's, `U(±1/√d_input)`.
///
/// # Errors
///
/// [`ParameterError::OutOfRange`] if the rank is larger than `d_input`;
/// [`ParameterError::Singular`] if `a` does not have full rank (or is not finite), so that a scale
/// has no logarithm.
///
/// # Numerics
///
/// The signs of singular vectors are arbitrary; so is a rotation among equal singular values.
pub fn scala_bl_basis(a: FactorView<'_>) -> Result<ScalaBlBasis, ParameterError> {
    let (rank, d_in) = (a.rank(), a.width());
    check_range("rank", rank as f64, 0.0, d_in as f64)?;
    let parts = svd(a.values(), rank, d_in);
    if parts.values.iter().any(|&s| s <= 0.0 || !s.is_finite()) {
        return Err(ParameterError::Singular { name: "a", size: rank });
    }
    Ok(ScalaBlBasis { log_mean: parts.values.iter().map(|s| s.ln()).collect(), v_h: parts.right })
}

/// Logarithm of an initial standard deviation from a uniform number in `[0, 1]`.
///
/// # Formula
///
/// ```text
/// ln(limit·(1/√2 + (1 − 1/√2)·uniform))
/// ```
///
/// The same law is BLoB's for its `G`; there the standard deviation is the square of it.
pub fn initial_log_std_dev(uniform: f64, limit: f64) -> f64 {
    super::blob::initial_rho(uniform, limit).ln()
}

/// Which divergence of the scales from `N(0, 1)` is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KlDirection {
    /// KL of the posterior from the prior, as the evidence bound has it.
    #[default]
    PosteriorFromPrior,
    /// KL of the prior from the posterior, as the published code computes it. (There the prior's
    /// mean is `1e-8` instead of 0, the floor under a logarithm.)
    PriorFromPosterior,
}

/// The divergence with its gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalaBlKl {
    /// Nats per rank, `[rank]`.
    pub per_rank: Vec<f64>,
    /// With respect to `log_mean`, `[rank]`.
    pub by_log_mean: Vec<f64>,
    /// With respect to `log_std_dev`, `[rank]`.
    pub by_log_std_dev: Vec<f64>,
}

impl ScalaBlKl {
    /// The sum over ranks, nats.
    pub fn total(&self) -> f64 {
        compensated_sum(self.per_rank.iter().copied())
    }
}

/// Divergence between the law of the scales and `N(0, 1)`.
///
/// # Formula
///
/// With `m = exp(log_mean)`, `v = exp(2·log_std_dev)`:
///
/// ```text
/// posterior from prior:  −log_std_dev + ½(v + m²) − ½         d/d log_mean = m²     d/d log_std_dev = v − 1
/// prior from posterior:   log_std_dev + (1 + m²)/(2v) − ½     d/d log_mean = m²/v   d/d log_std_dev = 1 − (1 + m²)/v
/// ```
///
/// # Errors
///
/// [`ShapeError::Length`] if the two slices differ in length.
///
/// # Numerics
///
/// `½(v − 1) − log_std_dev` goes through `exp_m1`, so agreement costs exactly 0.
pub fn scala_bl_kl(
    log_mean: &[f64],
    log_std_dev: &[f64],
    direction: KlDirection,
) -> Result<ScalaBlKl, ShapeError> {
    check_length("log_std_dev", log_std_dev.len(), log_mean.len())?;
    let mut kl = ScalaBlKl { per_rank: vec![], by_log_mean: vec![], by_log_std_dev: vec![] };
    for (&log_mean, &log_std_dev) in log_mean.iter().zip(log_std_dev) {
        // Exchanging the laws inverts the ratio of widths and measures the mean in posterior widths.
        let (log_ratio, squared_mean) = match direction {
            KlDirection::PosteriorFromPrior => (log_std_dev, (2.0 * log_mean).exp()),
            KlDirection::PriorFromPosterior => {
                (-log_std_dev, (2.0 * (log_mean - log_std_dev)).exp())
            }
        };
        let excess = (2.0 * log_ratio).exp_m1();
        kl.per_rank.push(0.5 * excess - log_ratio + 0.5 * squared_mean);
        kl.by_log_mean.push(squared_mean);
        kl.by_log_std_dev.push(match direction {
            KlDirection::PosteriorFromPrior => excess,
            KlDirection::PriorFromPosterior => -excess - squared_mean,
        });
    }
    Ok(kl)
}

/// An adapter with random scales.
///
/// # Shapes
///
/// | Name          | Shape                          | Unit     |
/// |---------------|--------------------------------|----------|
/// | `v_h`         | `[rank, d_input]`              | ratio    |
/// | `log_mean`    | `[rank]`                       | ln scale |
/// | `log_std_dev` | `[rank]`                       | ln scale |
/// | `b`           | `[rank, d_output]`, rank-major | weight   |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalaBlAdapter<'a> {
    v_h: FactorView<'a>,
    log_mean: &'a [f64],
    log_std_dev: &'a [f64],
    b: FactorView<'a>,
    scaling: f64,
}

impl<'a> ScalaBlAdapter<'a> {
    /// Puts the adapter together.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if the ranks differ.
    pub fn new(
        v_h: FactorView<'a>,
        log_mean: &'a [f64],
        log_std_dev: &'a [f64],
        b: FactorView<'a>,
        scaling: f64,
    ) -> Result<Self, ShapeError> {
        check_length("log_mean", log_mean.len(), v_h.rank())?;
        check_length("log_std_dev", log_std_dev.len(), v_h.rank())?;
        check_length("rows of b", b.rank(), v_h.rank())?;
        Ok(Self { v_h, log_mean, log_std_dev, b, scaling })
    }

    /// The scales of one draw, `exp(log_mean) + exp(log_std_dev)·eps`; the means for no `eps`.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if there is not one `eps` per rank.
    pub fn scales(&self, eps: Option<&[f64]>) -> Result<Vec<f64>, ShapeError> {
        let mut scales: Vec<f64> = self.log_mean.iter().map(|m| m.exp()).collect();
        if let Some(eps) = eps {
            check_length("eps", eps.len(), scales.len())?;
            for ((scale, e), log_std_dev) in scales.iter_mut().zip(eps).zip(self.log_std_dev) {
                *scale += log_std_dev.exp() * e;
            }
        }
        Ok(scales)
    }
}

/// The gradient of a loss with respect to everything that entered a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalaBlGradient {
    /// With respect to the inputs, `[tokens, d_input]`.
    pub x: Vec<f64>,
    /// With respect to the basis, `[rank, d_input]`.
    pub v_h: Vec<f64>,
    /// With respect to `log_mean`, `[rank]`.
    pub log_mean: Vec<f64>,
    /// With respect to `log_std_dev`, `[rank]`; 0 without noise.
    pub log_std_dev: Vec<f64>,
    /// With respect to B, `[rank, d_output]`.
    pub b: Vec<f64>,
}

/// One forward pass, `out = scaling · ((x·v_hᵀ) ∘ s)·B` with B rank-major.
///
/// One draw of the scales serves all tokens it is given.
#[derive(Debug, Clone)]
pub struct ScalaBlPass<'a> {
    adapter: ScalaBlAdapter<'a>,
    x: &'a [f64],
    eps: Option<&'a [f64]>,
    tokens: usize,
    scales: Vec<f64>,
    /// `x·v_hᵀ`, `[tokens, rank]`.
    projected: Vec<f64>,
    rank_activation: Vec<f64>,
    output: Vec<f64>,
}

impl<'a> ScalaBlPass<'a> {
    /// Runs the pass for `x [tokens, d_input]`, with one standard-normal number per rank or at the
    /// mean.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `x` is not whole rows of `d_input` values or there is not one `eps` per
    /// rank.
    pub fn new(
        adapter: ScalaBlAdapter<'a>,
        x: &'a [f64],
        eps: Option<&'a [f64]>,
    ) -> Result<Self, ShapeError> {
        let (rank, d_in, d_out) = (adapter.v_h.rank(), adapter.v_h.width(), adapter.b.width());
        let tokens = count_rows("x", x, d_in)?;
        let scales = adapter.scales(eps)?;
        let projected = times_transposed(x, adapter.v_h.values(), tokens, d_in, rank);
        let rank_activation = hadamard(&projected, &scales.repeat(tokens));
        let output = times(&rank_activation, adapter.b.values(), tokens, rank, d_out);
        let output = scaled(&output, adapter.scaling);
        Ok(Self { adapter, x, eps, tokens, scales, projected, rank_activation, output })
    }

    /// The adapter's output, `[tokens, d_output]`.
    pub fn output(&self) -> &[f64] {
        &self.output
    }

    /// The scales that were used, `[rank]`.
    pub fn scales(&self) -> &[f64] {
        &self.scales
    }

    /// The gradient of a loss whose gradient with respect to the output is `grad_output`.
    ///
    /// # Formula
    ///
    /// ```text
    /// G = scaling · grad_output,   dH = G·Bᵀ,   dB = Hᵀ·G,   Z = x·v_hᵀ,   dZ = dH ∘ s
    /// ds = Σ_n dH ∘ Z        d log_mean = ds ∘ exp(log_mean)    d log_std_dev = ds ∘ exp(log_std_dev) ∘ eps
    /// dv_h = dZᵀ·x           dx = dZ·v_h
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`] if `grad_output` is not shaped like the output.
    pub fn backward(&self, grad_output: &[f64]) -> Result<ScalaBlGradient, ShapeError> {
        check_length("grad_output", grad_output.len(), self.output.len())?;
        let ScalaBlAdapter { v_h, log_mean, log_std_dev, b, scaling } = self.adapter;
        let (n, rank, d_in, d_out) = (self.tokens, v_h.rank(), v_h.width(), b.width());
        let g = scaled(grad_output, scaling);
        let d_h = times_transposed(&g, b.values(), n, d_out, rank);
        let d_scale = column_sums(&hadamard(&d_h, &self.projected), rank);
        let d_z = hadamard(&d_h, &self.scales.repeat(n));
        let by_log_std_dev = match self.eps {
            Some(eps) => d_scale
                .iter()
                .zip(log_std_dev)
                .zip(eps)
                .map(|((d, l), e)| d * l.exp() * e)
                .collect(),
            None => vec![0.0; rank],
        };
        Ok(ScalaBlGradient {
            x: times(&d_z, v_h.values(), n, rank, d_in),
            v_h: transposed_times(&d_z, self.x, n, rank, d_in),
            log_mean: d_scale.iter().zip(log_mean).map(|(d, l)| d * l.exp()).collect(),
            log_std_dev: by_log_std_dev,
            b: transposed_times(&self.rank_activation, &g, n, rank, d_out),
        })
    }
}
