//! KL of the rank-tied posterior from the log-uniform prior.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
pub(crate) mod launch;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use lrvd_core::family::{EPS_MEAN, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN};
use lrvd_core::kl::log_uniform::{K1, K2, K3};

use super::backend::LrvdBackend;

/// `k1`, `k2`, `k3` of the fit to the KL integral: `docs/math/kl.md`, "One weight".
const FIT: [f64; 3] = [K1, K2, K3];
/// Added to a squared mean before its logarithm: `docs/math/notation.md`.
const MEAN_EPSILON: f64 = EPS_MEAN;
/// Range a log-variance is clamped to: `docs/math/posterior.md`, "Families".
const LOG_VARIANCE: [f64; 2] = [LOG_VARIANCE_MIN, LOG_VARIANCE_MAX];

/// KL divergence of a rank-tied Gaussian posterior from the log-uniform prior, summed per rank.
///
/// # Formula
///
/// ```text
/// out[k] = Σ_i KL(a[k,i]),   a[k,i] = clamp(log_variance[k], -20, 2) - ln(mean[k,i]² + 1e-8)
/// KL(a)  = k1·(1 - σ(k2 + k3·a)) + ½·ln(1 + exp(-a))
/// ```
///
/// `i` runs over the width. Gradients, with `g = KL'(a) = -(k1·k3·s·(1-s) + ½·σ(-a))` and
/// `s = σ(k2 + k3·a)`:
///
/// ```text
/// dlog_variance[k] = Σ_i g   (0 outside the clamp, passed at its ends)
/// dmean[k,i]       = -2·g·mean / (mean² + 1e-8)
/// ```
///
/// # Shapes
///
/// | Name           | Shape                                           | Unit        |
/// |----------------|-------------------------------------------------|-------------|
/// | `mean`         | `[rank, width]`, or `[width, rank]` for axis 1  | weight      |
/// | `log_variance` | `[rank]`                                        | ln(weight²) |
/// | *returns*      | `[rank]`                                        | nats        |
///
/// `rank_axis` is the axis of `mean` that counts ranks.
///
/// # Numerics
///
/// The definition in `f64` is that of `lrvd_core`. Sums over the width are taken in double precision
/// on the CPU, in an order that depends on the shape alone.
///
/// # Panics
///
/// If `rank_axis` is above 1 or `log_variance` does not have one entry per rank.
///
/// # References
///
/// Molchanov et al. 2017, arXiv:1701.05369; Doyle et al., arXiv:2506.22809.
pub fn kl_log_uniform(mean: Tensor<2>, rank_axis: usize, log_variance: Tensor<1>) -> Tensor<1> {
    check(&mean, rank_axis, &log_variance);
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_kl_log_uniform(
        mean.into_dispatch(),
        log_variance.into_dispatch(),
        rank_axis,
    ))
}

/// [`kl_log_uniform()`](fn@kl_log_uniform) from Burn's operations.
///
/// # Panics
///
/// As [`kl_log_uniform()`](fn@kl_log_uniform).
pub fn kl_log_uniform_composite(
    mean: Tensor<2>,
    rank_axis: usize,
    log_variance: Tensor<1>,
) -> Tensor<1> {
    check(&mean, rank_axis, &log_variance);
    Tensor::from_dispatch(composite::forward::<Dispatch>(
        mean.into_dispatch(),
        log_variance.into_dispatch(),
        rank_axis,
    ))
}

fn check(mean: &Tensor<2>, rank_axis: usize, log_variance: &Tensor<1>) {
    assert!(rank_axis < 2, "`rank_axis` is {rank_axis}, `mean` has 2 axes");
    assert_eq!(log_variance.dims(), [mean.dims()[rank_axis]], "shape of `log_variance`");
}
