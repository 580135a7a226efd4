//! C-LoRA: a random matrix between the factors whose law depends on the input.
//!
//! Objective: mean negative log-likelihood with a draw for every token plus
//!
//! ```text
//! π_i · kl_weight / modules · Σ_modules Σ_tokens KL(q(E | x) ‖ N(0, 0.2²))        kl_weight = 1e-6
//! ```
//!
//! over the tokens of the batch, padding included as published (it is a 10⁻⁶th of a small number), with
//! BLoB's `π_i`. `AdamW` moves A, B and the head; the network that reads the law of `E` off the input follows the
//! gradient of both by plain descent at 0.01, as published (0.01 to 0.02 there, by set), unclipped. `k` draws have noise for every token as training does; `k = 0` is the mean of `E`.
//! Parameters: `rank·(d_input + d_output) + hidden·(rank + 1) + 2·rank²·(hidden + 1)` per layer. Source:
//! Rahmati et al. 2025, arXiv:2505.17773. Its factors of the likelihood per task and its choice of the
//! checkpoint by accuracy and calibration are not taken over: every method has one protocol here.

use std::collections::BTreeSet;

use lrvd_burn::adapter::{AdapterConfig, AdapterKind, ContextDivergence, Observer};
use lrvd_burn::model::{AdapterTargets, attach_adapters, observe};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::{
    Attach, Logits, Predict, RankChange, RankPolicy, Regularise, StepSizes, StepState, Terms,
};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoClassifier;

use super::kl_cycle::KlCycle;
use super::second_optimizer::{Owned, SecondOptimizer};
use super::setup::adapter;
use super::{Inputs, PostHoc, RankRequest};
use crate::settings::{CLoraSettings, ExperimentConfig};

/// Steps of the longest published run.
const PUBLISHED_STEPS: usize = 2000;

#[derive(Clone, Debug)]
pub(super) struct CLora {
    adapter: AdapterConfig,
    kl_weight: f64,
    cycle: KlCycle,
    second: SecondOptimizer,
    /// Sees the divergence of every use of an adapter in training.
    observer: Observer,
}

impl CLora {
    pub(super) fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let CLoraSettings { hidden, prior_std, kl_weight, gamma, learning_rate } =
            config.methods.c_lora;
        let adapter = adapter(config, AdapterKind::CLora { hidden }, request);
        let cycle = KlCycle::new(config, gamma, PUBLISHED_STEPS);
        let second = SecondOptimizer::new(learning_rate, Owned::Context);
        let observer = Observer::of_divergences(prior_std);
        Self { adapter, kl_weight, cycle, second, observer }
    }
}

impl Attach<AutoClassifier> for CLora {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn attach(
        &self,
        model: &mut AutoClassifier,
        targets: &AdapterTargets,
        seed: NoiseKey,
    ) -> Result<(), lrvd_burn::Error> {
        attach_adapters(model, targets, &self.adapter, seed)?;
        observe(model, Some(&self.observer));
        Ok(())
    }
}

impl Regularise<AutoClassifier> for CLora {
    fn scheme(&self) -> Scheme {
        // Noise for every token.
        Scheme::FLIPOUT
    }

    fn terms(
        &self,
        _model: &AutoClassifier,
        _pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Terms, lrvd_burn::Error> {
        let seen = self.observer.take_divergences();
        let modules: BTreeSet<u32> = seen.iter().map(|seen| seen.module).collect();
        let rows = |seen: &ContextDivergence| seen.per_token.dims()[0];
        // A step of several micro-batches asks once, after the first: it stands for all of them.
        let rows = seen.iter().map(rows).max().unwrap_or(1).max(1);
        let share = sizes.examples as f64 / rows as f64;
        let kl = seen.into_iter().map(|seen| seen.per_token.sum()).reduce(|a, b| a + b);
        let weight = self.cycle.weight(sizes.step, sizes.n_train)?;
        let weight = weight * self.kl_weight * share / modules.len().max(1) as f64;
        Ok(Terms::kl(kl, weight))
    }
}

impl RankPolicy<AutoClassifier> for CLora {
    fn before_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
    ) -> Result<Option<RankChange>, lrvd_burn::Error> {
        // Divergences of further micro-batches keep their graphs until they are taken.
        drop(self.observer.take_divergences());
        self.second.before_update(state);
        Ok(None)
    }

    fn after_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
    ) -> Result<Option<RankChange>, lrvd_burn::Error> {
        self.second.descend(state.model, state.rate_factor, &NamedGradients::default());
        Ok(None)
    }

    fn compact(&self, model: &mut AutoClassifier) {
        observe(model, None);
    }
}

impl Predict<AutoClassifier> for CLora {
    fn predict(
        &self,
        model: &AutoClassifier,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Logits, lrvd_burn::Error> {
        let mut unobserved = model.clone();
        observe(&mut unobserved, None);
        inputs.predict_by(Scheme::FLIPOUT, &unobserved, draws)
    }
}

impl PostHoc for CLora {}
