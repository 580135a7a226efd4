//! LoRA-Ensemble: several adapters on one backbone, trained and evaluated in one batched pass.
//!
//! ```text
//! update(x of member m) = scaling · x·A_m·B_m
//! ```
//!
//! Objective: the mean over the members of each one's mean negative log-likelihood; the batch is repeated member by member.
//! Answer: the average of the members' probabilities (`k = 0`). `A` starts Xavier-uniform with a large gain, `B` at 0. The
//! update is `B·A`, scaled by 1 whatever `lora_alpha` is, as published, with its own learning rate. Parameters:
//! `members·rank·(d_input + d_output)` per layer. Members share the classifier of an encoder (`docs/guides/reproduce.md` says
//! why), and adapt the `lm_head` of a language model each by itself. Source: `Mühlematter` et al. 2024, arXiv:2405.14438.

use std::sync::Arc;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use lrvd_burn::adapter::{
    AdapterConfig, Axis, OpLayer, OpParameter, ParameterSchema, PreparedUpdate, UpdateOp,
    initial_uniform,
};
use lrvd_burn::parameters::ParameterValue as _;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Method, Prediction, Setup, TrainConfig};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoModel;

use super::setup::plain_lora;
use super::{Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{Config, LoraEnsembleSettings};

const A: ParameterSchema =
    ParameterSchema::mean("lora_A_members", &[Axis::Other, Axis::Input, Axis::Rank], 16);
const B: ParameterSchema =
    ParameterSchema::mean("lora_B_members", &[Axis::Other, Axis::Rank, Axis::Output], 16);

/// Members side by side: the adapter's factors are the first, the others are `[members − 1, ...]`.
#[derive(Debug)]
pub struct Members {
    /// Number of members.
    pub count: usize,
    /// Gain of the Xavier-uniform initial values of A: large, so that members differ.
    pub gain: f64,
}

impl UpdateOp for Members {
    /// ```text
    /// A ~ U(±gain·sqrt(6/(d_input + rank))),  B = 0,   for every member
    /// ```
    fn start(
        &self,
        a: &mut Param<Tensor<2>>,
        b: &mut Param<Tensor<2>>,
        key: NoiseKey,
    ) -> Burn<Vec<OpParameter>> {
        let [d_input, rank] = a.val().dims();
        let [_, d_output] = b.val().dims();
        let bound = self.gain * (6.0 / (d_input + rank) as f64).sqrt();
        let values = |member| {
            let initial_use = A.initial_use + member as u32;
            initial_uniform(key, initial_use, d_input * rank, |u| (2.0 * u - 1.0) * bound as f32)
        };
        let first = values(0);
        let others = self.count - 1;
        let further = (1..self.count).flat_map(values).collect();
        a.set_data(TensorData::new(first, [d_input, rank]));
        let zeros = vec![0.0; others * rank * d_output];
        Ok(vec![
            OpParameter::trainable(&A, a, further, [others, d_input, rank]),
            OpParameter::trainable(&B, a, zeros, [others, rank, d_output]),
        ])
    }

    fn parameter_count(&self, rank: usize, d_input: usize, d_output: usize) -> usize {
        (self.count - 1) * rank * (d_input + d_output)
    }

    fn members(&self) -> usize {
        self.count
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        let all = |first: Tensor<2>, index| {
            let others = layer.extension.parameter::<3>(index);
            Tensor::cat(vec![first.unsqueeze_dim(0), others], 0)
        };
        let (a, b) = if self.count == 1 {
            (layer.a.val().unsqueeze_dim(0), layer.b.val().unsqueeze_dim(0))
        } else {
            (all(layer.a.val(), 0), all(layer.b.val(), 1))
        };
        Box::new(move |x, use_index| layer.members_update(x, use_index, a.clone(), b.clone()))
    }
}

#[derive(Clone, Debug)]
pub(super) struct LoraEnsemble {
    adapter: AdapterConfig,
    settings: LoraEnsembleSettings,
}

impl LoraEnsemble {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let adapter = plain_lora(config, request);
        // `c = lora_alpha / rank` is 1.
        let adapter = AdapterConfig { lora_alpha: adapter.rank as f64, ..adapter };
        Ok(Self { adapter, settings: config.methods.lora_ensemble })
    }
}

impl Method<AutoModel> for LoraEnsemble {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        let LoraEnsembleSettings { members: count, gain, learning_rate } = self.settings;
        let op = Arc::new(Members { count, gain });
        let mut setup = Setup { op: Some(op), ..Setup::new(self.adapter, config) };
        setup.groups.adapter.learning_rate = learning_rate;
        Ok(setup)
    }

    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        inputs.logits(model, &Pass::mean())
    }
}
