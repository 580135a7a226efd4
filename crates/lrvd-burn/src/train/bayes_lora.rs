//! BayesLoRA and its relatives: a Gaussian over rank directions, pruned while it trains.
//!
//! Objective: mean negative log-likelihood under the sampled adapter plus
//! `kl_weight / divisor · Σ KL`. Parameters: LoRA's, and one number per rank (per entry in the
//! element-wise family). Source: Doyle et al., arXiv:2506.22809.

use std::collections::BTreeMap;

use lrvd_core::error::check_range;
use lrvd_core::prune::PruneSchedule;
use lrvd_core::schedule::{KlDivisor, KlSchedule};
use serde::{Deserialize, Serialize};

use super::config::TrainConfig;
use super::data::Model;
use super::method::{Method, Setup, StepContext, StepState, UpdatePhase};
use super::state::RankCause;
use crate::bayes_lora::BayesLora;
use crate::error::Error;
use crate::model::total_kl;
use crate::objective::Objective;
use crate::peft::PosteriorRun;
use crate::prune::{self, PruneEvent};

/// State of the optimizer after a prune event.
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

/// Steps at which ranks are pruned, and the state of the optimizer after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pruning {
    /// The steps. There is no prune after the last step, which no training would follow.
    pub schedule: PruneSchedule,
    /// When in a step ranks are pruned. Before the update, as in the authors' loop, pruned ranks are not updated.
    pub placement: UpdatePhase,
    /// Optimizer state after a prune.
    pub optimizer: OptimizerOnPrune,
}

impl Pruning {
    /// A prune at the steps of `schedule`, after the update, with sliced moments.
    pub fn at(schedule: PruneSchedule) -> Self {
        Self { schedule, placement: UpdatePhase::default(), optimizer: OptimizerOnPrune::default() }
    }

    fn prune<M: Model>(
        &self,
        posterior: &BayesLora,
        phase: UpdatePhase,
        step: StepState<'_, M>,
    ) -> Result<RankCause, Error> {
        let event = prune::plan(step.model, &posterior.rule, posterior.statistic)?;
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
        let gradients = (phase == UpdatePhase::BeforeUpdate).then_some(step.gradients);
        prune::apply(step.model, &event, Some(step.optimizer), gradients);
        for (path, values) in removed(&event) {
            step.removed.entry(path).or_default().extend(values);
        }
        *step.skip_next_update = reset;
        Ok(RankCause::Prune)
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

/// BayesLoRA in the loop of a [`Run`](super::Run): its configuration, and what goes by step.
///
/// Objective: `mean nll + weight(step)/divisor · Σ KL(q ‖ p)`. A variant is another family, another prior or no pruning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BayesLoraMethod {
    /// Adapters, posterior and prior.
    pub posterior: BayesLora,
    /// Decay of the means; 0 by default, as the prior does what decay would.
    pub weight_decay: f64,
    /// Steps in which the weight of the divergence rises from 0; 0 by default.
    pub kl_warmup: u32,
    /// Divisor of the divergence; by default the number of training examples.
    pub kl_divisor: KlDivisor,
    /// Steps at which ranks are pruned, every 200th by default; `None` never prunes.
    pub pruning: Option<Pruning>,
}

impl From<BayesLora> for BayesLoraMethod {
    fn from(posterior: BayesLora) -> Self {
        let schedule = PruneSchedule::new(DEFAULT_EVERY, DEFAULT_EVERY, None);
        Self {
            posterior,
            weight_decay: 0.0,
            kl_warmup: 0,
            kl_divisor: KlDivisor::NTrain,
            pruning: schedule.ok().map(Pruning::at),
        }
    }
}

/// Steps between the prunes of the default.
const DEFAULT_EVERY: u64 = 200;

impl<M: Model> Method<M> for BayesLoraMethod {
    fn setup(&self, config: &TrainConfig) -> Result<Setup, Error> {
        let Self { posterior, weight_decay, .. } = *self;
        posterior.check()?;
        check_range("weight_decay", weight_decay, 0.0..=1e6)?;
        let scheme = posterior.scheme();
        let mut setup = Setup { scheme, ..Setup::new(posterior.adapter(), config) };
        setup.groups.adapter.weight_decay = weight_decay;
        setup.groups.log_variance.learning_rate =
            config.groups.adapter.learning_rate * posterior.noise_rate_factor;
        let rule = self.pruning.map(|_| posterior.rule);
        setup.posterior = Some(PosteriorRun {
            scheme: Some(scheme),
            statistic: rule.map(|_| posterior.statistic.aggregate),
            log_alpha_threshold: rule.map(|rule| rule.log_alpha_threshold()),
            kl_weight: Some(posterior.kl_weight),
            seed: Some(config.seed),
        });
        Ok(setup)
    }

    fn objective(
        &self,
        model: &M,
        step: &StepContext,
        likelihood: Objective,
    ) -> Result<Objective, Error> {
        let BayesLora { prior, kl_reduction, kl_weight, .. } = self.posterior;
        let divisor = self.kl_divisor.divisor(step.batch)?;
        let kl = total_kl(model, prior, kl_reduction)?;
        let schedule = KlSchedule::linear_warmup(kl_weight, self.kl_warmup)?;
        let kl_weight = schedule.weight(step.step as u32);
        Ok(Objective { kl, kl_weight, divisor, ..likelihood })
    }

    fn update(
        &mut self,
        phase: UpdatePhase,
        step: StepState<'_, M>,
    ) -> Result<Option<RankCause>, Error> {
        let StepContext { step: number, steps, .. } = step.context;
        // Completed steps; before the update the authors' loop counts the step that it is about to update.
        let done = match phase {
            UpdatePhase::BeforeUpdate => number,
            UpdatePhase::AfterUpdate => number + 1,
        };
        let due = (1..steps).contains(&done);
        let due = |p: &Pruning| due && p.placement == phase && p.schedule.is_due(done as u64);
        let pruning = self.pruning.filter(due);
        pruning.map(|pruning| pruning.prune(&self.posterior, phase, step)).transpose()
    }
}
