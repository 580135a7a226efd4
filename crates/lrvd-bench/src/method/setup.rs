//! What methods share when they are set up: adapters and rates.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::optimizer::ParameterGroups;

use super::RankRequest;
use crate::error::Result;
use crate::settings::ExperimentConfig;

/// The adapter of `kind` with the experiment's scaling and dropout, at the rank asked for.
pub(super) fn adapter(
    config: &ExperimentConfig,
    kind: AdapterKind,
    request: RankRequest,
) -> AdapterConfig {
    AdapterConfig {
        kind,
        rank: request.rank(config),
        lora_alpha: request.lora_alpha(config),
        dropout: config.adapter_dropout,
    }
}

/// The peak rate at which a parameter under `AdamW`, which moves by at most its rate a step, can just go `distance` in the
/// run; 0 in a run whose every rate is 0.
pub(super) fn rate_to_reach(config: &ExperimentConfig, distance: f64) -> Result<f64> {
    let schedule = config.training(0).check()?.schedule();
    let reach: f64 = (0..config.steps as u32).map(|step| schedule.factor(step)).sum();
    Ok(if reach > 0.0 { distance / reach } else { 0.0 })
}

/// The rates of a method with separate noise, whose means decay as `BayesLoRA`'s: its prior does what decay would.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoisyRates {
    weight_decay: f64,
    noise: f64,
}

impl NoisyRates {
    pub(super) fn new(config: &ExperimentConfig, noise: f64) -> Self {
        Self { weight_decay: config.adapter_weight_decay, noise }
    }

    /// The rates made from those of the settings.
    pub(super) fn groups(self, settings: &ParameterGroups) -> ParameterGroups {
        let mut groups = *settings;
        groups.adapter.weight_decay = self.weight_decay;
        groups.log_variance.learning_rate = self.noise;
        groups
    }
}
