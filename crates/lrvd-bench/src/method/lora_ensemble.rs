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

use super::setup::adapter;
use super::{Method, MethodError, RankRequest, Tuning};
use crate::backbone::TaskModel;
use crate::eval::Inputs;
use crate::settings::{ExperimentConfig, LoraEnsembleSettings};

/// LoRA-Ensemble.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    Ok(Box::new(LoraEnsemble::new(config, request)))
}

/// LoRA-Ensemble.
#[derive(Clone, Debug)]
struct LoraEnsemble {
    adapter: AdapterConfig,
    members: usize,
    learning_rate: f64,
}

impl LoraEnsemble {
    fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let LoraEnsembleSettings { members, gain, learning_rate } = config.methods.lora_ensemble;
        let kind = AdapterKind::LoraEnsemble { members, gain };
        Self { adapter: adapter(config, kind, request), members, learning_rate }
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
