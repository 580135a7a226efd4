//! `ScalaBL`: noise on one scale per rank direction.
//!
//! Objective, by alternating updates on every batch (see `second_optimizer`):
//!
//! ```text
//! ΔW = c·B·diag(s)·V,   s ~ N(exp(log_mean), exp(log_std)²)      one draw per module and forward
//! 1. AdamW on the mean negative log-likelihood: B, V, log_mean, log_std, head
//! 2. descent at 0.1 on π_i·KL(N(0, 1) ‖ q): log_mean, log_std
//! ```
//!
//! Parameters: `rank·(d_input + d_output + 2)` per layer. Source: Samplawski et al. 2025,
//! arXiv:2506.21408; update and schedule as in the `BayesAdapt` suite of the same authors, whose code
//! computes the divergence of the prior from the posterior. Rate and direction belong together. The coded divergence
//! pulls `ln σ` up by `(1 + m²)/σ² − 1`, 600 at the start; the standard one (`kl_direction: standard`) by `1 − σ²`, at
//! most 1: a tenth of a nat in a cycle at the published rate, of the 3.2 nats to the prior. It has a rate of 1.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::{DrawPer, Scheme};
use lrvd_burn::train::{Attach, Predict, RankChange, RankPolicy, Regularise, StepState};
use lrvd_core::baselines::KlDirection;
use lrvd_models::AutoClassifier;

use super::kl_cycle::{KlCycle, PUBLISHED_STEPS};
use super::second_optimizer::SecondOptimizer;
use super::setup::{NoisyRates, adapter};
use super::{PostHoc, RankRequest};
use crate::settings::{ExperimentConfig, KlDirectionSetting};

/// Published rate of the second optimiser for Llama-2, in the coded direction.
const PUBLISHED_RATE: f64 = 0.1;
/// That of the standard direction: it carries `ln σ` to the prior's within the cycles of a published run.
const STANDARD_RATE: f64 = 1.0;

#[derive(Clone, Debug)]
pub(super) struct ScalaBl {
    adapter: AdapterConfig,
    direction: KlDirection,
    cycle: KlCycle,
    second: SecondOptimizer,
    rates: NoisyRates,
}

impl ScalaBl {
    pub(super) fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let settings = config.methods.scalabl;
        let kind = AdapterKind::ScalaBl { epsilon: settings.epsilon };
        let adapter = adapter(config, kind, request);
        let cycle = KlCycle::new(config, settings.gamma, PUBLISHED_STEPS);
        let (direction, rate) = match settings.kl_direction {
            KlDirectionSetting::Standard => (KlDirection::PosteriorFromPrior, STANDARD_RATE),
            KlDirectionSetting::Coded => (KlDirection::PriorFromPosterior, PUBLISHED_RATE),
        };
        let rate = settings.kl_learning_rate.unwrap_or(rate);
        let second = SecondOptimizer::new(rate, settings.optimizers);
        let rates = NoisyRates::new(config, config.learning_rate * settings.noise_rate_factor);
        Self { adapter, direction, cycle, second, rates }
    }
}

impl Attach<AutoClassifier> for ScalaBl {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        self.rates.groups(settings)
    }
}

impl Regularise<AutoClassifier> for ScalaBl {
    fn scheme(&self) -> Scheme {
        Scheme::Weights(DrawPer::Batch)
    }
}

impl RankPolicy<AutoClassifier> for ScalaBl {
    fn before_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
    ) -> Result<Option<RankChange>, lrvd_burn::Error> {
        self.second.before_update(state);
        Ok(None)
    }

    fn after_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
    ) -> Result<Option<RankChange>, lrvd_burn::Error> {
        let direction = self.direction;
        self.second.after_update(state, self.cycle, |model| {
            total_over_adapters(model, |layer| layer.kl_scale(direction))
        })?;
        Ok(None)
    }
}

impl Predict<AutoClassifier> for ScalaBl {}
impl PostHoc for ScalaBl {}
