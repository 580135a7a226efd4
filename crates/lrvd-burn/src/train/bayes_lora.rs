//! BayesLoRA and its relatives: a Gaussian over rank directions, pruned while it trains.
//!
//! Objective: mean negative log-likelihood under the sampled adapter plus
//! `kl_weight / divisor · Σ KL`. Parameters: LoRA's, and one number per rank (per entry in the
//! element-wise family). Source: Doyle et al., arXiv:2506.22809.

use std::collections::BTreeMap;

use lrvd_core::error::check_range;
use lrvd_core::kl::KlReduction;
use lrvd_core::posterior::{INITIAL_LOG_VARIANCE, VariationalFamily};
use lrvd_core::prune::{PruneRule, PruneSchedule, StatisticOptions};
use lrvd_core::schedule::{KlDivisor, KlSchedule};
use serde::{Deserialize, Serialize};

use super::config::TrainConfig;
use super::data::Model;
use super::method::{Method, RankChange, Setup, StepSizes, StepState, Terms, UpdatePhase};
use super::state::RankCause;
use crate::adapter::{AdapterConfig, AdapterKind, Prior};
use crate::error::Error;
use crate::model::total_kl;
use crate::peft::PosteriorRun;
use crate::prune::{self, PruneEvent};
use crate::sampling::{Pass, Scheme};

/// What happens to the optimiser at a prune event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerOnPrune {
    /// Moments, and gradients not yet used, are sliced along the pruned axis; counts and schedule stay.
    #[default]
    Slice,
    /// All moments are lost, head included, and the next update has rate 0.
    Reset,
    /// As `Reset`, but only at an event that removes a rank.
    ResetIfChanged,
}

/// When ranks are pruned, by which rule, and what happens to the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pruning {
    /// The rule: threshold of the statistic, fewest ranks kept.
    pub rule: PruneRule,
    /// The steps. There is no prune after the last step, which no training would follow.
    pub schedule: PruneSchedule,
    /// How the statistic is computed.
    pub statistic: StatisticOptions,
    /// When in a step ranks are pruned. Before the update, as in the authors' loop, pruned ranks are not updated.
    pub placement: UpdatePhase,
    /// Optimiser state after a prune.
    pub optimizer: OptimizerOnPrune,
}

impl Pruning {
    /// The published rule at the steps of `schedule`, after the update, with sliced moments.
    pub fn at(schedule: PruneSchedule) -> Self {
        Self {
            rule: PruneRule::default(),
            schedule,
            statistic: StatisticOptions::default(),
            placement: UpdatePhase::default(),
            optimizer: OptimizerOnPrune::default(),
        }
    }

    fn prune<M: Model>(
        &self,
        when: UpdatePhase,
        step: StepState<'_, M>,
    ) -> Result<RankChange, Error> {
        let event = prune::plan(step.model, &self.rule, self.statistic)?;
        let reset = match self.optimizer {
            OptimizerOnPrune::Slice => false,
            OptimizerOnPrune::Reset => true,
            OptimizerOnPrune::ResetIfChanged => !event.changed.is_empty(),
        };
        if reset {
            step.optimizer.reset();
            step.gradients.remove_where(|name| {
                name.rsplit_once('.').is_some_and(|(path, _)| event.changed.contains(path))
            });
        }
        let gradients = (when == UpdatePhase::BeforeUpdate).then_some(step.gradients);
        prune::apply(step.model, &event, Some(step.optimizer), gradients);
        let (cause, removed) = (RankCause::Prune, removed(&event));
        Ok(RankChange { cause, removed, skip_next_update: reset })
    }
}

/// Statistics of the directions that `event` drops.
fn removed(event: &PruneEvent) -> BTreeMap<String, Vec<f64>> {
    let dropped = |path: &String| -> Vec<f64> {
        let kept = &event.kept[path];
        let all = event.statistics[path].iter().enumerate();
        all.filter(|(i, _)| !kept.contains(i)).map(|(_, &value)| value).collect()
    };
    event.changed.iter().map(|path| (path.clone(), dropped(path))).collect()
}

/// BayesLoRA; a variant is another family, another prior or no pruning.
#[derive(Clone, Debug, PartialEq)]
pub struct BayesLora {
    /// Initial rank; 16 by default.
    pub rank: usize,
    /// Numerator of the scaling; 16 by default.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input; 0 by default.
    pub dropout: f64,
    /// Posterior family; by default one variance per rank.
    pub family: VariationalFamily,
    /// Initial value of the posterior's parameters, `ln σ²` (`ln α` in the multiplicative family); -8 by default.
    pub initial: f64,
    /// Rate of the posterior's parameters as a multiple of the means'; 5 by default.
    pub noise_rate_factor: f64,
    /// Decay of the means; 0 by default, as the prior does what decay would.
    pub weight_decay: f64,
    /// The prior; log-uniform by default.
    pub prior: Prior,
    /// Element sum (exact, the default) or one term per rank.
    pub kl_reduction: KlReduction,
    /// Weight of the divergence by step; 0.1 without warm-up by default.
    pub kl: KlSchedule,
    /// Divisor of the divergence. With `NTrain`, the default, weight 1 is the bound on the evidence, per example; a smaller
    /// weight a tempered one.
    pub kl_divisor: KlDivisor,
    /// Where noise enters in training; by default one weight draw per sequence.
    pub scheme: Scheme,
    /// When ranks are pruned, every 200 steps by default; `None` never prunes.
    pub pruning: Option<Pruning>,
}

impl Default for BayesLora {
    fn default() -> Self {
        let schedule = PruneSchedule::new(DEFAULT_EVERY, DEFAULT_EVERY, None);
        Self {
            rank: 16,
            lora_alpha: 16.0,
            dropout: 0.0,
            family: VariationalFamily::RankVariance,
            initial: INITIAL_LOG_VARIANCE,
            noise_rate_factor: 5.0,
            weight_decay: 0.0,
            prior: Prior::LogUniform,
            kl_reduction: KlReduction::Element,
            kl: KlSchedule::constant(0.1).expect("a tenth is a weight"),
            kl_divisor: KlDivisor::NTrain,
            scheme: Scheme::PerSequence,
            pruning: schedule.ok().map(Pruning::at),
        }
    }
}

/// Steps between the prunes of the default.
const DEFAULT_EVERY: u64 = 200;

impl BayesLora {
    /// Checks the ranges, and which settings go together.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        self.adapter().check()?;
        check_range("noise_rate_factor", self.noise_rate_factor, 0.0, 1e6)?;
        check_range("weight_decay", self.weight_decay, 0.0, 1e6)?;
        if let Some(pruning) = &self.pruning {
            let fewest = pruning.rule.min_rank() as f64;
            check_range("prune.min_rank", fewest, 0.0, self.rank as f64)?;
        }
        self.prior.check(self.family)
    }

    fn adapter(&self) -> AdapterConfig {
        let kind = AdapterKind::Variational { family: self.family, initial: self.initial };
        let Self { rank, lora_alpha, dropout, .. } = *self;
        AdapterConfig { kind, rank, lora_alpha, dropout }
    }
}

impl<M: Model> Method<M> for BayesLora {
    fn setup(&self, config: &TrainConfig) -> Result<Setup, Error> {
        self.check()?;
        let mut setup = Setup { scheme: self.scheme, ..Setup::new(self.adapter(), config) };
        setup.groups.adapter.weight_decay = self.weight_decay;
        setup.groups.log_variance.learning_rate =
            config.groups.adapter.learning_rate * self.noise_rate_factor;
        setup.posterior = Some(PosteriorRun {
            scheme: Some(self.scheme),
            statistic: self.pruning.map(|pruning| pruning.statistic.aggregate),
            log_alpha_threshold: self.pruning.map(|pruning| pruning.rule.log_alpha_threshold()),
            kl_weight: Some(self.kl.kl_weight()),
            seed: Some(config.seed),
        });
        Ok(setup)
    }

    fn terms(&self, model: &M, _pass: &Pass, sizes: StepSizes) -> Result<Terms, Error> {
        let divisor = self.kl_divisor.divisor(sizes.batch)?;
        let kl = total_kl(model, self.prior, self.kl_reduction)?;
        let kl_weight = self.kl.weight(sizes.step as u32);
        Ok(Terms { kl, kl_weight, divisor, penalty: None })
    }

    fn update(
        &mut self,
        when: UpdatePhase,
        step: StepState<'_, M>,
    ) -> Result<Option<RankChange>, Error> {
        let StepSizes { step: number, steps, .. } = step.sizes;
        // Completed steps; before the update the authors' loop counts the step that it is about to update.
        let done = match when {
            UpdatePhase::BeforeUpdate => number,
            UpdatePhase::AfterUpdate => number + 1,
        };
        let due = (1..steps).contains(&done);
        let due = |p: &Pruning| due && p.placement == when && p.schedule.is_due(done as u64);
        self.pruning.filter(due).map(|pruning| pruning.prune(when, step)).transpose()
    }
}
