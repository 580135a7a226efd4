//! Loop of a stage: steps, evaluations, checkpoints and events.

use std::time::Instant;

use lrvd_core::schedule::LrSchedule;
use tracing::{debug, trace};

use super::config::TrainConfig;
use super::data::Model;
use super::method::{Method, Setup};
use super::order::Ordered;
use super::pace::Pace;
use super::run::Run;
use super::state::{
    BestInfo, BestModel, EvalPoint, Evaluation, MeanParts, RankCause, RankEvent, TrainState,
};
use super::step::{Phase, StepRules, train_step};
use super::watch::{Event, Observer};
use crate::objective::ObjectiveParts;

/// End of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done, or the run's patience is.
    Finished,
    /// A stop request ended it. The observer was given the state to resume from, unless no step was taken.
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
    /// The phase of the method that is trained.
    pub(super) phase: Phase,
}

/// A run that is being trained.
pub(super) struct Loop<'a, 'b, M: Model, T: ?Sized, O> {
    pub(super) run: &'a mut Run<M, T>,
    pub(super) setup: Setup,
    pub(super) batches: &'a mut Ordered<'b, M::Input>,
    pub(super) observer: &'a mut O,
    /// The observer asked to stop.
    pub(super) stops: bool,
}

impl<M, T, O> Loop<'_, '_, M, T, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    /// The stage with the steps of the settings, in a run that ends after `end` steps.
    pub(super) fn first(&self, end: usize, phase: Phase) -> Stage {
        let TrainConfig { steps: until, patience, .. } = self.run.config;
        Stage { until, end, patience, schedule: self.run.schedule, start: 0, peak: 1.0, phase }
    }

    /// Takes the steps of `stage` that are left, with evaluations and checkpoints on the way.
    pub(super) fn train(&mut self, stage: &Stage) -> Result<Outcome, O::Error> {
        let &Stage { until, end, start, peak, phase, .. } = stage;
        let every = self.run.config.evaluate_every;
        let n_train = self.batches.n_train();
        let journal = &self.run.state.journal;
        let mut pace = Pace::new(journal.history.len(), journal.evaluate_seconds);
        // The end of the run is evaluated when its model is settled.
        let is_due = |done: usize| done < end && done.is_multiple_of(every);
        loop {
            // After the checkpoint of this step, which an earlier process may have written.
            if is_due(self.run.state.done) && !self.is_evaluated() {
                let clock = Instant::now();
                self.evaluate()?;
                pace.evaluations += 1;
                pace.evaluation_seconds += clock.elapsed().as_secs_f64();
            }
            if self.run.state.done >= until {
                break;
            }
            let history = &self.run.state.journal.history;
            if let Some(n) = stage.patience
                && let Some(best) = patience_exhausted(n, history)
            {
                let done = self.run.state.done;
                self.note(format!(
                    "stopped at step {done} of {until}: {} no better than that of step {best}",
                    if n == 1 {
                        "1 evaluation is".to_owned()
                    } else {
                        format!("{n} evaluations are")
                    }
                ));
                break;
            }
            let clock = Instant::now();
            let step = self.run.state.done;
            let micro_batches = self.batches.next_step()?;
            let rows: Vec<_> = micro_batches.iter().map(|batch| batch.targets.rows()).collect();
            if pace.is_new() {
                let tokens: Vec<_> = micro_batches.iter().map(|batch| batch.tokens).collect();
                debug!(step, ?rows, ?tokens, "first batches");
            }
            let scheduled = peak * stage.schedule.factor(step.saturating_sub(start) as u32);
            let Run { state, method, config, .. } = &mut *self.run;
            let rules = StepRules { config, setup: &self.setup, phase, n_train, scheduled };
            let (parts, (factor, changes)) =
                train_step(&rules, state, &mut **method, micro_batches)?;
            for (cause, done) in changes {
                self.note_change(cause, done);
            }
            let state = &mut self.run.state;
            state.done += 1;
            state.position = Some(self.batches.position());
            let seconds = clock.elapsed().as_secs_f64();
            state.journal.train_seconds += seconds;
            pace.add(rows.iter().sum(), seconds);
            let done = state.done;
            state.journal.recent = Some(MeanParts::and(state.journal.recent, parts, factor));
            let ObjectiveParts { loss, nll, .. } = parts;
            let kl = parts.weighted_kl();
            trace!(done, loss, nll, ?kl, factor, "step");
            self.tell(&Event::Step {
                done,
                loss,
                nll,
                kl,
                total_rank: self.run.state.total_rank(),
                examples_per_second: pace.examples_per_second(),
                seconds_left: pace.seconds_left(done, end, every),
            });
            if self.stops || is_due(done) {
                self.checkpoint()?;
            }
            if self.stops {
                return Ok(Outcome::Stopped);
            }
        }
        Ok(Outcome::Finished)
    }

    /// Has the state kept, before what may take long: an evaluation that a kill ends is repeated, the steps before it are not.
    pub(super) fn checkpoint(&mut self) -> Result<(), O::Error> {
        self.observer.checkpoint(&self.run.state, &self.run.method)
    }

    pub(super) fn is_evaluated(&self) -> bool {
        let TrainState { done, journal, .. } = &self.run.state;
        journal.history.last().is_some_and(|point| point.step == *done)
    }

    pub(super) fn tell(&mut self, event: &Event) {
        self.stops |= self.observer.event(event).is_break();
    }

    pub(super) fn note(&mut self, text: String) {
        self.tell(&Event::Note(text));
    }

    fn note_change(&mut self, cause: RankCause, done: usize) {
        let journal = &self.run.state.journal;
        let before = journal.rank_events.last().map_or(0, |event| event.total_rank as usize);
        let after = self.record_ranks(cause, done);
        debug!(done, before, after, ?cause, "ranks changed");
        if after != before {
            self.tell(&Event::Pruned { done, before, after });
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

    /// Evaluates the model, and keeps a copy of it if it is strictly the best so far: by its score, in a run with patience by
    /// its negative log-likelihood.
    pub(super) fn evaluate(&mut self) -> Result<(), O::Error> {
        let clock = Instant::now();
        let Run { state, method, config, schedule, .. } = &mut *self.run;
        // Masked directions may have grown since the mask; they are no part of the model that is kept.
        let model = state.compacted();
        let Some(evaluation) = self.observer.evaluate(&model.valid(), method)? else {
            return Ok(());
        };
        let step = state.done;
        let ranks = state.ranks();
        let recent = state.journal.recent.take();
        let rate_factor = recent.map_or_else(|| schedule.factor(0), |recent| recent.rate_factor);
        let parts = recent.map(|recent| recent.parts);
        let total_rank = ranks.values().sum();
        let Evaluation { metric, score, metrics } = evaluation.clone();
        // A run that ends by its patience keeps the model that it waited from.
        let chosen_by = match config.patience {
            Some(_) => Some(-loss(&evaluation)).filter(|score| score.is_finite()),
            None => score,
        };
        state.journal.history.push(EvalPoint { step, parts, rate_factor, total_rank, evaluation });
        state.journal.candidates += usize::from(chosen_by.is_some());
        if let Some(score) = chosen_by
            && state.best.as_ref().is_none_or(|best| score > best.info.score)
        {
            let removed = state.journal.removed.clone();
            state.best = Some(BestModel { model, info: BestInfo { step, score, ranks, removed } });
        }
        state.journal.evaluate_seconds += clock.elapsed().as_secs_f64();
        // A loss is shown as it is, though the score that is compared has its sign turned.
        let value = metrics.get(&metric).copied().or(score).unwrap_or(f64::NEG_INFINITY);
        let nll = metrics.get("nll").copied();
        self.tell(&Event::Evaluated { done: step, metric, value, nll, total_rank });
        Ok(())
    }
}

/// Negative log-likelihood, or where there is none the score with its sign turned.
fn loss(evaluation: &Evaluation) -> f64 {
    let Evaluation { metrics, score, .. } = evaluation;
    metrics.get("nll").copied().or(score.map(|score| -score)).unwrap_or(f64::INFINITY)
}

/// Step of the best evaluation, if `patience` later ones are no better. A function of the journal alone, so that a run
/// that is resumed ends where it would have ended.
fn patience_exhausted(patience: usize, history: &[EvalPoint]) -> Option<usize> {
    let losses: Vec<f64> = history.iter().map(|point| loss(&point.evaluation)).collect();
    let (best, _) = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    (losses.len() > best + patience).then(|| history[best].step)
}
