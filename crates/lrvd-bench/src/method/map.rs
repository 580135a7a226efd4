//! MAP: maximum likelihood with a Gaussian prior on the adapter, or what is called so.
//!
//! Objective: mean negative log-likelihood, with decoupled decay of the factors (the default, as
//! published code has it; under `AdamW` that is no prior), or, with `l2_in_loss`, plus
//!
//! ```text
//! precision / (2·N_train) · (Σ A² + Σ B²)          the prior N(0, 1/precision) on every entry
//! ```
//!
//! The decay is `1/Σ_t η_t`, of the same effect in runs of any length: a factor that the likelihood leaves alone ends at
//! `1/e` of its start. The published 1e-5 is a decay in name: `Σ_t η_t` is 0.25 in the published run, which leaves
//! all but 2.5 millionths.
//!
//! Parameters: `rank·(d_input + d_output)` per layer. Source: the code of Wang et al. 2024,
//! arXiv:2406.11675 (decay).

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Attach, Predict, RankPolicy, Regularise, StepSizes, Terms};
use lrvd_models::AutoClassifier;

use super::setup::{adapter, rate_to_reach};
use super::{PostHoc, RankRequest};
use crate::error::Result;
use crate::settings::{ExperimentConfig, MapSettings};

#[derive(Clone, Debug)]
pub(super) struct Map {
    adapter: AdapterConfig,
    settings: MapSettings,
    weight_decay: f64,
}

impl Map {
    pub(super) fn new(config: &ExperimentConfig, request: RankRequest) -> Result<Self> {
        let kind = AdapterKind::Lora { b_bound: config.lora_b_bound };
        let settings = config.methods.map;
        let weight_decay = match settings.weight_decay {
            _ if settings.l2_in_loss => 0.0,
            Some(decay) => decay,
            None if config.learning_rate > 0.0 => {
                rate_to_reach(config, 1.0)? / config.learning_rate
            }
            None => 0.0,
        };
        Ok(Self { adapter: adapter(config, kind, request), settings, weight_decay })
    }
}

impl Attach<AutoClassifier> for Map {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        let mut groups = *settings;
        groups.adapter.weight_decay = self.weight_decay;
        groups
    }
}

impl Regularise<AutoClassifier> for Map {
    fn terms(
        &self,
        model: &AutoClassifier,
        _pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Terms, lrvd_burn::Error> {
        if !self.settings.l2_in_loss {
            return Ok(Terms::none());
        }
        let squares = total_over_adapters(model, |layer| {
            let adapter = layer.low_rank()?;
            Some(adapter.a.val().square().sum() + adapter.b.val().square().sum())
        });
        let weight = 0.5 * self.settings.precision / sizes.n_train as f64;
        Ok(Terms::penalty(squares.map(|squares| squares.mul_scalar(weight))))
    }
}

impl RankPolicy<AutoClassifier> for Map {}
impl Predict<AutoClassifier> for Map {}
impl PostHoc for Map {}
