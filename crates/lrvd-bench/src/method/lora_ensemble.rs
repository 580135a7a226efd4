//! LoRA-Ensemble: several adapters on one backbone, trained and asked in one batched pass.
//!
//! Objective: the mean over the members of each one's mean negative log-likelihood; the batch is
//! repeated member by member. Answer: the average of the members' probabilities, the only one there
//! is (`k = 0`). `A` starts Xavier-uniform with a large gain, `B` at 0, so that members differ; the
//! factors learn at the published rate whatever the experiment's, since at that gain a step of B
//! moves the weight as 24 steps of LoRA's do.
//! Parameters: `members·rank·(d_input + d_output)` per layer. The head is shared by the members, unlike
//! in the published code for image models, where each has its own; on a language model there is none
//! beyond the adapted `lm_head`. Source: `Mühlematter` et al. 2024, arXiv:2405.14438.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::Pass;
use serde::{Deserialize, Serialize};

use super::setup::{adapter, in_range};
use super::{Method, MethodError, RankRequest, Tuning};
use crate::backbone::TaskModel;
use crate::eval::Inputs;
use crate::settings::ExperimentConfig;

/// LoRA-Ensemble.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    Ok(Box::new(LoraEnsemble::new(config, request)?))
}

/// Settings of LoRA-Ensemble.
///
/// | Field | Default | Range |
/// |---|---|---|
/// | `members` | 4 | 1 to 4096 |
/// | `gain` | 10 | above 0, of the start of A |
/// | `learning_rate` | 1e-4 | of the factors, published with that gain; at least 0 |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LoraEnsembleSettings {
    members: usize,
    gain: f64,
    learning_rate: f64,
}

impl Default for LoraEnsembleSettings {
    fn default() -> Self {
        Self { members: 4, gain: 10.0, learning_rate: 1e-4 }
    }
}

/// LoRA-Ensemble.
#[derive(Clone, Debug)]
struct LoraEnsemble {
    adapter: AdapterConfig,
    members: usize,
    learning_rate: f64,
}

impl LoraEnsemble {
    fn new(config: &ExperimentConfig, request: RankRequest) -> Result<Self, MethodError> {
        let settings: LoraEnsembleSettings = config.method("lora-ensemble")?;
        let LoraEnsembleSettings { members, gain, learning_rate } = settings;
        in_range("lora-ensemble.members", members as f64, 1.0, 4096.0)?;
        in_range("lora-ensemble.gain", gain, f64::MIN_POSITIVE, 1e6)?;
        in_range("lora-ensemble.learning_rate", learning_rate, 0.0, 1e3)?;
        let kind = AdapterKind::LoraEnsemble { members, gain };
        Ok(Self { adapter: adapter(config, kind, request), members, learning_rate })
    }
}

impl Tuning for LoraEnsemble {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, config: &ExperimentConfig) -> ParameterGroups {
        let mut groups = config.groups(self.is_variational());
        groups.adapter.learning_rate = self.learning_rate;
        groups
    }

    fn members(&self) -> usize {
        self.members
    }

    fn predict(
        &self,
        model: &TaskModel,
        inputs: &Inputs<'_>,
        _draws: usize,
    ) -> Result<Vec<f64>, MethodError> {
        Ok(inputs.logits_of_members(model, &Pass::mean(), self.members)?)
    }
}
