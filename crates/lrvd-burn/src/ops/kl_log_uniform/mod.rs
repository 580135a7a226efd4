//! KL of the rank-tied posterior from the log-uniform prior.

#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use lrvd_core::family::{EPS_MEAN, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN};
use lrvd_core::kl::{K1, K2, K3};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

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
    op::fused(KlLogUniform { rank_axis }, operands(mean, rank_axis, log_variance))
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
    op::composite(KlLogUniform { rank_axis }, operands(mean, rank_axis, log_variance))
}

fn operands(mean: Tensor<2>, rank_axis: usize, log_variance: Tensor<1>) -> Operands<Dispatch> {
    assert!(rank_axis < 2, "`rank_axis` is {rank_axis}, `mean` has 2 axes");
    assert_eq!(log_variance.dims(), [mean.dims()[rank_axis]], "shape of `log_variance`");
    Operands::of([mean.into_dispatch(), log_variance.into_dispatch()])
}

#[derive(Clone, Debug)]
struct KlLogUniform {
    rank_axis: usize,
}

impl FusedOp for KlLogUniform {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [k1, k2, k3] = FIT;
        let [mean, log_variance] = x.all().map(Value::<B>);
        let rank = log_variance.shape()[0];
        if mean.shape().contains(&0) {
            return (log_variance * 0.0).0;
        }
        let log_variance = log_variance.clamp(LOG_VARIANCE[0], LOG_VARIANCE[1]);
        let along = log_variance.reshape(if self.rank_axis == 0 { [rank, 1] } else { [1, rank] });
        let a = along - (mean.square() + MEAN_EPSILON).ln();
        let saturation = (-(a.clone() * k3 + k2)).logistic() * k1;
        let kl = saturation + a.neg_log_sigmoid() * 0.5;
        kl.sum(1 - self.rank_axis).reshape([rank]).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::forward, gradient: Some(cube::gradient) })
    }
}
