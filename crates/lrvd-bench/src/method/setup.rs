//! Common parts of the set-up of methods: requested ranks, adapters, rates, the cycle of the KL and the second optimizer.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::NamedModule;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::parameters::{Group, NamedParameter};
use lrvd_burn::sampling::Scheme;
use lrvd_burn::train::{Setup, StepState, TrainConfig};
use lrvd_models::AutoModel;
use serde::{Deserialize, Serialize};

use super::minibatch_weight::{rescaled_cycle, rising_weight};
use crate::error::{Burn, Result};
use crate::settings::{Config, LastBatch, Optimizers};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankRequest {
    Initial,
    /// A uniform rank (LoRA) or an average target rank (AdaLoRA).
    Average(usize),
}

impl RankRequest {
    pub fn rank(self, config: &Config) -> usize {
        match self {
            Self::Initial => config.initial_rank,
            Self::Average(rank) => rank,
        }
    }

    /// The numerator of the scaling at that rank: `c = lora_alpha / rank` stays that of the settings' rank.
    pub fn lora_alpha(self, config: &Config) -> f64 {
        match self {
            Self::Initial => config.lora_alpha,
            Self::Average(rank) => config.lora_alpha * rank as f64 / config.initial_rank as f64,
        }
    }
}

/// The adapter of `kind` with the experiment's scaling and dropout, at the requested rank.
pub(super) fn adapter(config: &Config, kind: AdapterKind, request: RankRequest) -> AdapterConfig {
    AdapterConfig {
        kind,
        rank: request.rank(config),
        lora_alpha: request.lora_alpha(config),
        dropout: config.adapter_dropout,
    }
}

pub(super) fn lora(config: &Config, request: RankRequest) -> AdapterConfig {
    adapter(config, AdapterKind::Lora { b_bound: config.lora_b_bound }, request)
}

/// Factors of which B starts at 0, for an update of the method's own.
pub(super) fn plain_lora(config: &Config, request: RankRequest) -> AdapterConfig {
    adapter(config, AdapterKind::Lora { b_bound: 0.0 }, request)
}

/// The peak rate at which a parameter under `AdamW` can just go `distance` in the run; 0 where every rate is 0.
pub(super) fn rate_to_reach(config: &Config, distance: f64) -> Result<f64> {
    let schedule = config.training(0).check()?;
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
    pub(super) fn new(config: &Config, noise: f64) -> Self {
        Self { weight_decay: config.adapter_weight_decay, noise }
    }

    pub(super) fn setup(
        self,
        adapter: AdapterConfig,
        scheme: Scheme,
        config: &TrainConfig,
    ) -> Setup {
        let mut setup = Setup { scheme, ..Setup::new(adapter, config) };
        setup.groups.adapter.weight_decay = self.weight_decay;
        setup.groups.log_variance.learning_rate = self.noise;
        setup
    }
}

/// The rising weights of BLoB, which `ScalaBL` and C-LoRA took over.
///
/// ```text
/// π_i = 2^i / (2^(M+1) − 1),   i = step mod M + 1
/// M_p = ⌊100·N^(π/gamma) / batch⌋        "dataset rescaling"; without gamma the batches of an epoch
/// M   = M_p·min(1, steps / published), at least 10
/// ```
///
/// `N` counts the examples that an epoch serves. Only the last ten steps or so of a cycle count: a run shorter than the
/// published one has as many, shorter cycles, down to that ramp.
#[derive(Clone, Copy, Debug)]
pub(super) struct KlCycle {
    gamma: Option<f64>,
    batch_size: usize,
    last_batch: LastBatch,
    steps: usize,
    published: usize,
}

pub(super) const PUBLISHED_STEPS: usize = 5000;
/// The last steps of a cycle, which carry all but a thousandth of its weight.
const RAMP: usize = 10;

impl KlCycle {
    pub(super) fn new(config: &Config, gamma: Option<f64>, published: usize) -> Self {
        let Config { batch_size, last_batch, steps, .. } = *config;
        Self { gamma, batch_size: batch_size.max(1), last_batch, steps, published }
    }

    pub(super) fn batches(self, n_train: usize) -> usize {
        match self.last_batch {
            LastBatch::Keep => n_train.div_ceil(self.batch_size),
            LastBatch::Drop => n_train / self.batch_size,
        }
    }

    pub(super) fn weight(self, step: usize, n_train: usize) -> Burn<f64> {
        let cycle = match self.gamma {
            Some(gamma) => {
                let served = (self.batches(n_train) * self.batch_size).min(n_train);
                rescaled_cycle(served, gamma, self.batch_size)?
            }
            None => self.batches(n_train) as u32,
        };
        let cycle = self.shortened(cycle);
        Ok(rising_weight(step as u64, cycle)?)
    }

    fn shortened(self, published: u32) -> u32 {
        let share = (self.steps as f64 / self.published as f64).min(1.0);
        let least = RAMP.min(self.steps).min(published as usize) as u32;
        ((f64::from(published) * share).round() as u32).max(least)
    }
}

/// Below this the weight is 0 in single precision, and the KL gradient is negligible.
const SMALLEST_WEIGHT: f64 = f32::MIN_POSITIVE as f64;

/// `true` for a parameter whose gradient of the step's objective belongs to the second optimizer and not to `AdamW`.
type Owns = fn(&NamedParameter<'_>) -> bool;

/// The noise of BLoB's code, and nothing in `BayesAdapt`.
pub(super) fn noise_of(optimizers: Optimizers) -> Owns {
    match optimizers {
        Optimizers::Two => |parameter| parameter.group == Group::LogVariance,
        Optimizers::Bayesadapt => |_| false,
    }
}

/// The second optimizer of BLoB, `ScalaBL` and C-LoRA: gradient descent beside `AdamW`.
///
/// ```text
/// first:   AdamW on the likelihood
/// second:  θ ← θ − rate·factor·(π_i·∂KL/∂θ + g)       KL of the model that the first one has moved
/// ```
///
/// `factor` is that of the learning-rate schedule, `π_i` BLoB's weight of the step, `g` the unclipped gradient of the step's
/// objective by what the second one `owns`: the noise in BLoB's code, the context network in C-LoRA's, nothing in `BayesAdapt`.
#[derive(Clone, Debug)]
pub(super) struct SecondOptimizer {
    rate: f64,
    owns: Owns,
    /// The objective's gradients of what is owned, between the two hooks of a step.
    kept: BTreeMap<String, Tensor<1>>,
}

impl SecondOptimizer {
    pub(super) fn new(rate: f64, owns: Owns) -> Self {
        Self { rate, owns, kept: BTreeMap::new() }
    }

    /// Takes the gradients of what is owned away from AdamW, unclipped.
    pub(super) fn before_update(&mut self, state: StepState<'_, AutoModel>) {
        self.kept.clear();
        let StepState { model, gradients, .. } = state;
        model.visit_parameters(&mut |p| {
            if (self.owns)(&p)
                && let Some(gradient) = gradients.get(p.name)
            {
                self.kept.insert(p.name.to_owned(), gradient.clone());
            }
        });
        gradients.remove_where(|name| self.kept.contains_key(name));
    }

    /// Descends on `kl` of the model as AdamW left it, weighed by `cycle`, and on the gradients kept before.
    pub(super) fn after_update(
        &mut self,
        state: StepState<'_, AutoModel>,
        cycle: KlCycle,
        kl: impl FnOnce(&AutoModel) -> Option<Tensor<1>>,
    ) -> Burn<()> {
        let StepState { context, rate_factor, model, .. } = state;
        let weight = cycle.weight(context.step, context.n_train)?;
        let kl = if weight < SMALLEST_WEIGHT || rate_factor == 0.0 { None } else { kl(model) };
        let of_kl = kl.map_or_else(NamedGradients::default, |kl| {
            NamedGradients::collect(model, &kl.mul_scalar(weight).backward())
        });
        self.descend(model, rate_factor, &of_kl);
        Ok(())
    }

    /// Descends on the gradients kept before and on `others`, `rate_factor` times as fast as the peak rate.
    pub(super) fn descend(
        &mut self,
        model: &mut AutoModel,
        rate_factor: f64,
        others: &NamedGradients,
    ) {
        let kept = std::mem::take(&mut self.kept);
        let rate = self.rate * rate_factor;
        if rate == 0.0 {
            return;
        }
        model.visit_parameters_mut(&mut |p| {
            let parts = [others.get(p.name), kept.get(p.name)];
            let parts = parts.into_iter().flatten().cloned().map(without_graph);
            let Some(gradient) = parts.reduce(|a, b| a + b) else { return };
            let value = p.value.flat() - gradient.mul_scalar(rate);
            p.value.set_flat(value);
        });
    }
}

/// A gradient is a plain tensor on some backends and not on others.
fn without_graph(gradient: Tensor<1>) -> Tensor<1> {
    if gradient.device().is_autodiff() { gradient.inner() } else { gradient }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{GAMMA, Preset};

    fn cycle(gamma: Option<f64>, last_batch: LastBatch) -> KlCycle {
        let config = Config { batch_size: 4, last_batch, ..Preset::Default.reasoning_config() };
        KlCycle::new(&config, gamma, PUBLISHED_STEPS)
    }

    #[test]
    fn a_cycle_is_the_published_one_or_an_epoch() {
        // WG-S: 640 examples of 643 with whole batches of 4 only: M = 316.
        let published = cycle(Some(GAMMA), LastBatch::Drop);
        let weight = |step| published.weight(step, 643).unwrap();
        let last = weight(315);
        assert!((last - 0.5).abs() < 1e-15);
        assert_eq!([314, 316, 315 + 316].map(weight), [last / 2.0, weight(0), last]);
        assert!(published.weight(0, 3).is_err());
        // 2/7 and 4/7 in an epoch of two batches.
        let kept = cycle(None, LastBatch::Keep);
        for (step, expected) in [(0, 2.0 / 7.0), (1, 4.0 / 7.0), (2, 2.0 / 7.0)] {
            assert!((kept.weight(step, 7).unwrap() - expected).abs() < 1e-15, "{step}");
        }
        assert_eq!((kept.batches(7), cycle(None, LastBatch::Drop).batches(7)), (2, 1));
    }

    #[test]
    fn a_shorter_run_has_as_many_cycles_and_none_without_a_divergence() {
        let of = |steps: usize| {
            let config = Config { batch_size: 4, steps, ..Preset::Default.reasoning_config() };
            KlCycle::new(&config, Some(GAMMA), PUBLISHED_STEPS)
        };
        // 316 of 5000 steps, published; the same share of 1000; the ramp alone; no more than the run.
        for (steps, cycle) in [(20_000, 316), (5000, 316), (1000, 63), (60, 10), (3, 3)] {
            assert_eq!(of(steps).shortened(316), cycle, "{steps}");
        }
        // Cycles no longer than the ramp stay as they are.
        assert_eq!(of(60).shortened(2), 2);
        for steps in [3, 40, 60, 200] {
            let heaviest =
                (0..steps).map(|step| of(steps).weight(step, 640).unwrap()).fold(0.0, f64::max);
            assert!(heaviest > 0.49, "{steps}: {heaviest}");
        }
    }
}
