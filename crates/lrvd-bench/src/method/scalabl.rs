//! Update of `ScalaBL`: random scales of the rank directions, in an orthonormal basis.
//!
//! ```text
//! update(x) = c · ((x·A) ⊙ s)·B        s = exp(log_mean) + exp(log_std) ⊙ eps ~ N(exp(log_mean), exp(log_std)²)
//! ```
//!
//! One draw per module and forward, or per sequence. The prior `N(0, 1)` is on `s`, not on its logarithm: a mean scale is
//! always positive, and a drawn one need not be. A is trained with the rest and stays orthonormal only at the start.
//! Source: Samplawski et al. 2025, arXiv:2506.21408; code in `BayesAdapt`.

use burn::module::Param;
use burn::tensor::module::linear;
use burn::tensor::{Tensor, TensorData};
use lrvd_burn::adapter::{
    AdaptedLinear, Axis, Extension, OpLayer, OpParameter, ParameterSchema, PreparedUpdate,
    UpdateOp, initial_uniform, widened,
};
use lrvd_burn::parameters::ParameterValue as _;
use lrvd_burn::parameters::values;
use lrvd_core::baselines::initial_rho;
use lrvd_core::linalg::{svd, transpose};
use lrvd_core::noise::NoiseKey;

use crate::error::Burn;
use crate::settings::KlDirection;

const LOG_MEAN: ParameterSchema = ParameterSchema::mean("lora_scale_log_mean", &[Axis::Rank], 0);
const LOG_STD: ParameterSchema = ParameterSchema::noise("lora_scale_log_std", &[Axis::Rank], 2);

/// Stream of the normals of the scales, `[1 | sequences, rank]`.
pub const SCALE: u32 = 68;

/// Scales `log_mean` and `log_std` between the factors, `[rank]` each.
#[derive(Debug)]
pub struct RandomScales {
    /// Upper end of the uniform distribution of the scales' initial standard deviations, which starts at `epsilon/√2`.
    pub epsilon: f64,
}

impl UpdateOp for RandomScales {
    /// ```text
    /// U·diag(s)·V = a LoRA's Aᵀ;   A = Vᵀ,   log_mean = ln s,   log_std = ln U(epsilon/√2, epsilon)
    /// ```
    fn start(
        &self,
        a: &mut Param<Tensor<2>>,
        _b: &mut Param<Tensor<2>>,
        key: NoiseKey,
    ) -> Burn<Vec<OpParameter>> {
        let [d_input, rank] = a.val().dims();
        let parts = svd(&values(a.val().transpose()), rank, d_input);
        if parts.values.iter().any(|&s| s <= 0.0 || !s.is_finite()) {
            return Err(lrvd_core::Error::undefined("lora_A", "is singular at the start").into());
        }
        let single = |values: &[f64]| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };
        let basis = single(&transpose(&parts.right, rank, d_input));
        a.set_data(TensorData::new(basis, [d_input, rank]));
        let log_mean: Vec<f64> = parts.values.iter().map(|s| s.ln()).collect();
        let log_std = |u: f32| initial_rho(f64::from(u), self.epsilon).ln() as f32;
        let log_std = initial_uniform(key, LOG_STD.initial_use, rank, log_std);
        Ok(vec![
            OpParameter::trainable(&LOG_MEAN, a, single(&log_mean), [rank]),
            OpParameter::trainable(&LOG_STD, a, log_std, [rank]),
        ])
    }

    fn parameter_count(&self, rank: usize, _: usize, _: usize) -> usize {
        2 * rank
    }

    fn is_random(&self) -> bool {
        true
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        let [log_mean, log_std] = [0, 1].map(|at| layer.extension.parameter::<1>(at));
        let mean = log_mean.exp().unsqueeze_dim::<2>(0);
        let scales = match layer.noise {
            None => mean,
            Some(noise) => {
                let std = log_std.exp();
                let eps: Tensor<3> = noise.normal(&std, [1, std.dims()[0]], SCALE);
                noise.for_rows(mean + eps.squeeze_dim::<2>(1) * std.unsqueeze_dim(0))
            }
        };
        let scales: Tensor<3> = scales.unsqueeze_dim(1);
        Box::new(move |x, _| {
            let h = linear(x, layer.a.val(), None) * scales.clone();
            linear(h.mul_scalar(layer.scaling), layer.b.val(), None)
        })
    }
}

/// Divergence between the distribution of the scales and `N(0, 1)` in nats, `[1]`; `None` of a layer without an op.
///
/// With `m = exp(log_mean)`, `v = exp(2·log_std)`:
///
/// ```text
/// standard, posterior from prior:  Σ −log_std + ½(v + m²) − ½
/// coded, prior from posterior:     Σ  log_std + (1 + m²)/(2v) − ½
/// ```
///
/// (In the published code the prior's mean is `1e-8` instead of 0, the floor under a logarithm.)
pub fn kl(layer: &AdaptedLinear, direction: KlDirection) -> Option<Tensor<1>> {
    let Some(Extension::Op(scales)) = layer.extension() else { return None };
    let [log_mean, log_std] = [0, 1].map(|at| scales.parameter::<1>(at));
    let dtype = log_mean.dtype();
    let log_mean = widened(log_mean);
    let log_std = widened(log_std);
    // The two directions exchange the widths and measure the mean in the narrower's place.
    let (log_ratio, log_distance) = match direction {
        KlDirection::Standard => (log_std, log_mean),
        KlDirection::Coded => (log_std.clone().neg(), log_mean - log_std),
    };
    let squares = log_ratio.clone().mul_scalar(2.0).exp() + log_distance.mul_scalar(2.0).exp();
    Some((squares.mul_scalar(0.5) - log_ratio).add_scalar(-0.5).sum().cast(dtype))
}
