//! Train whole, rotate, cut, refine: held-out rows choose how many directions are enough.
//!
//! ```text
//! train    the whole model at its mean, as LoRA, for all steps of the settings
//! rotate   every update to its singular directions; the update stays
//! cut      the fewest directions that are non-inferior to the whole model, over all modules in one order
//! refine   further steps with the posterior, on all rows; the means stay if they are non-inferior to the whole model
//! ```
//!
//! The search drives the loop: it runs stages of training, decides between them, and takes the place of the
//! method's schedule of the divergence and of its changes of ranks.
//!
//! A model is non-inferior if the upper end of the one-sided 95 % interval of its mean loss less that of the whole model, row
//! by row, is at most the margin. The cut tries sizes by bisection; each try is a test at 5 %, so that a cut beyond the margin
//! is kept with a probability of at most 5 % for each size near it that is tried.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use lrvd_core::prune::{PairedDifference, StatisticOptions};
use lrvd_core::schedule::LrSchedule;
use tracing::debug;

use super::config::{TrainConfig, range};
use super::data::Model;
use super::fit::{Loop, Observer, Outcome, Stage};
use super::method::{Method, Setup};
use super::order::Batches;
use super::progress::Event;
use super::rank_path::{Direction, directions, keep};
use super::state::{Choice, ChoicePoint, CutModel, RankCause};
use super::step::Part;
use crate::error::Error;
use crate::gauge::rotate;
use crate::model::{NamedModule, trainable_counts};
use crate::parameters::Group;
use crate::parameters::ParameterValue as _;
use crate::prune::set_relevance;

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
    /// Checks the ranges.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        range("search.margin", self.margin, 0.0, 1e3)?;
        range("search.refine_steps", self.refine_steps as f64, 0.0, 1e9)?;
        range("search.refine_rate", self.refine_rate, 0.0, 1e3)?;
        range("log_alpha", self.log_alpha, -20.0, 20.0)?;
        range("noise", self.noise, 0.0, 1e6)
    }

    /// Checks that adapters of `setup` can be searched, and takes their updates off `model`: it is trained as LoRA first.
    pub(super) fn prepare(&self, setup: &Setup, model: &mut impl NamedModule) -> Result<(), Error> {
        self.check()?;
        range("search.min_rank", self.min_rank as f64, 0.0, setup.adapter.rank as f64)?;
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

/// A search in a run.
pub(super) struct Search<'s, 'a, M, T: ?Sized, B, O> {
    pub(super) rule: &'s RankSearch,
    pub(super) run: Loop<'a, M, T, B, O>,
}

impl<M, T, B, O> Search<'_, '_, M, T, B, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    B: Batches<Input = M::Input>,
    O: Observer<M, T>,
{
    /// Trains, cuts and refines until the end, a stop request or an error.
    pub(super) fn fit(&mut self) -> Result<Outcome, O::Error> {
        let rule = self.rule;
        let &TrainConfig { steps, warmup_ratio, .. } = self.run.config;
        self.run.start()?;
        if self.run.state.journal.choice.is_none() {
            let stage = self.run.first(steps + rule.refine_steps, Part::Mean);
            if self.run.train(&stage)? == Outcome::Stopped || self.cut()? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
        }
        if let Some(Choice { step: start, .. }) = self.run.state.journal.choice {
            let schedule = rule.schedule(warmup_ratio).map_err(Error::from)?;
            let (peak, patience) = (rule.refine_rate, None);
            let until = start + rule.refine_steps;
            let part = Part::Posterior { kl_weight: self.run.state.kl_weight.unwrap_or_default() };
            let stage = Stage { until, end: until, patience, schedule, start, peak, part };
            if self.run.train(&stage)? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
            self.settle()?;
        }
        self.run.finish()
    }

    /// Rotates and cuts the whole model, and prepares the refinement. A stop request that comes meanwhile ends this before the
    /// next pass over the held-out rows, with a checkpoint of the state as it was.
    fn cut(&mut self) -> Result<Outcome, O::Error> {
        let clock = Instant::now();
        let rule = self.rule;
        // An earlier request ends the run after the next step: every start takes one.
        let stopped_before = self.run.observer.stops();
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
            if self.run.observer.stops() && !stopped_before {
                self.run.observer.checkpoint(self.run.state, self.run.method)?;
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
            self.run.observer.event(&Event::Searching { total_rank, of });
        }
        keep(&mut whole, &order, sizes[enough], None);
        let merged = self.run.batches.merge_holdout()?;
        set_relevance(&mut whole, rule.log_alpha, rule.statistic)?;
        let entries = trainable_counts(&whole).adapter.max(1);
        let n_train = self.run.batches.n_train();
        let (step, rows, margin) = (self.run.state.done, losses.len(), rule.margin);
        let choice = Choice { step, rows, margin, points, chosen, refined: None };
        self.run.note(choice.to_string());
        let state = &mut *self.run.state;
        state.kl_weight = Some(2.0 * rule.noise * n_train as f64 / entries as f64);
        // The moments belong to another basis, and the head to another model.
        state.optimizer.reset();
        state.model = whole.clone();
        // The best model is one of those after the cut.
        state.best = None;
        state.journal.choice = Some(choice);
        state.cut = Some(CutModel { model: whole, whole: losses });
        self.run.record_ranks(RankCause::Choice, step);
        self.run.warn_if_empty();
        if merged > 0 && rule.refine_steps > 0 {
            let steps = rule.refine_steps;
            self.run.note(format!(
                "the {merged} held-out rows take part in the {steps} steps of refinement"
            ));
        }
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(Outcome::Finished)
    }

    /// Keeps the refined means if they are non-inferior to the whole model, else those of the cut.
    ///
    /// Where the held-out rows took part in the refinement their losses say little of other rows; they still show damage.
    fn settle(&mut self) -> Result<(), O::Error> {
        let Some(CutModel { model, whole }) = self.run.state.cut.take() else { return Ok(()) };
        if self.rule.refine_steps == 0 {
            return Ok(());
        }
        let (clock, margin) = (Instant::now(), self.rule.margin);
        let refined = self.run.state.model.clone();
        let losses = self.held_out(&refined)?;
        let Some(choice) = &mut self.run.state.journal.choice else { return Ok(()) };
        let found = point(choice.total_rank(), &losses, &whole)?;
        choice.refined = Some(found);
        let (enough, compared) = (losses.len() >= ROWS, compared(&found, margin));
        let keeps = enough && found.upper <= margin;
        self.run.note(match (enough, keeps) {
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

    /// The loss of every held-out row; none without such rows.
    fn held_out(&mut self, model: &M) -> Result<Vec<f64>, O::Error> {
        let losses = self.run.observer.held_out(&model.clone().valid(), self.run.method)?;
        Ok(losses.unwrap_or_default())
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

impl Choice {
    /// The size that was kept.
    pub fn point(&self) -> &ChoicePoint {
        &self.points[self.chosen]
    }

    /// The ranks that were kept.
    pub fn total_rank(&self) -> usize {
        self.point().total_rank
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, all) = (self.point(), self.points[0].total_rank);
        if self.chosen > 0 {
            let Self { margin, .. } = *self;
            return write!(
                f,
                "held-out rows choose {} of {all} ranks: loss {}",
                kept.total_rank,
                compared(kept, margin)
            );
        }
        if self.rows < ROWS {
            let rows = self.rows;
            return write!(
                f,
                "all {all} ranks stay: {rows} held-out rows are too few to show that fewer are enough ({ROWS} are needed)"
            );
        }
        match self.points[1..].iter().max_by_key(|point| point.total_rank) {
            Some(point) => write!(
                f,
                "held-out rows choose all {all} ranks: with {} the loss is {}",
                point.total_rank,
                compared(point, self.margin)
            ),
            None => write!(f, "all {all} ranks stay: no size below is tried"),
        }
    }
}

#[cfg(test)]
mod tests {
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
        let points = vec![point(576, 0.0, 0.0), point(16, 0.03, 0.04), point(40, 0.002, 0.006)];
        let (step, margin, refined) = (100, 0.01, None);
        let choice = Choice { step, rows: 1000, margin, points, chosen: 2, refined };
        let compared = "0.2910 against 0.2890 with all ranks; the difference is at most 0.0060 with 95 % confidence, the margin is 0.01";
        assert_eq!(
            choice.to_string(),
            format!("held-out rows choose 40 of 576 ranks: loss {compared}")
        );
        let short = Choice { chosen: 0, ..choice.clone() }.to_string();
        assert_eq!(
            short,
            format!("held-out rows choose all 576 ranks: with 40 the loss is {compared}")
        );
        let few = Choice { chosen: 0, rows: 40, ..choice }.to_string();
        assert!(few.starts_with("all 576 ranks stay: 40 held-out rows are too few"), "{few}");
    }
}
