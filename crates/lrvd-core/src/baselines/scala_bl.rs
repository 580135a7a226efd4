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
//! Source: Samplawski et al. 2025, `ScalaBL`, arXiv:2506.21408; code in `BayesAdapt`.

use crate::error::{Error, check_length, check_range, count_rows};
use crate::linalg::svd;
use crate::special::compensated_sum;

/// Upper end of the distribution of the initial standard deviations, `U(eps/√2, eps)`.
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
/// ```text
/// A = U diag(s) v_h,     log_mean = ln s        (U is dropped)
/// ```
///
/// `a` is `[rank, d_input]` with `rank ≤ d_input`, drawn as a fresh LoRA's, `U(±1/√d_input)`.
///
/// # Errors
///
/// The rank is larger than `d_input`, or `a` does not have full rank (or is not finite), so that a scale has no logarithm.
///
/// The signs of singular vectors are arbitrary; so is a rotation among equal singular values.
pub fn scala_bl_basis(a: &[f64], rank: usize) -> Result<ScalaBlBasis, Error> {
    let d_in = count_rows("a", a, rank)?;
    check_range("rank", rank as f64, 0.0, d_in as f64)?;
    let parts = svd(a, rank, d_in);
    if parts.values.iter().any(|&s| s <= 0.0 || !s.is_finite()) {
        return Err(Error::undefined("a", "is singular to working precision"));
    }
    Ok(ScalaBlBasis { log_mean: parts.values.iter().map(|s| s.ln()).collect(), v_h: parts.right })
}

/// Logarithm of an initial standard deviation from a uniform number in `[0, 1]`.
///
/// ```text
/// ln(limit·(1/√2 + (1 − 1/√2)·uniform))
/// ```
///
/// The same distribution is BLoB's for its `G`; there the standard deviation is the square of it.
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

/// Divergence between the distribution of the scales and `N(0, 1)`, nats.
///
/// With `m = exp(log_mean)`, `v = exp(2·log_std_dev)`:
///
/// ```text
/// posterior from prior:  Σ −log_std_dev + ½(v + m²) − ½
/// prior from posterior:  Σ  log_std_dev + (1 + m²)/(2v) − ½
/// ```
///
/// `½(v − 1) − log_std_dev` goes through `exp_m1`, so agreement costs exactly 0.
pub fn scala_bl_kl(
    log_mean: &[f64],
    log_std_dev: &[f64],
    direction: KlDirection,
) -> Result<f64, Error> {
    check_length("log_std_dev", log_std_dev.len(), log_mean.len())?;
    let entry = |(&log_mean, &log_std_dev): (&f64, &f64)| {
        // Exchanging the distributions inverts the ratio of widths and measures the mean in posterior widths.
        let (log_ratio, squared_mean) = match direction {
            KlDirection::PosteriorFromPrior => (log_std_dev, (2.0 * log_mean).exp()),
            KlDirection::PriorFromPosterior => {
                (-log_std_dev, (2.0 * (log_mean - log_std_dev)).exp())
            }
        };
        0.5 * (2.0 * log_ratio).exp_m1() - log_ratio + 0.5 * squared_mean
    };
    Ok(compensated_sum(log_mean.iter().zip(log_std_dev).map(entry)))
}
