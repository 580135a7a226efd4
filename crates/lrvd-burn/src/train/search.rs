//! How many directions are enough: losses of a model with fewer and fewer of them, on held-out rows.
//!
//! After any training run:
//!
//! ```text
//! turn(&mut model)                    each rank a singular direction of its module's update
//! order = directions(&model)          of all modules together, the most important first
//! keep(&mut model, &order, n, ...)    the first n; the others are cut out of the tensors
//! ```
//!
//! A [`RankSearch`] does that within a run, in place of the method's schedule of the divergence and of its changes of ranks:
//!
//! ```text
//! train    the whole model at its mean, as LoRA, for all steps of the settings
//! rotate   every update to its singular directions; the update stays
//! cut      the fewest directions that are non-inferior to the whole model, over all modules in one order
//! refine   further steps with the posterior, on all rows; the means stay if they are non-inferior to the whole model
//! ```
//!
//! A model is non-inferior if the upper end of the one-sided 95 % interval of its mean loss less that of the whole model, row
//! by row, is at most the margin. The cut tries sizes by bisection; each try is a test at 5 %, so that a cut beyond the margin
//! is kept with a probability of at most 5 % for each size near it that is tried.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use lrvd_core::baselines::temperature_scaling;
use lrvd_core::error::check_range;
use lrvd_core::metrics::log_softmax;
use lrvd_core::prune::{PairedDifference, StatisticOptions};
use lrvd_core::schedule::LrSchedule;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::data::{Model, Targets};
use super::fit::{Loop, Outcome, Part, Stage};
use super::method::{Method, Setup};
use super::predict::Logits;
use super::state::RankCause;
use super::watch::{Event, Observer};
use crate::error::Error;
use crate::gauge::rotate;
use crate::host::{HostAdapter, values};
use crate::model::{NamedModule, trainable_counts};
use crate::optimizer::AdamW;
use crate::parameters::{Group, ParameterValue as _};
use crate::prune::{PruneEvent, apply, set_relevance};

/// Factor from one size to the next smaller one.
const SHRINK: f64 = 0.8;
/// Fewest held-out rows that are enough for a decision.
const ROWS: usize = 100;

/// A search for ranks: how much may be lost, and what follows the cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSearch {
    /// The most that the mean held-out loss may rise over that of the whole model, nats per row (squared error of scores).
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
    /// Cost of the noise of a draw in the refinement, nats per answer. It gives the weight of the divergence,
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
            return Err(Error::Undefined(
                "a search for ranks: the adapters of the method have no posterior".to_owned(),
            ));
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
            let stage = self.first(steps + rule.refine_steps, Part::Mean);
            if self.train(&stage)? == Outcome::Stopped || self.cut(rule)? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
        }
        let start = self.run.state.journal.choice.as_ref().map_or(steps, |choice| choice.step);
        let schedule = rule.schedule(warmup_ratio).map_err(Error::from)?;
        let (peak, patience, until) = (rule.refine_rate, None, start + rule.refine_steps);
        let part = Part::Posterior { kl_weight: self.run.state.kl_weight.unwrap_or_default() };
        let ended =
            self.train(&Stage { until, end: until, patience, schedule, start, peak, part })?;
        if ended == Outcome::Finished {
            self.settle(rule)?;
        }
        Ok(ended)
    }

    /// Rotates and cuts the whole model, and prepares the refinement. A stop request that comes meanwhile ends this before the
    /// next pass over the held-out rows, with a checkpoint of the state as it was.
    fn cut(&mut self, rule: &RankSearch) -> Result<Outcome, O::Error> {
        let clock = Instant::now();
        // An earlier request ends the run after the next step: every start takes one.
        let stopped_before = self.observer.stops();
        let mut whole = self.run.state.model.clone();
        rotate(&mut whole)?;
        let (order, least) = order(&whole, rule.min_rank);
        let losses = self.held_out(&whole)?;
        let mut points = vec![point(order.len(), &losses, &losses)?];
        // Sizes up to `enough` are non-inferior, those from `short` on are not.
        let sizes = sizes(order.len(), least);
        let (mut enough, mut short) = (0, if losses.len() < ROWS { 1 } else { sizes.len() });
        let mut chosen = 0;
        while short - enough > 1 {
            if self.observer.stops() && !stopped_before {
                self.observer.checkpoint(&self.run.state, &self.run.method)?;
                return Ok(Outcome::Stopped);
            }
            let middle = usize::midpoint(enough, short);
            let mut part = whole.clone();
            keep(&mut part, &order, sizes[middle], None);
            let found = point(sizes[middle], &self.held_out(&part)?, &losses)?;
            if found.upper <= rule.margin {
                (enough, chosen) = (middle, points.len());
            } else {
                short = middle;
            }
            points.push(found);
            let (total_rank, of) = (found.total_rank, order.len());
            debug!(total_rank, of, found = compared(&found, rule.margin), "tried");
            self.observer.event(&Event::Searching { total_rank, of });
        }
        keep(&mut whole, &order, sizes[enough], None);
        let merged = self.batches.merge_holdout();
        set_relevance(&mut whole, rule.log_alpha, rule.statistic)?;
        let entries = trainable_counts(&whole).adapter.max(1);
        let n_train = self.batches.n_train();
        let (step, rows, margin) = (self.run.state.done, losses.len(), rule.margin);
        let choice = Choice { step, rows, margin, points, chosen, refined: None };
        self.note(choice.to_string());
        let state = &mut self.run.state;
        state.kl_weight = Some(2.0 * rule.noise * n_train as f64 / entries as f64);
        // The moments belong to another basis, and the head to another model.
        state.optimizer.reset();
        state.model = whole.clone();
        // The best model is one of those after the cut.
        state.best = None;
        state.journal.choice = Some(choice);
        state.cut = Some(CutModel { model: whole, whole: losses });
        self.record_ranks(RankCause::Choice, step);
        self.warn_if_empty();
        if merged > 0 && rule.refine_steps > 0 {
            let steps = rule.refine_steps;
            self.note(format!(
                "the {merged} held-out rows take part in the {steps} steps of refinement"
            ));
        }
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(Outcome::Finished)
    }

    /// Keeps the refined means if they are non-inferior to the whole model, else those of the cut.
    ///
    /// Where the held-out rows took part in the refinement their losses say little of other rows; they still show damage.
    fn settle(&mut self, rule: &RankSearch) -> Result<(), O::Error> {
        let Some(CutModel { model, whole }) = self.run.state.cut.take() else { return Ok(()) };
        if rule.refine_steps == 0 {
            return Ok(());
        }
        let (clock, margin) = (Instant::now(), rule.margin);
        let refined = self.run.state.model.clone();
        let losses = self.held_out(&refined)?;
        let Some(choice) = &mut self.run.state.journal.choice else { return Ok(()) };
        let found = point(choice.total_rank(), &losses, &whole)?;
        choice.refined = Some(found);
        let (enough, compared) = (losses.len() >= ROWS, compared(&found, margin));
        let keeps = enough && found.upper <= margin;
        self.note(match (enough, keeps) {
            (_, true) => format!("refined: loss {compared}"),
            (false, _) => format!(
                "{} held-out rows do not show what the refinement does: it fits the variances alone",
                losses.len()
            ),
            _ => format!(
                "the means of before the refinement stay, with its variances: loss {compared}"
            ),
        });
        if !keeps {
            self.run.state.model = with_variances(model, &refined);
        }
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(())
    }

    fn held_out(&mut self, model: &M) -> Result<Vec<f64>, O::Error> {
        self.observer.held_out(&model.clone().valid(), &self.run.method)
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

/// The sizes that are tried: `all`, and ever smaller ones down to `least`, or to 1.
fn sizes(all: usize, least: usize) -> Vec<usize> {
    let least = least.max(1);
    std::iter::successors(Some(all), |&n| {
        (n > least).then(|| ((SHRINK * n as f64) as usize).max(least))
    })
    .collect()
}

/// `losses` of a model of `total_rank` directions against those of the whole model; both 0 without rows.
fn point(total_rank: usize, losses: &[f64], whole: &[f64]) -> Result<ChoicePoint, Error> {
    if losses.is_empty() {
        return Ok(ChoicePoint { total_rank, ..ChoicePoint::default() });
    }
    let apart = PairedDifference::new(losses, whole)?;
    let loss = losses.iter().sum::<f64>() / losses.len() as f64;
    Ok(ChoicePoint { total_rank, loss, difference: apart.mean, upper: apart.upper() })
}

fn compared(point: &ChoicePoint, margin: f64) -> String {
    let ChoicePoint { loss, difference, upper, .. } = point;
    format!(
        "{loss:.4} against {:.4} with all ranks; the difference is at most {upper:.4} with 95 % confidence, the margin is {margin}",
        loss - difference
    )
}

/// A model with its ranks cut, before its refinement.
#[derive(Clone, Debug)]
pub struct CutModel<M> {
    /// A copy of the model.
    pub model: M,
    /// The loss of the whole model on every held-out row.
    pub whole: Vec<f64>,
}

/// The number of directions that held-out rows showed to be enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Completed steps of the whole model.
    pub step: usize,
    /// Held-out rows.
    pub rows: usize,
    /// The most that the mean loss may rise over that of the whole model.
    pub margin: f64,
    /// The sizes that were tried, the whole model first.
    pub points: Vec<ChoicePoint>,
    /// Place of the size that was kept.
    pub chosen: usize,
    /// The kept size after its refinement, whose means stay if its bound is within the margin; `None` before, or without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refined: Option<ChoicePoint>,
}

/// A size beside the whole model, on the held-out rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoicePoint {
    /// Sum of ranks over all adapters.
    pub total_rank: usize,
    /// Mean loss.
    pub loss: f64,
    /// Mean difference of the losses to those of the whole model, row by row.
    pub difference: f64,
    /// Upper end of its one-sided 95 % interval.
    pub upper: f64,
}

impl Choice {
    /// The ranks that were kept.
    pub fn total_rank(&self) -> usize {
        self.points[self.chosen].total_rank
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { rows, margin, ref points, chosen, .. } = self;
        let (kept, all) = (&points[chosen], points[0].total_rank);
        let next = points[1..].iter().max_by_key(|point| point.total_rank);
        match next {
            _ if chosen > 0 => {
                let (rank, loss) = (kept.total_rank, compared(kept, margin));
                write!(f, "held-out rows choose {rank} of {all} ranks: loss {loss}")
            }
            _ if rows < ROWS => write!(
                f,
                "all {all} ranks stay: {rows} held-out rows are too few to show that fewer are enough ({ROWS} are needed)"
            ),
            Some(next) => {
                let (rank, loss) = (next.total_rank, compared(next, margin));
                write!(f, "held-out rows choose all {all} ranks: with {rank} the loss is {loss}")
            }
            None => write!(f, "all {all} ranks stay: no size below is tried"),
        }
    }
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
/// Of a model that was [turned](crate::gauge::turn) these are the singular values of the updates. For
/// another order, sort by another importance.
pub fn directions(model: &impl NamedModule) -> Vec<Direction> {
    let mut found = Vec::new();
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let host = HostAdapter::read(adapter);
        let norm = |factor: &[f64], width: usize, k: usize| {
            lrvd_core::linalg::norm(&factor[k * width..(k + 1) * width])
        };
        found.extend((0..host.rank).map(|index| {
            let length = norm(&host.a, host.d_input, index) * norm(&host.b, host.d_output, index);
            let scale = host.e.as_ref().map_or(1.0, |e| e[index].abs());
            let importance = host.scaling.abs() * scale * length;
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

/// The loss of every row at the first member: the squared error of scores, or the negative log-likelihood (of soft labels the
/// cross-entropy against their shares) in nats at the temperature that minimises its mean, from 0.01 to 100.
///
/// How confident a model is, is one number, which can be fitted afterwards: models are compared by what is left. Where
/// the loss has no minimum, because every answer is right or the logits contradict the labels, the temperature is the bound
/// that the search runs into.
pub fn calibrated_losses(logits: &Logits, targets: &Targets) -> Result<Vec<f64>, Error> {
    let mut first = logits.first(1);
    match targets {
        Targets::Classes(shares) => {
            let expected = values(shares.clone());
            let fit = temperature_scaling(&first.values, first.width, &expected);
            let temperature = fit.map_err(Error::other)?.temperature;
            first.values.iter_mut().for_each(|logit| *logit /= temperature);
            let logs = log_softmax(&first.values, first.width)?;
            let row = |(logs, expected): (&[f64], &[f64])| {
                let weighted = logs.iter().zip(expected).filter(|(_, w)| **w != 0.0);
                -weighted.map(|(log, w)| log * w).sum::<f64>()
            };
            Ok(logs.chunks(first.width).zip(expected.chunks(first.width)).map(row).collect())
        }
        Targets::Scores(scores) => {
            let pairs = first.values.iter().zip(values(scores.clone()));
            Ok(pairs.map(|(found, expected)| (found - expected).powi(2)).collect())
        }
        Targets::Tokens { .. } => Err(Error::token_logits()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};

    use super::*;

    #[test]
    fn sizes_fall_to_the_least() {
        assert_eq!(sizes(10, 0), [10, 8, 6, 4, 3, 2, 1]);
        assert_eq!(sizes(10, 5), [10, 8, 6, 5]);
        assert_eq!((sizes(4, 4), sizes(0, 0)), (vec![4], vec![0]));
    }

    #[test]
    fn a_choice_says_what_was_decided_and_why() {
        let point = |total_rank, difference, upper| ChoicePoint {
            total_rank,
            loss: 0.289 + difference,
            difference,
            upper,
        };
        let points = [point(576, 0.0, 0.0), point(16, 0.03, 0.04), point(40, 0.002, 0.006)];
        let compared = "0.2910 against 0.2890 with all ranks; the difference is at most 0.0060 with 95 % confidence, the margin is 0.01";
        let few = "40 held-out rows are too few to show that fewer are enough (100 are needed)";
        for (rows, chosen, tried, expected) in [
            (1000, 2, 3, format!("held-out rows choose 40 of 576 ranks: loss {compared}")),
            (
                1000,
                0,
                3,
                format!("held-out rows choose all 576 ranks: with 40 the loss is {compared}"),
            ),
            (40, 0, 1, format!("all 576 ranks stay: {few}")),
            (1000, 0, 1, "all 576 ranks stay: no size below is tried".to_owned()),
        ] {
            let (step, margin, points) = (100, 0.01, points[..tried].to_vec());
            let choice = Choice { step, rows, margin, points, chosen, refined: None };
            assert_eq!(choice.to_string(), expected);
        }
    }

    #[test]
    fn losses_are_those_at_the_best_temperature() {
        let one_hot = |classes: [usize; 4]| {
            let rows = classes.map(|class| [f32::from(class == 0), f32::from(class == 1)]);
            Targets::Classes(Tensor::<2>::from_floats(rows, &Device::default()))
        };
        // Three of four right, whatever the logits are multiplied by: the best answer is 3/4 for each. All right: 0.
        for scale in [0.1, 4.0, 40.0] {
            let logits = Logits::new([scale, 0.0].repeat(4), 4, 2);
            let (most, all) = ([0.75_f64, 0.75, 0.75, 0.25], [1.0; 4]);
            for (classes, expected) in [([0, 0, 0, 1], most), ([0; 4], all)] {
                let losses = calibrated_losses(&logits, &one_hot(classes)).unwrap();
                for (loss, expected) in losses.iter().zip(expected) {
                    assert!((loss + expected.ln()).abs() < 1e-4, "{loss} {expected}");
                }
            }
        }
        // The votes on one row are as good as a row for each of them.
        let votes = Targets::Classes(Tensor::from_floats([[0.75, 0.25]], &Device::default()));
        let losses = calibrated_losses(&Logits::new(vec![4.0, 0.0], 1, 2), &votes).unwrap();
        let entropy = -(0.75_f64 * 0.75_f64.ln() + 0.25 * 0.25_f64.ln());
        assert!((losses[0] - entropy).abs() < 1e-9, "{losses:?}");
        let scores = Targets::Scores(Tensor::<2>::from_floats([[1.0], [3.0]], &Device::default()));
        let logits = Logits::new(vec![2.0, 5.0], 2, 1);
        assert_eq!(calibrated_losses(&logits, &scores).unwrap(), [1.0, 4.0]);
    }
}
