//! LoRA-Ensemble: several adapters on one backbone, trained and asked in one batched pass.
//!
//! Objective: the mean over the members of each one's mean negative log-likelihood; the batch is
//! repeated member by member. Answer: the average of the members' probabilities, the only one there
//! is (`k = 0`). `A` starts Xavier-uniform with a large gain, `B` at 0, so that members differ. The update is `B·A`,
//! scaled by 1 whatever the experiment's `lora_alpha`, as published, and the factors learn at the rate that belongs to
//! it: a step of B moves the weight as some twelve of LoRA's do at the same rate.
//! Parameters: `members·rank·(d_input + d_output)` per layer. The classifier of an encoder is shared by the members,
//! unlike in the published code for image models, where each has its own
//! (`docs/guides/presets.md` says why); on a language model each member adapts the `lm_head` by itself.
//! Source: `Mühlematter` et al. 2024, arXiv:2405.14438.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Attach, Logits, Predict, RankPolicy, Regularise};
use lrvd_models::AutoClassifier;

use super::setup::adapter;
use super::{Inputs, PostHoc, RankRequest};
use crate::settings::{ExperimentConfig, LoraEnsembleSettings};

#[derive(Clone, Debug)]
pub(super) struct LoraEnsemble {
    adapter: AdapterConfig,
    learning_rate: f64,
}

impl LoraEnsemble {
    pub(super) fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let LoraEnsembleSettings { members, gain, learning_rate } = config.methods.lora_ensemble;
        let kind = AdapterKind::LoraEnsemble { members, gain };
        let adapter = adapter(config, kind, request);
        // `c = lora_alpha / rank` is 1.
        let adapter = AdapterConfig { lora_alpha: adapter.rank as f64, ..adapter };
        Self { adapter, learning_rate }
    }
}

impl Attach<AutoClassifier> for LoraEnsemble {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        let mut groups = *settings;
        groups.adapter.learning_rate = self.learning_rate;
        groups
    }
}

impl Regularise<AutoClassifier> for LoraEnsemble {}
impl RankPolicy<AutoClassifier> for LoraEnsemble {}

impl Predict<AutoClassifier> for LoraEnsemble {
    fn predict(
        &self,
        model: &AutoClassifier,
        inputs: &Inputs<'_>,
        _draws: usize,
    ) -> Result<Logits, lrvd_burn::Error> {
        inputs.logits(model, &Pass::mean())
    }
}

impl PostHoc for LoraEnsemble {}
