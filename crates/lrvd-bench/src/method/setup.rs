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
    let rank = match request {
        RankRequest::Initial => config.initial_rank,
        RankRequest::Average(rank) => rank,
    };
    AdapterConfig { kind, rank, lora_alpha: config.lora_alpha, dropout: config.adapter_dropout }
}

/// The rates of a method whose noise parameters learn `noise_factor` times as fast as its means, and
/// whose means decay as `BayesLoRA`'s: its prior does what decay would.
pub(super) fn noisy_groups(config: &ExperimentConfig, noise_factor: f64) -> ParameterGroups {
    let mut groups = config.groups(true);
    groups.log_variance.learning_rate = config.learning_rate * noise_factor;
    groups
}
