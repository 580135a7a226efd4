//! What methods share when they are set up: adapters and rates.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::optimizer::ParameterGroups;

use super::RankRequest;
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
        lora_alpha: config.lora_alpha,
        dropout: config.adapter_dropout,
    }
}

/// The rates of a method whose noise parameters learn `noise_factor` times as fast as its means, and
/// whose means decay as `BayesLoRA`'s: its prior does what decay would.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoisyRates {
    weight_decay: f64,
    noise_factor: f64,
}

impl NoisyRates {
    pub(super) fn new(config: &ExperimentConfig, noise_factor: f64) -> Self {
        Self { weight_decay: config.adapter_weight_decay, noise_factor }
    }

    /// The rates made from those of the settings.
    pub(super) fn groups(self, settings: &ParameterGroups) -> ParameterGroups {
        let mut groups = *settings;
        groups.adapter.weight_decay = self.weight_decay;
        groups.log_variance.learning_rate = settings.adapter.learning_rate * self.noise_factor;
        groups
    }
}
