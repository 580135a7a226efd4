//! How many directions are enough: losses of a model with fewer and fewer of them, on held-out rows.
//!
//! After any training run:
//!
//! ```text
//! rotate_to_singular_basis(&mut model)    each rank a singular direction of its module's update
//! order = directions(&model)              of all modules together, the most important first
//! keep(&mut model, &order, n, ...)        the first n; the others are cut out of the tensors
//! ```
//!
//! A [`RankSearch`] does that within a run, in place of the method's schedule of the divergence and of its changes of ranks:
//!
//! ```text
//! train    the whole model at its mean, as LoRA, for all steps of the settings
//! rotate   every update to its singular directions; the update stays
//! cut      the fewest directions that are non-inferior to the whole model, over all modules in one order
//! refine   further steps with the posterior; the means stay if they are non-inferior to the whole model
//! ```
//!
//! A model is non-inferior if the [bound](lrvd_core::non_inferiority::PairedDifference::upper) of its mean loss less that of the whole model, row by row, is at
//! most the margin: a test at 5 %. The cut tests ever smaller sizes, in a sequence that is fixed beforehand, and ends with the first
//! that fails, so that a cut beyond the margin is kept with a probability of at most 5 %. No step is trained on the held-out rows.

use std::collections::BTreeMap;
use std::time::Instant;

use lrvd_core::error::check_range;
use lrvd_core::non_inferiority::passed_in_sequence;
use lrvd_core::prune::StatisticOptions;
use lrvd_core::schedule::LrSchedule;
use tracing::debug;

use super::choice::{Choice, HeldOutLosses, compared, point};
use super::data::Model;
use super::fit::{Loop, Outcome, Phase, Stage};
use super::method::{Method, Setup};
use super::state::RankCause;
use super::watch::{Event, Observer};
use crate::error::Error;
use crate::gauge::rotate_to_singular_basis;
use crate::host::values;
use crate::model::{NamedModule, trainable_counts};
use crate::optimizer::AdamW;
use crate::parameters::{Group, ParameterValue as _};
use crate::prune::{PruneEvent, apply, set_relevance};

/// Factor from one size to the next smaller one.
const SHRINK: f64 = 0.8;

/// A search for ranks: how much may be lost, and what follows the cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSearch {
    /// The most that the mean held-out loss may rise over that of the whole model, in the unit of its [`LossMeasure`](super::LossMeasure).
    pub margin: f64,
    /// The fewest ranks that a module keeps.
    pub min_rank: usize,
    /// Steps after the cut.
    pub refine_steps: usize,
    /// Their peak learning rate as a share of that of the whole model; it rises and falls as the run's does.
    pub refine_rate: f64,
    /// The statistic of every rank at the start of the refinement: noise over mean, in logarithms.
    pub log_alpha: f64,
    /// How the statistic is computed.
    pub statistic: StatisticOptions,
    /// Cost of the noise of a draw in the refinement, nats per answer (of scores a share of their variance, which multiplies the
    /// weight). It gives the weight of the divergence,
    ///
    /// ```text
    /// kl_weight = 2·noise·n_train / entries
    /// ```
    ///
    /// for small variances: the loss rises by `½·h·σ²` with the variance of a rank of `n` entries, the divergence falls by
    /// `½·n·ln σ²`, and where `nll + kl_weight·KL/n_train` is smallest all ranks together cost `½·kl_weight·entries/n_train`.
    pub noise: f64,
}

impl Default for RankSearch {
    fn default() -> Self {
        Self {
            margin: 0.01,
            min_rank: 0,
            refine_steps: 0,
            refine_rate: 0.1,
            log_alpha: -4.0,
            statistic: StatisticOptions::default(),
            noise: 0.01,
        }
    }
}

impl RankSearch {
    /// Checks the ranges, and that adapters of `setup` can be searched, and takes their updates off `model`: it is trained as LoRA
    /// first.
    pub(super) fn prepare(&self, setup: &Setup, model: &mut impl NamedModule) -> Result<(), Error> {
        check_range("search.margin", self.margin, 0.0, 1e3)?;
        check_range("search.refine_steps", self.refine_steps as f64, 0.0, 1e9)?;
        check_range("search.refine_rate", self.refine_rate, 0.0, 1e3)?;
        check_range("log_alpha", self.log_alpha, -20.0, 20.0)?;
        check_range("noise", self.noise, 0.0, 1e6)?;
        check_range("search.min_rank", self.min_rank as f64, 0.0, setup.adapter.rank as f64)?;
        if setup.posterior.is_none() {
            return Err(Error::NoPosterior);
        }
        model.visit_layers_mut(&mut |_, layer| {
            layer.edit(|adapter| adapter.b.set_flat(adapter.b.flat().zeros_like()));
        });
        Ok(())
    }

    /// Factors of the learning rates by step after the cut, before `refine_rate`; `warmup_ratio` is the share with a rising rate.
    pub fn schedule(&self, warmup_ratio: f64) -> Result<LrSchedule, lrvd_core::Error> {
        let steps = self.refine_steps.max(1);
        LrSchedule::linear((warmup_ratio * steps as f64).floor() as u32, steps as u32)
    }
}

impl<M, T, O> Loop<'_, '_, M, T, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    /// Trains, cuts and refines until the end, a stop request or an error.
    pub(super) fn search(&mut self, rule: &RankSearch) -> Result<Outcome, O::Error> {
        let (steps, warmup_ratio) = (self.run.config.steps, self.run.config.warmup_ratio);
        if self.run.state.journal.choice.is_none() {
            let stage = self.first(steps + rule.refine_steps, Phase::Mean);
            if self.train(&stage)? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
            self.cut(rule)?;
        }
        let start = self.run.state.journal.choice.as_ref().map_or(steps, |choice| choice.step);
        let schedule = rule.schedule(warmup_ratio).map_err(Error::from)?;
        let (peak, patience, until) = (rule.refine_rate, None, start + rule.refine_steps);
        let phase = Phase::Posterior { kl_weight: self.run.state.kl_weight.unwrap_or_default() };
        let ended =
            self.train(&Stage { until, end: until, patience, schedule, start, peak, phase })?;
        if ended == Outcome::Finished {
            self.accept_or_revert_refinement(rule)?;
        }
        Ok(ended)
    }

    /// Rotates and cuts the whole model, and prepares the refinement.
    fn cut(&mut self, rule: &RankSearch) -> Result<(), O::Error> {
        self.checkpoint()?;
        let clock = Instant::now();
        let mut whole = self.run.state.model.clone();
        rotate_to_singular_basis(&mut whole)?;
        let (order, least) = order(&whole, rule.min_rank);
        let HeldOutLosses { rows: losses, measure } = self.held_out(&whole)?;
        let (margin, all) = (rule.margin, order.len());
        let mut points = vec![point(all, &losses, &losses)?];
        let sizes = sizes(all, least);
        let tested = if measure.shows(&losses) { &sizes[1..] } else { &[] };
        let bounds = tested.iter().map(|&total_rank| {
            let mut part = whole.clone();
            keep(&mut part, &order, total_rank, None);
            let found = self.held_out(&part)?;
            let found = point(total_rank, &found.rows, &losses)?;
            points.push(found);
            debug!(total_rank, of = all, found = compared(&found, measure, margin), "tried");
            self.observer.event(&Event::Searching { total_rank, of: all });
            Ok::<_, O::Error>(found.upper)
        });
        let chosen = passed_in_sequence(margin, bounds)?;
        keep(&mut whole, &order, sizes[chosen], None);
        set_relevance(&mut whole, rule.log_alpha, rule.statistic)?;
        let entries = trainable_counts(&whole).adapter.max(1);
        let n_train = self.batches.n_train();
        let unit = self.batches.score_variance()?.unwrap_or(1.0);
        let (step, rows) = (self.run.state.done, losses.len());
        let choice = Choice { step, rows, measure, margin, points, chosen, refined: None };
        self.note(choice.to_string());
        let state = &mut self.run.state;
        state.kl_weight = Some(2.0 * rule.noise * unit * n_train as f64 / entries as f64);
        // The moments belong to another basis, and the head to another model.
        state.optimizer.reset();
        state.model = whole.clone();
        // The best model is one of those after the cut.
        (state.best, state.journal.candidates) = (None, 0);
        state.journal.choice = Some(choice);
        state.cut = Some(CutModel { model: whole, whole: losses });
        self.record_ranks(RankCause::Choice, step);
        self.warn_if_empty();
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(())
    }

    /// Keeps the refined means if they are non-inferior to the whole model, else those of the cut.
    fn accept_or_revert_refinement(&mut self, rule: &RankSearch) -> Result<(), O::Error> {
        if rule.refine_steps == 0 {
            self.run.state.cut = None;
        }
        if self.run.state.cut.is_none() {
            return Ok(());
        }
        self.checkpoint()?;
        let (clock, margin) = (Instant::now(), rule.margin);
        let refined = self.run.state.model.clone();
        let HeldOutLosses { rows: losses, measure } = self.held_out(&refined)?;
        let Some(CutModel { model, whole }) = self.run.state.cut.take() else { return Ok(()) };
        let Some(choice) = &mut self.run.state.journal.choice else { return Ok(()) };
        let found = point(choice.total_rank(), &losses, &whole)?;
        choice.refined = Some(found);
        let keeps = measure.shows(&losses) && found.upper <= margin;
        let compared = compared(&found, measure, margin);
        self.note(if keeps {
            format!("the refined means pass the test at 5 %: {compared}")
        } else if measure.shows(&losses) {
            format!("the means of before the refinement stay, with its variances: {compared}")
        } else {
            "the held-out rows do not show what the refinement does: it fits the variances alone"
                .to_owned()
        });
        if !keeps {
            self.run.state.model = with_variances(model, &refined);
        }
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(())
    }

    fn held_out(&mut self, model: &M) -> Result<HeldOutLosses, O::Error> {
        self.observer.held_out(&model.valid(), &self.run.method)
    }
}

/// `model` with the noise parameters of `other`, which has its shapes.
fn with_variances<M: NamedModule>(mut model: M, other: &M) -> M {
    let mut noise = BTreeMap::new();
    other.visit_parameters(&mut |p| {
        if p.group == Group::LogVariance {
            noise.insert(p.name.to_owned(), p.value.flat());
        }
    });
    model.visit_parameters_mut(&mut |p| {
        if let Some(values) = noise.remove(p.name) {
            p.value.set_flat(values);
        }
    });
    model
}

/// Every direction, the largest `c·‖a‖·‖b‖` first, those that their modules must keep before all others; and how many these are.
fn order(model: &impl NamedModule, min_rank: usize) -> (Vec<Direction>, usize) {
    let mut seen = BTreeMap::<String, usize>::new();
    let (mut order, others): (Vec<_>, Vec<_>) =
        directions(model).into_iter().partition(|direction| {
            let place = seen.entry(direction.path.clone()).or_default();
            *place += 1;
            *place <= min_rank
        });
    let least = order.len();
    order.extend(others);
    (order, least)
}

/// The sizes of the sequence: `all`, and ever smaller ones down to `least`, or to 1.
fn sizes(all: usize, least: usize) -> Vec<usize> {
    let least = least.max(1);
    std::iter::successors(Some(all), |&n| {
        (n > least).then(|| ((SHRINK * n as f64) as usize).max(least))
    })
    .collect()
}

/// A model with its ranks cut, before its refinement.
#[derive(Clone, Debug)]
pub struct CutModel<M> {
    /// A copy of the model.
    pub model: M,
    /// The loss of the whole model on every held-out row.
    pub whole: Vec<f64>,
}

/// One rank of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Module path.
    pub path: String,
    /// Its number in the module.
    pub index: usize,
    /// What the order goes by.
    pub importance: f64,
}

/// Every direction of every pair of factors, the largest `c·‖a_i‖·‖b_i‖` first.
///
/// Of a model that was [rotated](rotate_to_singular_basis) these are the singular values of the updates. For
/// another order, sort by another importance.
pub fn directions(model: &impl NamedModule) -> Vec<Direction> {
    let mut found = Vec::new();
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let factors = adapter.host_factors();
        let b = factors.b_by_rank();
        let e = adapter.singular_values().map(|e| values(e.val()));
        let norm = |factor: &[f64], width: usize, k: usize| {
            lrvd_core::linalg::norm(&factor[k * width..(k + 1) * width])
        };
        found.extend((0..factors.rank).map(|index| {
            let length =
                norm(&factors.a, factors.d_input, index) * norm(&b, factors.d_output, index);
            let scale = e.as_ref().map_or(1.0, |e| e[index].abs());
            let importance = adapter.scaling.abs() * scale * length;
            Direction { path: path.to_owned(), index, importance }
        }));
    });
    found.sort_by(|x, y| y.importance.total_cmp(&x.importance));
    found
}

/// Keeps the first `n` directions of `order` and cuts all others out of the tensors of `model` and the
/// moments of `optimizer`. Modules without a direction in `order` stay as they are.
pub fn keep(
    model: &mut impl NamedModule,
    order: &[Direction],
    n: usize,
    optimizer: Option<&mut AdamW>,
) {
    let mut event = PruneEvent::default();
    for (place, direction) in order.iter().enumerate() {
        let kept = event.kept.entry(direction.path.clone()).or_default();
        if place < n {
            kept.push(direction.index);
        } else {
            event.changed.insert(direction.path.clone());
        }
    }
    event.kept.values_mut().for_each(|kept| kept.sort_unstable());
    apply(model, &event, optimizer, None);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_fall_to_the_least() {
        assert_eq!(sizes(10, 0), [10, 8, 6, 4, 3, 2, 1]);
        assert_eq!(sizes(10, 5), [10, 8, 6, 5]);
        assert_eq!((sizes(4, 4), sizes(0, 0)), (vec![4], vec![0]));
    }
}
