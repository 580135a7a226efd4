//! The loop around a step.

use std::time::Instant;

use lrvd_core::schedule::LrSchedule;
use tracing::{debug, trace};

use super::config::TrainConfig;
use super::data::{Batch, Model};
use super::method::{Method, RankChange, Setup};
use super::order::Batches;
use super::progress::{Event, Pace};
use super::state::{BestInfo, BestModel, EvalPoint, Evaluation, RankCause, RankEvent, TrainState};
use super::step::{Part, StepContext, train_step};
use crate::error::Error;
use crate::objective::ObjectiveParts;

/// Callbacks of a run: events, evaluations, checkpoints, and whether it should stop.
pub trait Observer<M: Model, T: Method<M> + ?Sized> {
    /// Error of the callbacks.
    type Error: From<Error>;

    /// Receives an event.
    fn event(&mut self, _event: &Event) {}

    /// Evaluates the model, which has no gradients; `None` measures nothing.
    fn evaluate(&mut self, _model: &M, _method: &T) -> Result<Option<Evaluation>, Self::Error> {
        Ok(None)
    }

    /// The loss of `model` on every row that was held out of training, for a [search](super::RankSearch) of ranks;
    /// `None` if there are none. Of classes best by [`calibrated_losses`](super::calibrated_losses).
    fn held_out(&mut self, _model: &M, _method: &T) -> Result<Option<Vec<f64>>, Self::Error> {
        Ok(None)
    }

    /// Saves a checkpoint; called after every evaluation, before a stop and at the end.
    fn checkpoint(&mut self, _state: &TrainState<M>, _method: &T) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Whether the run should end after this step.
    fn stops(&self) -> bool {
        false
    }
}

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done, or the run's patience is.
    Finished,
    /// The observer requested a stop, and a checkpoint was due.
    Stopped,
}

/// Steps under one schedule.
pub(super) struct Stage {
    /// Completed steps after it.
    pub(super) until: usize,
    /// Completed steps after it and what follows it.
    pub(super) end: usize,
    /// Evaluations without a better one that end it.
    pub(super) patience: Option<usize>,
    /// Factors of the learning rates, `peak · schedule(step − start)`.
    pub(super) schedule: LrSchedule,
    pub(super) start: usize,
    pub(super) peak: f64,
    /// The part of the method that is trained.
    pub(super) part: Part,
}

/// A run that is being trained.
pub(super) struct Loop<'a, M, T: ?Sized, B, O> {
    pub(super) config: &'a TrainConfig,
    pub(super) schedule: LrSchedule,
    pub(super) setup: Setup,
    pub(super) state: &'a mut TrainState<M>,
    pub(super) method: &'a mut T,
    pub(super) batches: &'a mut B,
    pub(super) observer: &'a mut O,
    /// The objective of the last step, and the factor of its learning rates.
    pub(super) last: Option<(ObjectiveParts, f64)>,
}

impl<M, T, B, O> Loop<'_, M, T, B, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    B: Batches<Input = M::Input>,
    O: Observer<M, T>,
{
    /// Trains until the last step, the end of the patience, a stop request or an error.
    pub(super) fn fit(&mut self) -> Result<Outcome, O::Error> {
        self.start()?;
        match self.train(&self.first(self.config.steps, Part::Whole))? {
            Outcome::Stopped => Ok(Outcome::Stopped),
            Outcome::Finished => self.finish(),
        }
    }

    /// The stage with the steps of the settings, in a run that ends after `end` steps.
    pub(super) fn first(&self, end: usize, part: Part) -> Stage {
        let (&TrainConfig { steps: until, patience, .. }, schedule) = (self.config, self.schedule);
        Stage { until, end, patience, schedule, start: 0, peak: 1.0, part }
    }

    /// Moves the batches to the position of the run; a fresh run is recorded and evaluated.
    pub(super) fn start(&mut self) -> Result<(), O::Error> {
        if !self.state.position.is_null() {
            let position = serde_json::from_value(self.state.position.clone());
            self.batches.seek(position.map_err(|error| Error::position(&error))?)?;
        }
        if self.state.done == 0 && self.state.journal.rank_events.is_empty() {
            self.record_ranks(RankCause::Start, 0);
            self.evaluate(None, self.schedule.factor(0))?;
        }
        Ok(())
    }

    /// Takes the steps of `stage` that are left, with evaluations and checkpoints on the way.
    pub(super) fn train(&mut self, stage: &Stage) -> Result<Outcome, O::Error> {
        let &Stage { until, end, start, peak, part, .. } = stage;
        let (config, every) = (self.config, self.config.evaluate_every);
        let journal = &self.state.journal;
        let mut pace = Pace::after(journal.history.len(), journal.evaluate_seconds);
        let first = self.state.done;
        while self.state.done < until {
            let waited =
                stage.patience.and_then(|n| Some((n, waited(n, &self.state.journal.history)?)));
            if let Some((n, best)) = waited {
                let done = self.state.done;
                self.note(format!(
                    "stopped at step {done} of {until}: {n} evaluations are no better than that of step {best}"
                ));
                break;
            }
            let clock = Instant::now();
            let step = self.state.done;
            let micro_batches = self.batches.next_step()?;
            let examples = micro_batches.iter().map(Batch::rows).sum::<usize>();
            if step == first {
                let sizes = |of: fn(&Batch<B::Input>) -> usize| {
                    micro_batches.iter().map(of).collect::<Vec<_>>()
                };
                debug!(step, rows = ?sizes(Batch::rows), tokens = ?sizes(|batch| batch.tokens), "first batches");
            }
            let scheduled = peak * stage.schedule.factor(step.saturating_sub(start) as u32);
            let (setup, n_train) = (&self.setup, self.batches.n_train());
            let context = StepContext { config, setup, part, n_train, scheduled };
            let taken = train_step(&context, self.state, self.method, micro_batches)?;
            for (change, done) in taken.changes {
                self.note_change(change, done);
            }
            self.state.done += 1;
            self.state.position = serde_json::to_value(self.batches.position())
                .map_err(|error| Error::position(&error))?;
            let seconds = clock.elapsed().as_secs_f64();
            self.state.journal.train_seconds += seconds;
            pace.step(examples, seconds);
            let (done, parts, factor) = (self.state.done, taken.parts, taken.rate_factor);
            self.last = Some((parts, factor));
            let ObjectiveParts { loss, nll, kl, .. } = parts;
            trace!(done, loss, nll, kl, factor, "step");
            self.observer.event(&Event::Step {
                done,
                loss,
                nll,
                kl,
                total_rank: self.state.total_rank(),
                examples_per_second: pace.examples_per_second(),
                seconds_left: pace.seconds_left(done, end, every),
            });
            // The end of the run is evaluated when its model is settled.
            let due = done < end && done.is_multiple_of(every);
            let clock = Instant::now();
            if due {
                self.evaluate(Some(parts), factor)?;
            }
            let stops = self.observer.stops() && done < end;
            if due || stops {
                self.observer.checkpoint(self.state, self.method)?;
                pace.evaluation(clock.elapsed().as_secs_f64());
            }
            if stops {
                return Ok(Outcome::Stopped);
            }
        }
        Ok(Outcome::Finished)
    }

    /// Evaluates the last model, and saves the last checkpoint.
    pub(super) fn finish(&mut self) -> Result<Outcome, O::Error> {
        let evaluated = self.state.journal.history.last().map(|point| point.step);
        if evaluated != Some(self.state.done) {
            let (parts, factor) = self.last.unzip();
            self.evaluate(parts, factor.unwrap_or_default())?;
        }
        self.observer.checkpoint(self.state, self.method)?;
        Ok(Outcome::Finished)
    }

    pub(super) fn note(&mut self, text: String) {
        self.observer.event(&Event::Note(text));
    }

    fn note_change(&mut self, change: RankChange, done: usize) {
        let journal = &mut self.state.journal;
        for (path, values) in change.removed {
            journal.removed.entry(path).or_default().extend(values);
        }
        let before = journal.rank_events.last().map_or(0, |event| event.total_rank as usize);
        let after = self.record_ranks(change.cause, done);
        debug!(done, before, after, cause = ?change.cause, "ranks changed");
        if after != before {
            self.observer.event(&Event::Pruned { done, before, after });
            self.warn_if_empty();
        }
    }

    /// Notes if no rank is left, so that only the head is trained from here on.
    pub(super) fn warn_if_empty(&mut self) {
        if self.state.total_rank() == 0 {
            let note = "no adapter has a rank left, only the head is trained on: a smaller KL weight, more \
                        examples or a later prune keep some";
            self.note(note.to_owned());
        }
    }

    /// Adds the ranks in use to the journal, and returns their sum.
    pub(super) fn record_ranks(&mut self, cause: RankCause, done: usize) -> usize {
        let ranks = self.state.ranks();
        let total_rank = ranks.values().sum::<usize>();
        self.state.journal.rank_events.push(RankEvent {
            step: done as u64,
            cause,
            ranks: ranks.into_iter().map(|(path, r)| (path, r as u32)).collect(),
            total_rank: total_rank as u64,
        });
        total_rank
    }

    /// Evaluates the model, and keeps a copy of it if it is strictly the best so far.
    fn evaluate(
        &mut self,
        parts: Option<ObjectiveParts>,
        rate_factor: f64,
    ) -> Result<(), O::Error> {
        let clock = Instant::now();
        let state = &mut *self.state;
        let Some(evaluation) = self.observer.evaluate(&state.model.clone().valid(), self.method)?
        else {
            return Ok(());
        };
        let (step, ranks) = (state.done, state.ranks());
        let total_rank = ranks.values().sum();
        let Evaluation { metric, score, metrics } = evaluation.clone();
        state.journal.history.push(EvalPoint { step, parts, rate_factor, total_rank, evaluation });
        if let Some(score) = score
            && state.best.as_ref().is_none_or(|best| score > best.info.score)
        {
            let model = state.compacted();
            let removed = state.journal.removed.clone();
            state.best = Some(BestModel { model, info: BestInfo { step, score, ranks, removed } });
        }
        state.journal.evaluate_seconds += clock.elapsed().as_secs_f64();
        // A loss is shown as it is, though the score that is compared has its sign turned.
        let value = metrics.get(&metric).copied().or(score).unwrap_or(f64::NEG_INFINITY);
        let nll = metrics.get("nll").copied();
        self.observer.event(&Event::Evaluated { done: step, metric, value, nll, total_rank });
        Ok(())
    }
}

/// The step of the best evaluation, if `patience` later ones are no better. A function of the journal alone, so that a run
/// that is resumed ends where it would have ended.
fn waited(patience: usize, history: &[EvalPoint]) -> Option<usize> {
    let loss = |point: &EvalPoint| {
        let Evaluation { metrics, score, .. } = &point.evaluation;
        metrics.get("nll").copied().or(score.map(|score| -score)).unwrap_or(f64::INFINITY)
    };
    let losses: Vec<f64> = history.iter().map(loss).collect();
    let (best, _) = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    (losses.len() > best + patience).then(|| history[best].step)
}
