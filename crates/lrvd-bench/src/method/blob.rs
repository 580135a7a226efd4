//! BLoB: noise on the entries of A, two optimisers.
//!
//! Objective, by alternating updates on every batch (see `second_optimizer`):
//!
//! ```text
//! q(A) = Π N(μ, Ω²),   Ω = G²,   B deterministic and 0 at the start
//! 1. AdamW on the mean negative log-likelihood under flipout: μ, B, head
//! 2. descent at 0.01, on GLUE 0.002, on π_i·KL(q ‖ N(0, 0.2²)): μ by the KL's gradient, G by both, never clipped
//! ```
//!
//! The KL is that of the whole weight under a low-rank prior (`lrvd_core::baselines::blob`). `k` draws
//! use flipout as training does; `k = 0` is the mean. Parameters: `rank·(2·d_input + d_output)` per
//! layer. Source: Wang et al. 2024, arXiv:2406.11675; `optimizers: bayesadapt` as the `BayesAdapt` suite
//! trains it.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::Scheme;
use lrvd_burn::train::{Attach, Logits, Predict, RankChange, RankPolicy, Regularise, StepState};
use lrvd_core::baselines::ElementReduction;
use lrvd_models::AutoClassifier;

use super::kl_cycle::{KlCycle, PUBLISHED_STEPS};
use super::second_optimizer::SecondOptimizer;
use super::setup::{NoisyRates, adapter};
use super::{Inputs, PostHoc, RankRequest};
use crate::settings::{BlobSettings, ExperimentConfig};

#[derive(Clone, Debug)]
pub(super) struct Blob {
    adapter: AdapterConfig,
    prior_std: f64,
    cycle: KlCycle,
    second: SecondOptimizer,
    rates: NoisyRates,
}

impl Blob {
    pub(super) fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let BlobSettings {
            epsilon,
            prior_std,
            kl_learning_rate,
            gamma,
            optimizers,
            noise_rate_factor,
        } = config.methods.blob;
        let adapter = adapter(config, AdapterKind::Blob { epsilon }, request);
        let cycle = KlCycle::new(config, gamma, PUBLISHED_STEPS);
        let second = SecondOptimizer::new(kl_learning_rate, optimizers);
        let rates = NoisyRates::new(config, config.learning_rate * noise_rate_factor);
        Self { adapter, prior_std, cycle, second, rates }
    }
}

impl Attach<AutoClassifier> for Blob {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        self.rates.groups(settings)
    }
}

impl Regularise<AutoClassifier> for Blob {
    fn scheme(&self) -> Scheme {
        Scheme::FLIPOUT
    }
}

impl RankPolicy<AutoClassifier> for Blob {
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
        let prior_std = self.prior_std;
        self.second.after_update(state, self.cycle, |model| {
            total_over_adapters(model, |layer| layer.kl_elements(prior_std, ElementReduction::Sum))
        })?;
        Ok(None)
    }
}

impl Predict<AutoClassifier> for Blob {
    fn predict(
        &self,
        model: &AutoClassifier,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Logits, lrvd_burn::Error> {
        inputs.predict_by(Scheme::FLIPOUT, model, draws)
    }
}

impl PostHoc for Blob {}
