//! Adapters on the host, in f64 and in the rank-major layout of `lrvd_core`.

use burn::module::Module as _;
use burn::tensor::{DType, Tensor};
use lrvd_core::family::VariationalFamily;
use lrvd_core::posterior::Posterior as CorePosterior;

use crate::adapter::{LowRankAdapter, Posterior};
use crate::error::Error;
use crate::files::HostTensor;

/// Noise parameters on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostNoise {
    /// The family.
    pub family: VariationalFamily,
    /// One for each rank direction, or one for each entry of A, `[rank, d_input]`.
    pub a: Vec<f64>,
    /// One for each entry of B, `[rank, d_output]`; empty where there is one for each rank direction.
    pub b: Vec<f64>,
}

/// One adapter, read back from the device.
#[derive(Clone, Debug, PartialEq)]
pub struct HostAdapter {
    /// Current rank.
    pub rank: usize,
    /// Features in.
    pub d_input: usize,
    /// Features out.
    pub d_output: usize,
    /// Down-projection, `[rank, d_input]`, row-major.
    pub a: Vec<f64>,
    /// Up-projection, `[rank, d_output]`, row-major.
    pub b: Vec<f64>,
    /// AdaLoRA's singular values.
    pub e: Option<Vec<f64>>,
    /// Noise parameters.
    pub noise: Option<HostNoise>,
    /// The factor `c`.
    pub scaling: f64,
}

impl HostAdapter {
    /// Reads `adapter` back from its device.
    pub fn read(adapter: &LowRankAdapter) -> Self {
        let adapter = &adapter.valid();
        let noise = adapter.posterior().map(|posterior| {
            let (a, b) = match posterior {
                Posterior::RankVariance(p)
                | Posterior::NoiseToSignal(p)
                | Posterior::AsymRankVariance(p) => (values(p.value.val()), Vec::new()),
                Posterior::ElementVariance(p) => (values(p.a.val().transpose()), values(p.b.val())),
            };
            HostNoise { family: posterior.family(), a, b }
        });
        Self {
            rank: adapter.rank(),
            d_input: adapter.d_input(),
            d_output: adapter.d_output(),
            a: values(adapter.a.val().transpose()),
            b: values(adapter.b.val()),
            e: adapter.singular_values().map(|e| values(e.val())),
            noise,
            scaling: adapter.scaling,
        }
    }

    /// The posterior as the core sees it, if there is one.
    pub fn posterior(&self) -> Result<Option<CorePosterior<'_>>, lrvd_core::Error> {
        let Some(HostNoise { family, a, b }) = &self.noise else { return Ok(None) };
        let b = if b.is_empty() { a } else { b };
        let shape = [self.rank, self.d_input, self.d_output];
        CorePosterior::new(*family, shape, [&self.a, &self.b], [a, b]).map(Some)
    }
}

/// The values of `tensor` in row-major order.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.without_autodiff().into_data().iter::<f64>().collect()
}

/// The values of a flattened tensor under `shape`, in single precision unless they are doubles.
pub(crate) fn stored(flat: Tensor<1>, shape: &[usize]) -> Result<HostTensor, Error> {
    let data = flat.into_data();
    if data.dtype() == DType::F64 {
        HostTensor::from_f64(shape, &data.iter::<f64>().collect::<Vec<_>>())
    } else {
        HostTensor::from_f32(shape, &data.iter::<f32>().collect::<Vec<_>>())
    }
}
