//! `ScalaBL`: random scales of the rank directions.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::baselines::{KlDirection, initial_rho, scala_bl_basis};
use lrvd_core::linalg::transpose;

use super::Extension;
use super::low_rank::A;
use crate::adapter::divergence::widened;
use crate::adapter::initialisation::Initialiser;
use crate::adapter::linear::AdaptedLinear;
use crate::adapter::noise::{AdapterStream, LayerNoise};
use crate::adapter::schema::{Axis, ParameterSchema, Sizes, Visit};

pub(super) const LOG_MEAN: ParameterSchema =
    ParameterSchema::mean("lora_scale_log_mean", &[Axis::Rank], 0);
pub(super) const LOG_STD: ParameterSchema =
    ParameterSchema::noise("lora_scale_log_std", &[Axis::Rank], 2);

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
/// # References
///
/// Samplawski et al. 2025, arXiv:2506.21408.
#[derive(Module, Debug)]
pub struct ScaleGaussian {
    /// Logarithms of the mean scales, `[rank]`; `lora_scale_log_mean` in a checkpoint.
    pub log_mean: Param<Tensor<1>>,
    /// Logarithms of their standard deviations, `[rank]`; `lora_scale_log_std`.
    pub log_std: Param<Tensor<1>>,
}

impl ScaleGaussian {
    /// The mean scales, `[rank]`.
    pub fn mean(&self) -> Tensor<1> {
        self.log_mean.val().exp()
    }

    /// Draws of the scales, `[draws, rank]` or one for each row of the batch, or their mean, `[1, rank]`.
    pub(in crate::adapter) fn scales(&self, noise: Option<&LayerNoise<'_>>) -> Tensor<2> {
        let mean = self.mean().unsqueeze_dim(0);
        let Some(noise) = noise else { return mean };
        let std = self.log_std.val().exp();
        let eps: Tensor<3> = noise.normal(&std, [1, std.dims()[0]], AdapterStream::SCALE);
        noise.for_rows(mean + eps.squeeze_dim::<2>(1) * std.unsqueeze_dim(0))
    }

    /// The orthonormal basis of a LoRA's A, and the scales that make it that A.
    pub(super) fn fresh(
        init: &Initialiser,
        epsilon: f64,
    ) -> Result<(Param<Tensor<2>>, Self), lrvd_core::Error> {
        let Sizes { rank, d_input, .. } = init.sizes;
        let of_lora = init.uniform_values(&A, Initialiser::bound_of(d_input));
        let of_lora: Vec<f64> = of_lora.into_iter().map(f64::from).collect();
        let basis = scala_bl_basis(&transpose(&of_lora, d_input, rank), rank)?;
        let single = |values: &[f64]| values.iter().map(|&v| v as f32).collect();
        let a = single(&transpose(&basis.v_h, rank, d_input));
        let scales = Self {
            log_mean: init.given(&LOG_MEAN, single(&basis.log_mean)),
            log_std: init.mapped(&LOG_STD, |u| initial_rho(u, epsilon).ln()),
        };
        Ok((init.given(&A, a), scales))
    }

    pub(super) fn each(&mut self, visit: &mut Visit<'_>) {
        visit(&LOG_MEAN, &mut self.log_mean);
        visit(&LOG_STD, &mut self.log_std);
    }
}

impl AdaptedLinear {
    /// Divergence between the distribution of random scales and `N(0, 1)` in nats, `[1]`; `None` without
    /// [`Extension::Scale`].
    ///
    /// # Formula
    ///
    /// With `m = exp(log_mean)`, `v = exp(2·log_std)`:
    ///
    /// ```text
    /// posterior from prior:  Σ −log_std + ½(v + m²) − ½
    /// prior from posterior:  Σ  log_std + (1 + m²)/(2v) − ½
    /// ```
    ///
    /// # References
    ///
    /// Samplawski et al. 2025, arXiv:2506.21408.
    pub fn kl_scale(&self, direction: KlDirection) -> Option<Tensor<1>> {
        let Some(Extension::Scale(scale)) = self.extension() else { return None };
        let log_mean = scale.log_mean.val();
        let dtype = log_mean.dtype();
        let (log_mean, log_std) = (widened(log_mean), widened(scale.log_std.val()));
        // The two directions exchange the widths and measure the mean in the narrower's place.
        let (log_ratio, log_distance) = match direction {
            KlDirection::PosteriorFromPrior => (log_std, log_mean),
            KlDirection::PriorFromPosterior => (log_std.clone().neg(), log_mean - log_std),
        };
        let squares = log_ratio.clone().mul_scalar(2.0).exp() + log_distance.mul_scalar(2.0).exp();
        Some((squares.mul_scalar(0.5) - log_ratio).add_scalar(-0.5).sum().cast(dtype))
    }
}
