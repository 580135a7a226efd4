//! The loop around a step.

use std::time::Instant;

use tracing::{debug, trace};

use super::batch::Batch;
use super::batches::Batches;
use super::config::{Plan, TrainConfig};
use super::method::{Method, RankChange};
use super::model::Model;
use super::progress::{Event, Pace};
use super::search::{cut, settle};
use super::state::{BestInfo, BestModel, EvalPoint, Evaluation, RankCause, RankEvent, TrainState};
use super::step::{StepContext, train_step};
use crate::error::Error;
use crate::objective::ObjectiveParts;

/// Callbacks of a run: events, evaluations, checkpoints, and whether it should stop.
pub trait Observer<M: Model, T: Method<M> + ?Sized> {
    /// What may go wrong on this side.
    type Error: From<Error>;

    /// Receives an event.
    fn event(&mut self, _event: &Event) {}

    /// Evaluates the model, which has no gradients; `None` measures nothing.
    fn evaluate(&mut self, _model: &M, _method: &T) -> Result<Option<Evaluation>, Self::Error> {
        Ok(None)
    }

    /// The loss of `model` on every row that was held out of training, for a method that searches its ranks by them;
    /// `None` if there are none. Of classes best by [`calibrated_losses`](super::calibrated_losses).
    fn held_out(&mut self, _model: &M, _method: &T) -> Result<Option<Vec<f64>>, Self::Error> {
        Ok(None)
    }

    /// Keeps what a checkpoint holds; called after every evaluation, before a stop and at the end.
    fn checkpoint(&mut self, _state: &TrainState<M>, _method: &T) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Whether the run should end after this step.
    fn stops(&self) -> bool {
        false
    }
}

/// How a call to [`fit`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done, or the run's patience is.
    Finished,
    /// The observer asked to stop; a checkpoint was due.
    Stopped,
}

/// Trains until the last step, the end of its patience, a stop request or an error. A method that
/// [searches its ranks](super::Method::search) is then cut and refined in further steps.
pub fn fit<M, T, B, O>(
    plan: &Plan,
    state: &mut TrainState<M>,
    method: &mut T,
    batches: &mut B,
    observer: &mut O,
) -> Result<Outcome, O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    B: Batches<Input = M::Input>,
    O: Observer<M, T>,
{
    let (config, schedule) = (plan.config(), plan.schedule());
    if !state.position.is_null() {
        batches.seek(
            serde_json::from_value(state.position.clone())
                .map_err(|error| Error::position(&error))?,
        )?;
    }
    if state.done == 0 && state.journal.rank_events.is_empty() {
        record_ranks(state, method, RankCause::Start, 0);
        evaluate(state, method, observer, None, schedule.factor(0))?;
    }
    let search = method.search();
    let further = search.map_or(0, |search| search.refine_steps);
    let mut last = None;
    if state.journal.choice.is_none() {
        let rate = |step: usize| schedule.factor(step as u32);
        let stretch = Stretch { config, until: config.steps, further, rate: &rate };
        match train(&stretch, state, method, batches, observer)? {
            (Outcome::Stopped, _) => return Ok(Outcome::Stopped),
            (Outcome::Finished, step) => last = step,
        }
        if let Some(search) = &search
            && cut(search, state, method, batches, observer)? == Outcome::Stopped
        {
            return Ok(Outcome::Stopped);
        }
    }
    if let (Some(search), Some(choice)) = (&search, &state.journal.choice) {
        let start = choice.step;
        let schedule = search.schedule(config.warmup_ratio).map_err(Error::from)?;
        let rate =
            |step: usize| search.refine_rate * schedule.factor((step.saturating_sub(start)) as u32);
        let config = &TrainConfig { patience: None, ..config.clone() };
        let stretch = Stretch { config, until: start + further, further: 0, rate: &rate };
        match train(&stretch, state, method, batches, observer)? {
            (Outcome::Stopped, _) => return Ok(Outcome::Stopped),
            (Outcome::Finished, step) => last = step.or(last),
        }
        settle(search, state, method, observer)?;
    }
    if state.journal.history.last().is_none_or(|point| point.step != state.done) {
        let (parts, factor) = last.unzip();
        evaluate(state, method, observer, parts, factor.unwrap_or_default())?;
    }
    observer.checkpoint(state, method)?;
    Ok(Outcome::Finished)
}

/// Steps under one schedule.
struct Stretch<'a> {
    config: &'a TrainConfig,
    /// Completed steps after it.
    until: usize,
    /// Steps that follow it.
    further: usize,
    /// Factor of every learning rate by step.
    rate: &'a dyn Fn(usize) -> f64,
}

/// The objective of a step and the factor of its learning rates.
type Step = (ObjectiveParts, f64);

/// Takes the steps of `stretch`, with evaluations and checkpoints on the way; returns how they ended, and the last one taken.
fn train<M, T, B, O>(
    stretch: &Stretch<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    batches: &mut B,
    observer: &mut O,
) -> Result<(Outcome, Option<Step>), O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    B: Batches<Input = M::Input>,
    O: Observer<M, T>,
{
    let Stretch { config, until, further, rate } = *stretch;
    let steps = until + further;
    let start = state.done;
    let mut pace = Pace::after(state.journal.history.len(), state.journal.evaluate_seconds);
    let mut last = None;
    while state.done < until {
        if let Some(best) =
            config.patience.and_then(|patience| waited(patience, &state.journal.history))
        {
            let (done, n) = (state.done, config.patience.unwrap_or_default());
            observer.event(&Event::Note(format!(
                "stopped at step {done} of {until}: {n} evaluations are no better than that of step {best}"
            )));
            break;
        }
        let begun = Instant::now();
        let step = state.done;
        let factor = method.rate_factor(step, rate(step));
        let micro_batches = batches.next_step()?;
        let examples = micro_batches.iter().map(Batch::rows).sum::<usize>();
        if step == start {
            let sizes = |of: fn(&Batch<B::Input>) -> usize| {
                micro_batches.iter().map(of).collect::<Vec<_>>()
            };
            debug!(step, rows = ?sizes(Batch::rows), tokens = ?sizes(|batch| batch.tokens), "first batches");
        }
        let context = StepContext { config, n_train: batches.n_train(), rate_factor: factor };
        let taken = train_step(&context, state, method, micro_batches)?;
        for (change, done) in taken.changes {
            note_change(state, method, observer, change, done);
        }
        state.done += 1;
        state.position =
            serde_json::to_value(batches.position()).map_err(|error| Error::position(&error))?;
        let seconds = begun.elapsed().as_secs_f64();
        state.journal.train_seconds += seconds;
        pace.step(examples, seconds);
        let (done, parts) = (state.done, taken.parts);
        last = Some((parts, factor));
        trace!(done, loss = parts.loss, nll = parts.nll, kl = parts.kl, factor, "step");
        let every = config.evaluate_every;
        observer.event(&Event::Step {
            done,
            loss: parts.loss,
            nll: parts.nll,
            kl: parts.kl,
            total_rank: method.ranks(&state.model).values().sum(),
            examples_per_second: pace.examples_per_second(),
            seconds_left: pace.seconds_left(done, steps, every),
        });
        // The end of the run is evaluated when its model is settled.
        let due = done < steps && done.is_multiple_of(every);
        let clock = Instant::now();
        if due {
            evaluate(state, method, observer, Some(parts), factor)?;
        }
        let stops = observer.stops() && done < steps;
        if due || stops {
            observer.checkpoint(state, method)?;
            pace.evaluation(clock.elapsed().as_secs_f64());
        }
        if stops {
            return Ok((Outcome::Stopped, last));
        }
    }
    Ok((Outcome::Finished, last))
}

/// The step of the best evaluation, if `patience` later ones are no better. A function of the journal alone, so that a run
/// that is taken up again ends where it would have ended.
fn waited(patience: usize, history: &[EvalPoint]) -> Option<usize> {
    let loss = |point: &EvalPoint| {
        let Evaluation { metrics, score, .. } = &point.evaluation;
        metrics.get("nll").copied().or(score.map(|score| -score)).unwrap_or(f64::INFINITY)
    };
    let losses: Vec<f64> = history.iter().map(loss).collect();
    let (best, _) = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    (losses.len() > best + patience).then(|| history[best].step)
}

fn note_change<M, T, O>(
    state: &mut TrainState<M>,
    method: &T,
    observer: &mut O,
    change: RankChange,
    done: usize,
) where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    for (path, values) in change.removed {
        state.journal.removed.entry(path).or_default().extend(values);
    }
    debug!(done, before = change.before, after = change.after, cause = ?change.cause, "ranks changed");
    record_ranks(state, method, change.cause, done);
    if change.after != change.before {
        observer.event(&Event::Pruned { done, before: change.before, after: change.after });
        warn_if_empty(state, method, observer);
    }
}

/// Notes that no rank is left, and that only the head is trained from here on.
pub(super) fn warn_if_empty<M, T, O>(state: &TrainState<M>, method: &T, observer: &mut O)
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    if method.ranks(&state.model).values().all(|&rank| rank == 0) {
        let note = "no adapter has a rank left, only the head is trained on: a smaller KL weight, more \
                    examples or a later prune keep some";
        observer.event(&Event::Note(note.to_owned()));
    }
}

pub(super) fn record_ranks<M: Model, T: Method<M> + ?Sized>(
    state: &mut TrainState<M>,
    method: &T,
    cause: RankCause,
    done: usize,
) {
    let ranks = method.ranks(&state.model);
    let total_rank = ranks.values().sum::<usize>() as u64;
    state.journal.rank_events.push(RankEvent {
        step: done as u64,
        cause,
        ranks: ranks.into_iter().map(|(path, r)| (path, r as u32)).collect(),
        total_rank,
    });
}

/// Asks the observer, and keeps a copy of the model if it is strictly the best so far.
fn evaluate<M, T, O>(
    state: &mut TrainState<M>,
    method: &T,
    observer: &mut O,
    parts: Option<ObjectiveParts>,
    rate_factor: f64,
) -> Result<(), O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    let begun = Instant::now();
    let Some(evaluation) = observer.evaluate(&state.model.clone().valid(), method)? else {
        return Ok(());
    };
    let ranks = method.ranks(&state.model);
    let total_rank = ranks.values().sum();
    let Evaluation { metric, score, metrics } = evaluation.clone();
    let step = state.done;
    state.journal.history.push(EvalPoint { step, parts, rate_factor, total_rank, evaluation });
    if let Some(score) = score
        && state.best.as_ref().is_none_or(|best| score > best.info.score)
    {
        let mut model = state.model.clone();
        method.compact(&mut model);
        let removed = state.journal.removed.clone();
        state.best = Some(BestModel { model, info: BestInfo { step, score, ranks, removed } });
    }
    state.journal.evaluate_seconds += begun.elapsed().as_secs_f64();
    // A loss is shown as it is, though the score that is compared has its sign turned.
    let value = metrics.get(&metric).copied().or(score).unwrap_or(f64::NEG_INFINITY);
    let nll = metrics.get("nll").copied();
    observer.event(&Event::Evaluated { done: step, metric, value, nll, total_rank });
    Ok(())
}
