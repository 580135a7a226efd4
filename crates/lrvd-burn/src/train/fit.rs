//! The loop around a step.

use std::time::Instant;

use lrvd_core::schedule::LrSchedule;
use tracing::{debug, trace};

use super::config::TrainConfig;
use super::data::{Batch, Examples, Model};
use super::method::{Method, RankChange, Setup};
use super::order::Ordered;
use super::run::Run;
use super::state::{BestInfo, BestModel, EvalPoint, Evaluation, RankCause, RankEvent};
use super::step::{Part, StepContext, train_step};
use super::watch::{Event, Observer};
use crate::objective::ObjectiveParts;

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
pub(super) struct Loop<'a, M, T: ?Sized, E, O> {
    pub(super) run: &'a mut Run<M, T>,
    pub(super) setup: Setup,
    pub(super) batches: &'a mut Ordered<E>,
    pub(super) observer: &'a mut O,
    /// The objective of the last step, and the factor of its learning rates.
    pub(super) last: Option<(ObjectiveParts, f64)>,
}

impl<M, T, E, O> Loop<'_, M, T, E, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    E: Examples<Input = M::Input>,
    O: Observer<M, T>,
{
    /// Trains until the last step, the end of the patience, a stop request or an error.
    pub(super) fn fit(&mut self) -> Result<Outcome, O::Error> {
        if let Some(position) = self.run.state.position {
            self.batches.seek(position)?;
        }
        if self.run.state.done == 0 && self.run.state.journal.rank_events.is_empty() {
            self.record_ranks(RankCause::Start, 0);
            self.evaluate(self.run.schedule.factor(0))?;
        }
        let trained = match self.run.search {
            Some(rule) => self.search(&rule)?,
            None => self.train(&self.first(self.run.config.steps, Part::Whole))?,
        };
        if trained == Outcome::Finished {
            let evaluated = self.run.state.journal.history.last().map(|point| point.step);
            if evaluated != Some(self.run.state.done) {
                self.evaluate(0.0)?;
            }
            self.observer.checkpoint(&self.run.state, &self.run.method)?;
        }
        Ok(trained)
    }

    /// The stage with the steps of the settings, in a run that ends after `end` steps.
    pub(super) fn first(&self, end: usize, part: Part) -> Stage {
        let TrainConfig { steps: until, patience, .. } = self.run.config;
        Stage { until, end, patience, schedule: self.run.schedule, start: 0, peak: 1.0, part }
    }

    /// Takes the steps of `stage` that are left, with evaluations and checkpoints on the way.
    pub(super) fn train(&mut self, stage: &Stage) -> Result<Outcome, O::Error> {
        let &Stage { until, end, start, peak, part, .. } = stage;
        let (every, n_train) = (self.run.config.evaluate_every, self.batches.n_train());
        let journal = &self.run.state.journal;
        let (evaluations, evaluation_seconds) = (journal.history.len(), journal.evaluate_seconds);
        let mut pace = Pace { evaluations, evaluation_seconds, ..Pace::default() };
        while self.run.state.done < until {
            let history = &self.run.state.journal.history;
            if let Some(n) = stage.patience
                && let Some(best) = waited(n, history)
            {
                let done = self.run.state.done;
                self.note(format!(
                    "stopped at step {done} of {until}: {n} evaluations are no better than that of step {best}"
                ));
                break;
            }
            let clock = Instant::now();
            let step = self.run.state.done;
            let micro_batches = self.batches.next_step()?;
            let rows: Vec<_> = micro_batches.iter().map(|batch| batch.targets.rows()).collect();
            if pace.steps == 0 {
                let tokens: Vec<_> =
                    micro_batches.iter().map(|batch: &Batch<_>| batch.tokens).collect();
                debug!(step, ?rows, ?tokens, "first batches");
            }
            let scheduled = peak * stage.schedule.factor(step.saturating_sub(start) as u32);
            let Run { state, method, config, .. } = &mut *self.run;
            let context = StepContext { config, setup: &self.setup, part, n_train, scheduled };
            let taken = train_step(&context, state, &mut **method, micro_batches)?;
            for (change, done) in taken.changes {
                self.note_change(change, done);
            }
            let state = &mut self.run.state;
            state.done += 1;
            state.position = Some(self.batches.position());
            let seconds = clock.elapsed().as_secs_f64();
            state.journal.train_seconds += seconds;
            pace.steps += 1;
            pace.examples += rows.iter().sum::<usize>();
            pace.step_seconds += seconds;
            let (done, parts, factor) = (state.done, taken.parts, taken.rate_factor);
            self.last = Some((parts, factor));
            let ObjectiveParts { loss, nll, kl, .. } = parts;
            trace!(done, loss, nll, kl, factor, "step");
            self.observer.event(&Event::Step {
                done,
                loss,
                nll,
                kl,
                total_rank: self.run.state.total_rank(),
                examples_per_second: pace.examples as f64 / pace.step_seconds,
                seconds_left: pace.seconds_left(done, end, every),
            });
            // The end of the run is evaluated when its model is settled.
            let due = done < end && done.is_multiple_of(every);
            let clock = Instant::now();
            if due {
                self.evaluate(factor)?;
            }
            let stops = self.observer.stops() && done < end;
            if due || stops {
                self.observer.checkpoint(&self.run.state, &self.run.method)?;
                pace.evaluations += 1;
                pace.evaluation_seconds += clock.elapsed().as_secs_f64();
            }
            if stops {
                return Ok(Outcome::Stopped);
            }
        }
        Ok(Outcome::Finished)
    }

    pub(super) fn note(&mut self, text: String) {
        self.observer.event(&Event::Note(text));
    }

    fn note_change(&mut self, change: RankChange, done: usize) {
        let journal = &mut self.run.state.journal;
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
        if self.run.state.total_rank() == 0 {
            let note = "no adapter has a rank left, only the head is trained on: a smaller KL weight, more \
                        examples or a later prune keep some";
            self.note(note.to_owned());
        }
    }

    /// Adds the ranks in use to the journal, and returns their sum.
    pub(super) fn record_ranks(&mut self, cause: RankCause, done: usize) -> usize {
        let ranks = self.run.state.ranks();
        let total_rank = ranks.values().sum::<usize>();
        self.run.state.journal.rank_events.push(RankEvent {
            step: done as u64,
            cause,
            ranks: ranks.into_iter().map(|(path, r)| (path, r as u32)).collect(),
            total_rank: total_rank as u64,
        });
        total_rank
    }

    /// Evaluates the model, and keeps a copy of it if it is strictly the best so far. `factor` is that of the learning rates
    /// where no step was taken.
    fn evaluate(&mut self, factor: f64) -> Result<(), O::Error> {
        let clock = Instant::now();
        let Run { state, method, .. } = &mut *self.run;
        let Some(evaluation) = self.observer.evaluate(&state.model.clone().valid(), method)? else {
            return Ok(());
        };
        let (step, ranks, (parts, last)) = (state.done, state.ranks(), self.last.unzip());
        let (rate_factor, total_rank) = (last.unwrap_or(factor), ranks.values().sum());
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

/// How long steps and evaluations take, to estimate the time that is left.
#[derive(Default)]
struct Pace {
    /// Steps of the stage, their examples and seconds.
    steps: usize,
    examples: usize,
    step_seconds: f64,
    /// Evaluations of the run with their checkpoints.
    evaluations: usize,
    evaluation_seconds: f64,
}

impl Pace {
    /// Seconds from the end of step `done` to that of the last of `steps`, with an evaluation after every `every` steps and
    /// after the last one.
    fn seconds_left(&self, done: usize, steps: usize, every: usize) -> f64 {
        let mean = |seconds: f64, n: usize| if n == 0 { 0.0 } else { seconds / n as f64 };
        let due = |before: usize| before.saturating_sub(1) / every;
        let evaluations = due(steps).saturating_sub(due(done)) + 1;
        steps.saturating_sub(done) as f64 * mean(self.step_seconds, self.steps)
            + evaluations as f64 * mean(self.evaluation_seconds, self.evaluations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_counts_steps_and_evaluations() {
        let mut pace = Pace { steps: 2, step_seconds: 5.0, ..Pace::default() };
        assert_eq!(pace.seconds_left(2, 40, 10), 38.0 * 2.5);
        (pace.evaluations, pace.evaluation_seconds) = (2, 12.0);
        // After steps 10, 20, 30 and 40; the one after step 10 is still due when step 10 is done.
        for (done, expected) in [(2, 119.0), (10, 99.0), (11, 90.5), (40, 6.0)] {
            assert_eq!(pace.seconds_left(done, 40, 10), expected, "{done}");
        }
    }
}
