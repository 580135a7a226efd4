//! BayesLoRA and its relatives: a Gaussian over rank directions, pruned while it trains.
//!
//! Objective: mean negative log-likelihood under the sampled adapter plus
//! `kl_weight / divisor · Σ KL`. Parameters: LoRA's, and one number per rank (per entry in the
//! element-wise family). Source: Doyle et al., arXiv:2506.22809.

use std::collections::BTreeMap;

use lrvd_core::family::{INITIAL_LOG_VARIANCE, VariationalFamily};
use lrvd_core::kl::KlReduction;
use lrvd_core::noise::NoiseKey;
use lrvd_core::prune::{PruneRule, PruneSchedule, StatisticOptions};
use lrvd_core::schedule::{KlDivisor, KlSchedule};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::config::range;
use super::method::{Method, MethodState, RankChange, StepSizes, StepState, Terms};
use super::model::Model;
use super::search::RankSearch;
use super::state::RankCause;
use crate::adapter::{AdapterConfig, AdapterKind, ArdHyper, Prior};
use crate::error::Error;
use crate::gauge;
use crate::model::{
    AdapterTargets, attach_adapters, check_scheme, ranks, total_kl, trainable_counts,
};
use crate::optimizer::ParameterGroups;
use crate::parameters::ParameterValue;
use crate::peft::PosteriorRun;
use crate::prune::{self, PruneEvent};
use crate::sampling::{DrawPer, Pass, Scheme};

/// When in a step ranks are pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PrunePlacement {
    /// After a completed update.
    #[default]
    AfterUpdate,
    /// Between backward and update, as the authors' loop does: what was pruned is not updated.
    #[serde(alias = "before-backward")]
    BeforeUpdate,
}

/// What happens to the optimiser at a prune event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerOnPrune {
    /// Moments, and gradients not yet used, are sliced along the pruned axis; counts and schedule go
    /// on.
    #[default]
    Slice,
    /// All moments are lost, head included, and the next update has rate 0.
    Reset,
    /// As `Reset`, but only at an event that removes a rank.
    ResetIfChanged,
}

/// When ranks are pruned, by which rule, and what becomes of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pruning {
    /// The rule: threshold of the statistic, fewest ranks kept.
    pub rule: PruneRule,
    /// The steps. A prune after the last step is left out: nothing would train on from it.
    pub schedule: PruneSchedule,
    /// How the statistic is computed.
    pub statistic: StatisticOptions,
    /// When in a step ranks are pruned.
    pub placement: PrunePlacement,
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
            placement: PrunePlacement::default(),
            optimizer: OptimizerOnPrune::default(),
        }
    }

    fn is_due(&self, step: usize, steps: usize) -> bool {
        step > 0 && step < steps && self.schedule.is_due(step as u64)
    }
}

/// Turning the adapters to the singular directions of their mean update, once in a run.
///
/// See [`gauge::turn`](crate::gauge::turn). Before it, one direction of the update may be spread over
/// several ranks; after it each rank is one direction, and what the data does not pay for fades away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Completed steps before it, at least 1.
    pub after: u64,
    /// Factor of the KL weight from then on. The bound charges a whole rank what its loosest entry
    /// needs, which is too much for a weak direction; spread ranks need the full weight to become few.
    pub kl_factor: f64,
}

/// How far a run is that [searches its ranks](RankSearch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The whole model is trained at its mean, without divergence.
    #[default]
    Whole,
    /// What the cut left is trained with its posterior.
    Refined {
        /// Weight of the divergence.
        kl_weight: f64,
    },
}

/// BayesLoRA; a relative is another family, another prior or no pruning.
///
/// | Field | Default | Meaning |
/// |---|---|---|
/// | `rank` | 16 | initial rank |
/// | `lora_alpha` | 16 | numerator of the scaling |
/// | `dropout` | 0 | drop probability of the adapter's input |
/// | `family` | a variance per rank | what the posterior's parameters are |
/// | `initial` | -8 | initial `ln σ²` (`ln α` in the multiplicative family) |
/// | `noise_rate_factor` | 5 | rate of the noise parameters as a multiple of the means' |
/// | `weight_decay` | 0 | decay of the means; the prior does what decay would |
/// | `prior` | log-uniform | the prior |
/// | `kl_reduction` | exact | over the entries of a rank |
/// | `kl` | 0.1, no warm-up | weight of the divergence by step |
/// | `kl_divisor` | `NTrain` | with weight 1 the bound on the evidence, per example; below it a tempered one |
/// | `scheme` | weights per sequence | where noise enters in training |
/// | `pruning` | every 200 steps | none never prunes |
/// | `turn` | none | when the adapters are turned to their singular directions |
/// | `search` | none | train whole, rotate, cut, refine: held-out rows show how many directions are enough |
/// | `log_alpha` | -4 | the statistic of every rank where its refinement starts: noise over mean, in logarithms |
/// | `noise` | 0.01 | nats that the noise of a draw may cost in the refinement |
#[derive(Clone, Debug, PartialEq)]
pub struct BayesLora {
    /// Initial rank.
    pub rank: usize,
    /// Numerator of the scaling.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input.
    pub dropout: f64,
    /// Posterior family.
    pub family: VariationalFamily,
    /// Initial value of the posterior's parameters.
    pub initial: f64,
    /// Rate of the posterior's parameters as a multiple of the means'.
    pub noise_rate_factor: f64,
    /// Decay of the means.
    pub weight_decay: f64,
    /// The prior.
    pub prior: Prior,
    /// Element sum (exact) or one term per rank.
    pub kl_reduction: KlReduction,
    /// Weight of the divergence by step.
    pub kl: KlSchedule,
    /// What the divergence is divided by.
    pub kl_divisor: KlDivisor,
    /// Where noise enters in training.
    pub scheme: Scheme,
    /// When ranks are pruned; `None` never prunes.
    pub pruning: Option<Pruning>,
    /// When the adapters are turned to their singular directions; `None` never turns them.
    pub turn: Option<Turn>,
    /// Whether the model is trained whole first, then cut and refined, in place of `kl` and the steps of `pruning`. `None` trains
    /// with the posterior from the start.
    pub search: Option<RankSearch>,
    /// The statistic of every rank where its refinement starts.
    pub log_alpha: f64,
    /// What the noise of a draw may cost in the refinement, nats per answer: it gives the weight of the divergence,
    ///
    /// ```text
    /// kl_weight = 2·noise·n_train / entries
    /// ```
    ///
    /// for small variances: the loss rises by `½·h·σ²` with the variance of a rank of `n` entries, the divergence falls by
    /// `½·n·ln σ²`, and where `nll + kl_weight·KL/n_train` is smallest all ranks together cost `½·kl_weight·entries/n_train`.
    pub noise: f64,
    /// How far such a run is.
    pub phase: Phase,
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
            scheme: Scheme::Weights(DrawPer::Sequence),
            pruning: schedule.ok().map(Pruning::at),
            turn: None,
            search: None,
            log_alpha: -4.0,
            noise: 0.01,
            phase: Phase::Whole,
        }
    }
}

/// Whether the noise of `family` goes along when an adapter is rotated.
fn turns(family: VariationalFamily) -> bool {
    matches!(family, VariationalFamily::RankVariance | VariationalFamily::AsymRankVariance)
}

/// Steps between the prunes of the default.
const DEFAULT_EVERY: u64 = 200;

impl BayesLora {
    /// Checks the ranges, and what belongs together.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        self.config().check()?;
        range("noise_rate_factor", self.noise_rate_factor, 0.0, 1e6)?;
        range("weight_decay", self.weight_decay, 0.0, 1e6)?;
        if let Some(pruning) = &self.pruning {
            let fewest = pruning.rule.min_rank() as f64;
            range("prune.min_rank", fewest, 0.0, self.rank as f64)?;
        }
        if let Prior::Ard { hyper: ArdHyper::InverseGamma { shape, rate }, .. } = self.prior {
            range("hyper.shape", shape, f64::MIN_POSITIVE, 1e6)?;
            range("hyper.rate", rate, f64::MIN_POSITIVE, 1e6)?;
        }
        if let Some(turn) = self.turn {
            range("turn.after", turn.after as f64, 1.0, 1e9)?;
            range("turn.kl_factor", turn.kl_factor, 0.0, 1e6)?;
            if !turns(self.family) {
                let reason = format!(
                    "is not defined for the family `{}`: its noise belongs to the entries",
                    self.family
                );
                return Err(lrvd_core::Error::undefined("turning the adapters", reason));
            }
        }
        range("log_alpha", self.log_alpha, -20.0, 20.0)?;
        range("noise", self.noise, 0.0, 1e6)?;
        if let Some(search) = self.search {
            search.check()?;
            range("search.min_rank", search.min_rank as f64, 0.0, self.rank as f64)?;
            if self.kl_divisor != KlDivisor::NTrain {
                let reason = "a search weighs the divergence by the evidence bound, whose divisor is `n_train`";
                return Err(lrvd_core::Error::undefined("kl_divisor", reason));
            }
            if self.turn.is_some() {
                let reason = "is undefined: a search rotates the adapters when it cuts them";
                return Err(lrvd_core::Error::undefined("turn", reason));
            }
        }
        self.prior.check(self.family)
    }

    /// Whether the whole model is trained, without its posterior.
    fn is_whole(&self) -> bool {
        self.search.is_some() && self.phase == Phase::Whole
    }

    /// Weight of the divergence by step.
    fn schedule(&self) -> KlSchedule {
        match (self.search, self.phase) {
            (None, _) => self.kl,
            (Some(_), Phase::Whole) => KlSchedule::default(),
            (Some(_), Phase::Refined { kl_weight }) => {
                KlSchedule::constant(kl_weight).unwrap_or_default()
            }
        }
    }

    fn statistic(&self) -> StatisticOptions {
        self.pruning.map(|pruning| pruning.statistic).unwrap_or_default()
    }

    /// What prunes at `step` of `steps` in this place; a search cuts once instead.
    fn prune_due(&self, at: PrunePlacement, step: usize, steps: usize) -> Option<Pruning> {
        let due = |p: &Pruning| p.placement == at && p.is_due(step, steps);
        self.pruning.filter(|pruning| self.search.is_none() && due(pruning))
    }

    fn config(&self) -> AdapterConfig {
        let kind = AdapterKind::Variational { family: self.family, initial: self.initial };
        let Self { rank, lora_alpha, dropout, .. } = *self;
        AdapterConfig { kind, rank, lora_alpha, dropout }
    }
}

impl Pruning {
    fn prune<M: Model>(
        &self,
        step: StepState<'_, M>,
        gradients_in_use: bool,
    ) -> Result<Option<RankChange>, Error> {
        let total = |model: &M| ranks(model).iter().map(|(_, r)| r).sum::<usize>();
        let before = total(step.model);
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
        let gradients = gradients_in_use.then_some(step.gradients);
        prune::apply(step.model, &event, Some(step.optimizer), gradients);
        Ok(Some(RankChange {
            cause: RankCause::Prune,
            before,
            after: total(step.model),
            removed: removed(&event),
            skip_next_update: reset,
        }))
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

impl<M: Model> Method<M> for BayesLora {
    fn adapter(&self) -> AdapterConfig {
        self.config()
    }

    fn attach(&self, model: &mut M, targets: &AdapterTargets, seed: NoiseKey) -> Result<(), Error> {
        self.check()?;
        attach_adapters(model, targets, &self.config(), seed)?;
        if self.search.is_some() {
            // The whole model is trained as LoRA is; no statistic is taken before it has grown.
            model.visit_layers_mut(&mut |_, layer| {
                layer.edit(|adapter| adapter.b.set_flat(adapter.b.flat().zeros_like()));
            });
        }
        check_scheme(model, self.scheme)
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        let mut groups = *settings;
        groups.adapter.weight_decay = self.weight_decay;
        groups.log_variance.learning_rate = settings.adapter.learning_rate * self.noise_rate_factor;
        groups
    }

    fn posterior(&self, seed: u64) -> Option<PosteriorRun> {
        let rule = self.pruning.map_or_else(PruneRule::default, |pruning| pruning.rule);
        Some(PosteriorRun {
            scheme: self.scheme,
            statistic: self.statistic().aggregate,
            log_alpha_threshold: rule.log_alpha_threshold(),
            kl_weight: self.schedule().kl_weight(),
            seed,
        })
    }

    fn scheme(&self) -> Scheme {
        if self.is_whole() { Scheme::Mean } else { self.scheme }
    }

    fn terms(&self, model: &M, _pass: &Pass, sizes: StepSizes) -> Result<Terms, Error> {
        let divisor = self.kl_divisor.divisor(sizes.batch)?;
        if self.is_whole() {
            return Ok(Terms { divisor, ..Terms::none() });
        }
        let kl = total_kl(model, self.prior, self.kl_reduction)?;
        let turned = self.turn.filter(|turn| sizes.step as u64 >= turn.after);
        let kl_weight =
            self.schedule().weight(sizes.step as u32) * turned.map_or(1.0, |t| t.kl_factor);
        Ok(Terms { kl, kl_weight, divisor, penalty: None })
    }

    fn before_update(&mut self, step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        // The authors' loop looks at the step it is about to update.
        let StepSizes { step: number, steps, .. } = step.sizes;
        let due = self.prune_due(PrunePlacement::BeforeUpdate, number, steps);
        due.map_or(Ok(None), |pruning| pruning.prune(step, true))
    }

    fn after_update(&mut self, step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        let (done, steps) = (step.sizes.step + 1, step.sizes.steps);
        if self.turn.is_some_and(|turn| turn.after == done as u64) {
            gauge::turn(step.model, Some(step.optimizer))?;
        }
        let due = self.prune_due(PrunePlacement::AfterUpdate, done, steps);
        due.map_or(Ok(None), |pruning| pruning.prune(step, false))
    }

    fn search(&self) -> Option<RankSearch> {
        self.search
    }

    fn refine(&mut self, model: &mut M, n_train: usize) -> Result<(), Error> {
        let entries = trainable_counts(model).adapter.max(1);
        let kl_weight = 2.0 * self.noise * n_train as f64 / entries as f64;
        self.phase = Phase::Refined { kl_weight };
        prune::set_relevance(model, self.log_alpha, self.statistic())
    }

    fn state(&self) -> MethodState {
        let values = self.search.map_or(serde_json::Value::Null, |_| json!(self.phase));
        MethodState { values, ..MethodState::default() }
    }

    fn restore(&mut self, _model: &M, state: MethodState) -> Result<(), Error> {
        if self.search.is_some() {
            self.phase =
                serde_json::from_value(state.values).map_err(|error| Error::position(&error))?;
        }
        Ok(())
    }
}
