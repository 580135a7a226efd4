//! Initial values, and adapters of the uncertainty baselines with them.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_core::baselines::{StdMap, blob, scala_bl};
use lrvd_core::error::ParameterError;
use lrvd_core::factor::FactorView;
use lrvd_core::noise::{NoiseKey, fill_normal, fill_uniform};

use super::config::{AdapterConfig, AdapterKind};
use super::extension::{
    AdapterMembers, ContextualGaussian, ElementGaussian, Extension, ScaleGaussian,
};
use super::linear::AdaptedLinear;
use super::low_rank::LowRankAdapter;

/// Use indices of the initial values on [`Stream::INIT`](lrvd_core::noise::Stream::INIT), beside 0 for
/// A and 1 for B.
mod index {
    pub(super) const NOISE_A: u32 = 2;
    pub(super) const NOISE_B: u32 = 3;
    pub(super) const W1: u32 = 4;
    pub(super) const B1: u32 = 5;
    pub(super) const W2: u32 = 6;
    pub(super) const B2: u32 = 7;
    /// A of the first member; the others follow.
    pub(super) const MEMBERS: u32 = 16;
}

/// `U(-bound, bound)`.
pub(super) fn uniform(key: NoiseKey, n: usize, bound: f64) -> Vec<f32> {
    let mut values = vec![0.0; n];
    if bound > 0.0 {
        fill_uniform(key, 0, &mut values);
        for v in &mut values {
            *v = (2.0 * *v - 1.0) * bound as f32;
        }
    }
    values
}

/// `N(0, std²)`.
pub(super) fn normal(key: NoiseKey, n: usize, std: f32) -> Vec<f32> {
    let mut values = vec![0.0; n];
    fill_normal(key, 0, &mut values);
    for v in &mut values {
        *v *= std;
    }
    values
}

/// What makes the values of one layer.
struct Start<'a> {
    config: &'a AdapterConfig,
    key: NoiseKey,
    d_input: usize,
    d_output: usize,
    device: Device,
    dtype: DType,
}

/// Attaches the adapter of a kind that needs an extension.
///
/// # Errors
///
/// [`ParameterError`] if the layer is too narrow for the rank.
pub(super) fn attach_extended(
    config: &AdapterConfig,
    layer: &mut AdaptedLinear,
    key: NoiseKey,
) -> Result<(), ParameterError> {
    let like = layer.weight.val();
    let start = Start {
        config,
        key,
        d_input: layer.d_input(),
        d_output: layer.d_output(),
        device: like.device().inner().autodiff(),
        dtype: super::adapter_dtype(like.dtype()),
    };
    let (a, b, extension) = match config.kind {
        AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std } => {
            let (a, b) = start.means(mean_std);
            (a, b, start.element_gaussian(both, rho, rho_std))
        }
        AdapterKind::Blob { epsilon } => {
            let (a, b) = start.means(None);
            (a, b, start.squares(epsilon))
        }
        AdapterKind::ScalaBl { epsilon } => start.scales(epsilon)?,
        AdapterKind::CLora { hidden } => {
            let (a, b) = start.means(None);
            (a, b, start.context(hidden))
        }
        AdapterKind::LoraEnsemble { members, gain } => {
            let extension = Extension::Members(start.members(members, gain));
            place(layer, None, extension, config.rank);
            return Ok(());
        }
        AdapterKind::Lora { .. } | AdapterKind::AdaLora | AdapterKind::Variational { .. } => {
            return Ok(());
        }
    };
    let adapter = LowRankAdapter {
        a: start.parameter(a, [start.d_input, config.rank]),
        b: start.parameter(b, [config.rank, start.d_output]),
        e: None,
        posterior: None,
        scaling: config.scaling(),
        dropout: config.dropout,
    };
    place(layer, Some(adapter), extension, config.rank);
    Ok(())
}

fn place(
    layer: &mut AdaptedLinear,
    adapter: Option<LowRankAdapter>,
    extension: Extension,
    rank: usize,
) {
    layer.detach();
    if let Some(adapter) = adapter {
        layer.attach(adapter, rank);
    }
    layer.extend(extension).expect("its shapes are the layer's");
}

impl Start<'_> {
    /// Means as LoRA's with `B = 0`, or normal ones.
    fn means(&self, std: Option<f64>) -> (Vec<f32>, Vec<f32>) {
        let (n_a, n_b) = (self.config.rank * self.d_input, self.config.rank * self.d_output);
        match std {
            Some(std) => {
                (normal(self.key, n_a, std as f32), normal(self.key.with_use(1), n_b, std as f32))
            }
            None => (uniform(self.key, n_a, 1.0 / (self.d_input as f64).sqrt()), vec![0.0; n_b]),
        }
    }

    fn element_gaussian(&self, both: bool, rho: f64, rho_std: f64) -> Extension {
        let rank = self.config.rank;
        let noise = |index, shape: [usize; 2]| {
            let mut values = normal(self.key.with_use(index), shape[0] * shape[1], rho_std as f32);
            for v in &mut values {
                *v += rho as f32;
            }
            self.parameter(values, shape)
        };
        Extension::Gaussian(ElementGaussian::new(
            StdMap::Softplus,
            noise(index::NOISE_A, [self.d_input, rank]),
            both.then(|| noise(index::NOISE_B, [rank, self.d_output])),
        ))
    }

    fn squares(&self, epsilon: f64) -> Extension {
        let shape = [self.d_input, self.config.rank];
        let values = self.units(index::NOISE_A, shape[0] * shape[1]);
        let values = values.into_iter().map(|u| blob::initial_rho(u, epsilon) as f32).collect();
        let noise = ElementGaussian::new(StdMap::Square, self.parameter(values, shape), None);
        Extension::Gaussian(noise)
    }

    /// The basis of a LoRA's A and scales for it.
    fn scales(&self, epsilon: f64) -> Result<(Vec<f32>, Vec<f32>, Extension), ParameterError> {
        let rank = self.config.rank;
        let (of_lora, b) = self.means(None);
        // Rank-major, as the core and the papers have it.
        let rows: Vec<f64> = (0..rank)
            .flat_map(|i| of_lora.iter().skip(i).step_by(rank).map(|&v| f64::from(v)))
            .collect();
        let view = FactorView::new("a", &rows, rank, self.d_input)
            .map_err(|_| ParameterError::Empty { name: "a" })?;
        let basis = scala_bl::scala_bl_basis(view)?;
        let a = (0..self.d_input)
            .flat_map(|j| basis.v_h.iter().skip(j).step_by(self.d_input).map(|&v| v as f32))
            .collect();
        let log_std = self.units(index::NOISE_A, rank);
        let log_std = log_std.into_iter().map(|u| scala_bl::initial_log_std_dev(u, epsilon) as f32);
        let extension = Extension::Scale(ScaleGaussian {
            log_mean: self.parameter(basis.log_mean.iter().map(|&v| v as f32).collect(), [rank]),
            log_std: self.parameter(log_std.collect(), [rank]),
        });
        Ok((a, b, extension))
    }

    fn context(&self, hidden: usize) -> Extension {
        let rank = self.config.rank;
        let outputs = 2 * rank * rank;
        let values = |index, n, inputs: usize| {
            uniform(self.key.with_use(index), n, 1.0 / (inputs as f64).sqrt())
        };
        Extension::Contextual(ContextualGaussian {
            w1: self.parameter(values(index::W1, rank * hidden, rank), [rank, hidden]),
            b1: self.parameter(values(index::B1, hidden, rank), [hidden]),
            w2: self.parameter(values(index::W2, hidden * outputs, hidden), [hidden, outputs]),
            b2: self.parameter(values(index::B2, outputs, hidden), [outputs]),
        })
    }

    fn members(&self, members: usize, gain: f64) -> AdapterMembers {
        let rank = self.config.rank;
        let bound = gain * (6.0 / (self.d_input + rank) as f64).sqrt();
        let a = (0..members).flat_map(|m| {
            uniform(self.key.with_use(index::MEMBERS + m as u32), self.d_input * rank, bound)
        });
        let b = vec![0.0; members * rank * self.d_output];
        AdapterMembers {
            a: self.parameter(a.collect(), [members, self.d_input, rank]),
            b: self.parameter(b, [members, rank, self.d_output]),
            scaling: self.config.scaling(),
            dropout: self.config.dropout,
        }
    }

    /// Uniform numbers in `[0, 1)`.
    fn units(&self, index: u32, n: usize) -> Vec<f64> {
        let mut values = vec![0.0f32; n];
        fill_uniform(self.key.with_use(index), 0, &mut values);
        values.into_iter().map(f64::from).collect()
    }

    /// A trainable parameter.
    fn parameter<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<D>> {
        let data = TensorData::new(values, shape);
        Param::from_tensor(Tensor::from_data(data, (&self.device, self.dtype)).require_grad())
    }
}
