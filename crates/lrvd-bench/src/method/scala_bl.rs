//! `ScalaBL`: noise on one scale per rank direction.
//!
//! Objective, by alternating updates on every batch (see `second_optimizer`):
//!
//! ```text
//! ΔW = c·B·diag(s)·V,   s ~ N(exp(log_mean), exp(log_std)²)      one draw per module and forward
//! 1. AdamW on the mean negative log-likelihood: B, V, log_mean, log_std, head
//! 2. descent at 0.2 on π_i·KL(q ‖ N(0, 1)): log_mean, log_std
//! ```
//!
//! Parameters: `rank·(d_input + d_output + 2)` per layer. Source: Samplawski et al. 2025,
//! arXiv:2506.21408; update and schedule as in the `BayesAdapt` suite of the same authors. Its code
//! computes the divergence of the prior from the posterior; `kl_direction: coded` does so too.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::{DrawPer, Scheme};
use lrvd_core::baselines::{KlDirection, scala_bl};
use serde::{Deserialize, Serialize};

use super::kl_cycle::{GAMMA, KlCycle};
use super::second_optimizer::{Optimizers, SecondOptimizer};
use super::setup::{adapter, noisy_groups};
use super::{Method, MethodError, RankChange, RankRequest, StepState, Tuning};
use crate::settings::ExperimentConfig;

/// `ScalaBL`.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    Ok(Box::new(ScalaBl::new(config, request)?))
}

/// Which divergence is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    /// Posterior from prior.
    Standard,
    /// Prior from posterior, as the published code does.
    Coded,
}

/// Settings of `ScalaBL`.
///
/// | Field | Default | Meaning |
/// |---|---|---|
/// | `epsilon` | 0.05 | upper end of the start of the scales' deviations, `U(ε/√2, ε)`; in (0, 1] |
/// | `kl_direction` | standard | or coded |
/// | `kl_learning_rate` | 0.2 | rate of the second optimiser |
/// | `gamma` | 8 | dataset rescaling of the KL's cycle; null makes a cycle an epoch |
/// | `optimizers` | bayesadapt | or two |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScalaBlSettings {
    epsilon: f64,
    kl_direction: Direction,
    kl_learning_rate: f64,
    gamma: Option<f64>,
    optimizers: Optimizers,
}

impl Default for ScalaBlSettings {
    fn default() -> Self {
        Self {
            epsilon: scala_bl::INITIAL_STD_DEV_LIMIT,
            kl_direction: Direction::Standard,
            kl_learning_rate: 0.2,
            gamma: Some(GAMMA),
            optimizers: Optimizers::Bayesadapt,
        }
    }
}

/// `ScalaBL`.
#[derive(Clone, Debug)]
struct ScalaBl {
    adapter: AdapterConfig,
    direction: KlDirection,
    second: SecondOptimizer,
}

impl ScalaBl {
    fn new(config: &ExperimentConfig, request: RankRequest) -> Result<Self, MethodError> {
        let settings: ScalaBlSettings = config.method("scalabl")?;
        let kind = AdapterKind::ScalaBl { epsilon: settings.epsilon };
        let adapter = adapter(config, kind, request);
        adapter.check()?;
        let cycle = KlCycle::new(config, settings.gamma)?;
        let rate = settings.kl_learning_rate;
        let second = SecondOptimizer::new(config, rate, cycle, settings.optimizers)?;
        let direction = match settings.kl_direction {
            Direction::Standard => KlDirection::PosteriorFromPrior,
            Direction::Coded => KlDirection::PriorFromPosterior,
        };
        Ok(Self { adapter, direction, second })
    }
}

impl Tuning for ScalaBl {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, config: &ExperimentConfig) -> ParameterGroups {
        noisy_groups(config, 1.0)
    }

    fn training_scheme(&self) -> Scheme {
        Scheme::Weights(DrawPer::Batch)
    }

    fn before_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        self.second.before_update(state)?;
        Ok(None)
    }

    fn after_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        let direction = self.direction;
        self.second.after_update(state, |model| {
            total_over_adapters(model, |layer| layer.kl_scale(direction))
        })?;
        Ok(None)
    }

    fn draws(&self, config: &ExperimentConfig) -> Vec<usize> {
        config.draws.clone()
    }
}
