//! Random scales of the rank directions: `ScalaBL`.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::baselines::KlDirection;
use lrvd_core::noise::NoiseKey;

use crate::adapter::posterior::select;
use crate::adapter::streams::AdapterStream;
use crate::adapter::wide::widened;
use crate::ops::standard_normal;

/// Gaussian scales between the factors, whose A starts as an orthonormal basis.
///
/// # Formula
///
/// ```text
/// update(x) = c · ((x·A) ⊙ s)·B        s = exp(log_mean) + exp(log_std) ⊙ eps
/// ```
///
/// One draw per module and forward, or per sequence.
///
/// # Shapes
///
/// Both `[rank]`: `lora_scale_log_mean` and `lora_scale_log_std` in a checkpoint.
///
/// # References
///
/// The definition: `lrvd_core::baselines::ScalaBlPass`. Samplawski et al. 2025, arXiv:2506.21408.
#[derive(Module, Debug)]
pub struct ScaleGaussian {
    /// Logarithms of the mean scales.
    pub log_mean: Param<Tensor<1>>,
    /// Logarithms of their standard deviations.
    pub log_std: Param<Tensor<1>>,
}

impl ScaleGaussian {
    /// The mean scales, `[rank]`.
    pub fn mean(&self) -> Tensor<1> {
        self.log_mean.val().exp()
    }

    /// `draws` draws of the scales, `[draws, rank]`, or their mean, `[1, rank]`.
    pub(in crate::adapter) fn scales(&self, draws: Option<(usize, NoiseKey)>) -> Tensor<2> {
        let mean = self.mean().unsqueeze_dim(0);
        let Some((draws, key)) = draws else { return mean };
        let std = self.log_std.val().exp();
        let rank = std.dims()[0];
        let eps = standard_normal(&std, [draws, rank], key.on_stream(AdapterStream::SCALE));
        mean + eps * std.unsqueeze_dim(0)
    }

    /// See [`AdaptedLinear::kl_scale`](crate::adapter::AdaptedLinear::kl_scale).
    pub(super) fn kl(&self, direction: KlDirection) -> Tensor<1> {
        let log_mean = self.log_mean.val();
        let dtype = log_mean.dtype();
        let (log_mean, log_std) = (widened(log_mean), widened(self.log_std.val()));
        // The two directions exchange the widths and measure the mean in the narrower's place.
        let (log_ratio, log_distance) = match direction {
            KlDirection::PosteriorFromPrior => (log_std, log_mean),
            KlDirection::PriorFromPosterior => (log_std.clone().neg(), log_mean - log_std),
        };
        let squares = log_ratio.clone().mul_scalar(2.0).exp() + log_distance.mul_scalar(2.0).exp();
        (squares.mul_scalar(0.5) - log_ratio).add_scalar(-0.5).sum().cast(dtype)
    }

    /// Keeps the rank directions `kept`, in order.
    pub(super) fn select(self, kept: &[usize]) -> Self {
        Self { log_mean: select(self.log_mean, 0, kept), log_std: select(self.log_std, 0, kept) }
    }
}
