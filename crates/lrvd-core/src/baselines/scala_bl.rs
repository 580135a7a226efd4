//! `ScalaBL`: adapters of which only the `r` scales are random.
//!
//! The scales themselves are Gaussian; the logarithms of their means and of their standard deviations are stored and trained,
//! `2r` numbers beyond `B` and the basis `v_h` (which takes the place of `A`, is trained with the rest and stays orthonormal only
//! at the start):
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

use crate::error::{Error, check_range, row_count};
use crate::linalg::svd;

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
    let d_in = row_count("a", a, rank)?;
    check_range("rank", rank, 0..=d_in)?;
    let parts = svd(a, rank, d_in);
    if parts.values.iter().any(|&s| s <= 0.0 || !s.is_finite()) {
        return Err(Error::undefined("a", "is singular to working precision"));
    }
    Ok(ScalaBlBasis { log_mean: parts.values.iter().map(|s| s.ln()).collect(), v_h: parts.right })
}

/// Direction of the divergence between the distribution of the scales and `N(0, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KlDirection {
    /// KL of the posterior from the prior, as the evidence bound has it.
    #[default]
    PosteriorFromPrior,
    /// KL of the prior from the posterior, as the published code computes it. (There the prior's
    /// mean is `1e-8` instead of 0, the floor under a logarithm.)
    PriorFromPosterior,
}
