//! Held-out rows choose among the models that one run passes through.
//!
//! ```text
//! at every candidate step:  keep the model, and its loss on every held-out row
//!     while it learns:      begin the path once the adapters have earned something
//! after the last of them, or a late one beyond the tolerance of the smallest loss:
//!                           take up the fewest ranks within the tolerance of the smallest loss,
//!                           and cut it as far as the same tolerance allows
//! ```
//!
//! A rank that went too early comes back with the model that had it, and so do the optimiser's moments.

use std::collections::BTreeMap;
use std::fmt;

use lrvd_core::prune::{PairedDifference, PathPoint, PathTolerance, RankPath};

use super::config::Plan;
use super::error::TrainError;
use super::fit::Observer;
use super::method::{Method, PathStart, Turned};
use super::model::Model;
use super::progress::Event;
use super::rank_path::{Direction, directions, keep};
use super::state::{Candidate, CandidateInfo, Choice, ChoicePoint, TrainState};
use crate::model::trainable_counts;

/// Standard errors by which the adapters must beat a model without them before the path begins.
const EARNED: f64 = 2.0;
/// Factor from one cut to the next.
const CUT: f64 = 0.7;
/// Cuts in a row beyond the tolerance, after which no smaller one is tried.
const MISSES: usize = 3;

/// Notes the model as a candidate; after the last one, takes up the chosen one. `true` if it did.
pub(super) fn look<M, T, O>(
    plan: &Plan,
    state: &mut TrainState<M>,
    method: &mut T,
    observer: &mut O,
    kl_weight: f64,
    n_train: usize,
) -> Result<bool, O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    let Some(tolerance) = method.chooses() else { return Ok(false) };
    let (steps, step) = (plan.config().steps, state.done);
    let losses = losses(&state.model, method, observer)?;
    let (mut start, mut without) = (None, Vec::new());
    let earned = if method.is_learning() {
        let counts = trainable_counts(&state.model);
        without = match state.candidates.last() {
            // Where adapters alone are trained, the model without them stays what it was.
            Some(last) if counts.head + counts.backbone == 0 => last.info.without.clone(),
            _ => without_adapters(&state.model, method, observer)?,
        };
        let by = PairedDifference::new(&without, &losses).map_err(TrainError::from)?;
        let earns = by.mean > EARNED * by.standard_error;
        let here = PathStart { done: step, without: mean(&without), earned: by.mean, n_train };
        start = Some((here, earns));
        by.mean.max(0.0)
    } else {
        method.looked(mean(&losses))
    };
    let (ranks, removed) = (method.ranks(&state.model), state.journal.removed.clone());
    // A share without bound stays so, whatever is earned.
    let most = if tolerance.most.is_finite() { tolerance.most * earned } else { tolerance.most };
    let tolerance = PathTolerance { most, ..tolerance };
    let before = state.candidates.iter().map(|candidate| &candidate.info.losses);
    let best = before.min_by(|a, b| mean(a).total_cmp(&mean(b)));
    let worse = best.map(|best| PairedDifference::new(&losses, best)).transpose();
    let worse = worse.map_err(TrainError::from)?.is_some_and(|apart| !tolerance.allows(apart));
    let info = CandidateInfo { step, kl_weight, ranks, removed, losses, without };
    let (model, optimizer) = (state.model.clone(), state.optimizer.clone());
    state.candidates.push(Candidate { model, optimizer, info });
    let ends = method.may_end(step) && worse;
    if !ends && (step + 1..=steps).any(|done| method.is_candidate(done, steps)) {
        if let Some((start, true)) = start {
            method.begin(&mut state.model, Some(start))?;
        }
        return Ok(false);
    }
    let candidates = std::mem::take(&mut state.candidates);
    let mut choice = choose(&candidates, tolerance)?;
    if let Some(Candidate { model, optimizer, info }) = candidates.into_iter().nth(choice.chosen) {
        (state.model, state.optimizer) = (model, optimizer);
        state.journal.removed = info.removed;
        // A model from before the path has no posterior yet.
        if info.kl_weight == 0.0 {
            let start = start.map(|(start, _)| PathStart { done: info.step, ..start });
            method.begin(&mut state.model, start)?;
        }
    }
    // The rate that the chosen model had, falling as the schedule does from here on.
    let (chosen, schedule) = (choice.point().step, plan.schedule());
    let now = schedule.factor(step as u32);
    let rate = if now > 0.0 { schedule.factor(chosen as u32) / now } else { 1.0 };
    method.settle(chosen, rate);
    // Rows that do not tell the adapters from nothing cannot tell which ranks matter.
    if start.is_none_or(|(_, earns)| earns) {
        cut(state, method, observer, &mut choice, tolerance)?;
    }
    observer.event(&Event::Note(choice.to_string()));
    state.journal.choice = Some(choice);
    Ok(true)
}

fn losses<M, T, O>(model: &M, method: &T, observer: &mut O) -> Result<Vec<f64>, O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    let losses = observer.held_out(&model.clone().valid(), method)?;
    Ok(losses.filter(|losses| !losses.is_empty()).ok_or(TrainError::NoHeldOut)?)
}

/// The held-out losses that the adapters of `model` have to beat: those of the same model without any rank or of the best constant
/// answer, whichever are less. A head that is trained together with adapters misses them, though they say nothing yet.
fn without_adapters<M, T, O>(model: &M, method: &T, observer: &mut O) -> Result<Vec<f64>, O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    let mut without = model.clone();
    keep(&mut without, &directions(model), 0, None);
    let without = losses(&without, method, observer)?;
    let constant = observer.held_out_constant()?.filter(|losses| mean(losses) < mean(&without));
    Ok(constant.unwrap_or(without))
}

/// Turns the chosen model to its singular directions and cuts it, the direction of the smallest `c·‖a‖·‖b‖` of all modules
/// first, to the fewest within the tolerance of the best of these cuts: on the same rows they differ by less than models of different
/// steps do.
fn cut<M, T, O>(
    state: &mut TrainState<M>,
    method: &T,
    observer: &mut O,
    choice: &mut Choice,
    tolerance: PathTolerance,
) -> Result<(), O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    let (mut whole, mut optimizer) = (state.model.clone(), state.optimizer.clone());
    let Turned { statistics, min_rank } = method.turn(&mut whole, &mut optimizer)?;
    // The largest directions of a module, which it must keep, stand before all others.
    let mut seen = BTreeMap::<String, usize>::new();
    let (spared, others): (Vec<_>, Vec<_>) =
        directions(&whole).into_iter().partition(|direction| {
            let place = seen.entry(direction.path.clone()).or_default();
            *place += 1;
            *place <= min_rank
        });
    let least = spared.len();
    let mut order: Vec<Direction> = spared.into_iter().chain(others).collect();
    let (mut numbers, mut found, mut n) = (Vec::new(), Vec::new(), order.len());
    let path = loop {
        let mut part = whole.clone();
        keep(&mut part, &order, n, None);
        numbers.push(n);
        found.extend(losses(&part, method, observer)?);
        let path = RankPath::new(&numbers, &found, tolerance).map_err(TrainError::from)?;
        if n == least || numbers.len() > path.chosen + MISSES {
            break path;
        }
        n = ((CUT * n as f64) as usize).max(least);
    };
    let (kept, ChoicePoint { step, kl_weight, .. }) = (path.rank(), *choice.point());
    choice.cuts = path.points.iter().map(|point| noted(step, kl_weight, point)).collect();
    choice.cut = path.chosen;
    if kept < order.len() {
        (state.model, state.optimizer) = (whole, optimizer);
        keep(&mut state.model, &order, kept, Some(&mut state.optimizer));
        for Direction { path, index, .. } in order.split_off(kept) {
            let statistic = statistics.get(&path).and_then(|of| of.get(index)).copied();
            state.journal.removed.entry(path).or_default().extend(statistic);
        }
    }
    Ok(())
}

fn mean(losses: &[f64]) -> f64 {
    losses.iter().sum::<f64>() / losses.len().max(1) as f64
}

fn noted(step: usize, kl_weight: f64, point: &PathPoint) -> ChoicePoint {
    let PathPoint { rank: total_rank, loss, standard_error } = *point;
    ChoicePoint { step, kl_weight, total_rank, loss, standard_error }
}

fn choose<M>(candidates: &[Candidate<M>], tolerance: PathTolerance) -> Result<Choice, TrainError> {
    let total = |info: &CandidateInfo| info.ranks.values().sum::<usize>();
    let ranks: Vec<usize> = candidates.iter().map(|c| total(&c.info)).collect();
    let losses: Vec<f64> = candidates.iter().flat_map(|c| c.info.losses.clone()).collect();
    let RankPath { points, best, chosen } = RankPath::new(&ranks, &losses, tolerance)?;
    let infos = candidates.iter().map(|candidate| &candidate.info);
    let points = infos.zip(&points).map(|(info, point)| noted(info.step, info.kl_weight, point));
    Ok(Choice { points: points.collect(), best, chosen, cuts: Vec::new(), cut: 0 })
}

impl Choice {
    /// The chosen candidate.
    pub fn point(&self) -> &ChoicePoint {
        &self.points[self.chosen]
    }

    /// The ranks that it was left with.
    pub fn total_rank(&self) -> usize {
        self.cuts.get(self.cut).map_or(self.point().total_rank, |cut| cut.total_rank)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chosen, best) = (self.point(), &self.points[self.best]);
        write!(
            f,
            "held-out rows choose rank {} at KL weight {:.2e}, step {}: loss {:.4}",
            chosen.total_rank, chosen.kl_weight, chosen.step, chosen.loss,
        )?;
        if self.chosen == self.best {
            write!(f, ", the smallest of {}", self.points.len())?;
        } else {
            write!(
                f,
                ", the smallest of {} is {:.4} at rank {}, apart by {:.1} standard errors",
                self.points.len(),
                best.loss,
                best.total_rank,
                (chosen.loss - best.loss) / chosen.standard_error.max(f64::MIN_POSITIVE),
            )?;
        }
        if let Some(cut) = self.cuts.get(self.cut) {
            write!(f, "; {} of its singular directions do (loss {:.4})", cut.total_rank, cut.loss)?;
        }
        if self.best > 0 && self.best + 1 == self.points.len() {
            write!(f, "; it still fell at the last look: more steps may serve better")?;
        }
        if self.points.iter().all(|point| point.kl_weight == 0.0) {
            write!(
                f,
                "; the adapters had earned nothing on these rows before, so that the weight has not risen: more steps, or \
                 more rows, may find fewer ranks"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_that_earned_nothing_are_told() {
        let points = |kl_weight| {
            [(8, 0.75), (4, 0.5), (2, 0.625)].map(|(total_rank, loss)| ChoicePoint {
                step: 10,
                kl_weight,
                total_rank,
                loss,
                standard_error: 0.25,
            })
        };
        let told_of = |kl_weight, chosen, n| {
            let (points, cuts) = (points(kl_weight)[..n].to_vec(), Vec::new());
            Choice { points, best: 1, chosen, cuts, cut: 0 }.to_string()
        };
        let told = |kl_weight, chosen| told_of(kl_weight, chosen, 3);
        let start = "held-out rows choose rank 4 at KL weight 1.25e-1, step 10: loss 0.5000";
        assert_eq!(told(0.125, 1), format!("{start}, the smallest of 3"));
        assert!(told(0.125, 2).ends_with("is 0.5000 at rank 4, apart by 0.5 standard errors"));
        assert!(
            told_of(0.125, 1, 2)
                .ends_with("of 2; it still fell at the last look: more steps may serve better")
        );
        assert!(told(0.0, 1).contains("the smallest of 3; the adapters had earned nothing"));
    }
}
