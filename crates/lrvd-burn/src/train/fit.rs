//! The loop, and its step: forward, backward, clip, update, and the method's own changes around the update.

use std::time::Instant;

use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::{BatchSize, LrSchedule};
use tracing::{debug, trace};

use super::config::TrainConfig;
use super::data::{Batch, Model, Targets, negative_log_likelihood};
use super::method::{Method, RankChange, Setup, StepSizes, StepState, Terms, UpdatePhase};
use super::order::Ordered;
use super::pace::Pace;
use super::run::Run;
use super::state::{
    BestInfo, BestModel, EvalPoint, Evaluation, MeanParts, RankCause, RankEvent, TrainState,
};
use super::watch::{Event, Observer};
use crate::error::Error;
use crate::objective::{Objective, ObjectiveParts};
use crate::optimizer::NamedGradients;
use crate::sampling::{PART_SHIFT, Pass, Scheme};

/// How training ended.
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
}

impl<M, T, O> Loop<'_, '_, M, T, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    /// Trains until the last step, the end of the patience, a stop request or an error.
    pub(super) fn fit(&mut self) -> Result<Outcome, O::Error> {
        match self.complete() {
            Err(error) if O::is_stop(&error) => Ok(Outcome::Stopped),
            ended => ended,
        }
    }

    fn complete(&mut self) -> Result<Outcome, O::Error> {
        if let Some(position) = self.run.state.position {
            self.batches.seek(position)?;
        }
        if self.run.state.journal.rank_events.is_empty() {
            self.record_ranks(RankCause::Start, 0);
        }
        let trained = match self.run.search {
            Some(rule) => self.search(&rule)?,
            None => self.train(&self.first(self.run.config.steps, Phase::Whole))?,
        };
        if trained == Outcome::Finished {
            self.checkpoint()?;
            if !self.is_evaluated() {
                self.evaluate()?;
            }
        }
        Ok(trained)
    }

    /// The stage with the steps of the settings, in a run that ends after `end` steps.
    pub(super) fn first(&self, end: usize, phase: Phase) -> Stage {
        let TrainConfig { steps: until, patience, .. } = self.run.config;
        Stage { until, end, patience, schedule: self.run.schedule, start: 0, peak: 1.0, phase }
    }

    /// Takes the steps of `stage` that are left, with evaluations and checkpoints on the way.
    pub(super) fn train(&mut self, stage: &Stage) -> Result<Outcome, O::Error> {
        let &Stage { until, end, start, peak, phase, .. } = stage;
        let (every, n_train) = (self.run.config.evaluate_every, self.batches.n_train());
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
            let context = StepContext { config, setup: &self.setup, phase, n_train, scheduled };
            let (parts, (factor, changes)) =
                train_step(&context, state, &mut **method, micro_batches)?;
            for (change, done) in changes {
                self.note_change(change, done);
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
            self.observer.event(&Event::Step {
                done,
                loss,
                nll,
                kl,
                total_rank: self.run.state.total_rank(),
                examples_per_second: pace.examples_per_second(),
                seconds_left: pace.seconds_left(done, end, every),
            });
            let stops = self.observer.stops();
            if stops || is_due(done) {
                self.checkpoint()?;
            }
            if stops {
                return Ok(Outcome::Stopped);
            }
        }
        Ok(Outcome::Finished)
    }

    /// Has the state kept, before what may take long: an evaluation that a kill ends is repeated, the steps before it are not.
    pub(super) fn checkpoint(&mut self) -> Result<(), O::Error> {
        self.observer.checkpoint(&self.run.state, &self.run.method)
    }

    fn is_evaluated(&self) -> bool {
        let TrainState { done, journal, .. } = &self.run.state;
        journal.history.last().is_some_and(|point| point.step == *done)
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

    /// Evaluates the model, and keeps a copy of it if it is strictly the best so far: by its score, in a run with patience by
    /// its negative log-likelihood.
    fn evaluate(&mut self) -> Result<(), O::Error> {
        let clock = Instant::now();
        let Run { state, method, config, schedule, .. } = &mut *self.run;
        // Masked directions may have grown since the mask; they are no part of the model that is kept.
        let model = state.compacted();
        let Some(evaluation) = self.observer.evaluate(&model.valid(), method)? else {
            return Ok(());
        };
        let (step, ranks) = (state.done, state.ranks());
        let recent = state.journal.recent.take();
        let rate_factor = recent.map_or_else(|| schedule.factor(0), |recent| recent.rate_factor);
        let (parts, total_rank) = (recent.map(|recent| recent.parts), ranks.values().sum());
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
        self.observer.event(&Event::Evaluated { done: step, metric, value, nll, total_rank });
        Ok(())
    }
}

/// The negative log-likelihood, or where there is none the score with its sign turned.
fn loss(evaluation: &Evaluation) -> f64 {
    let Evaluation { metrics, score, .. } = evaluation;
    metrics.get("nll").copied().or(score.map(|score| -score)).unwrap_or(f64::INFINITY)
}

/// The step of the best evaluation, if `patience` later ones are no better. A function of the journal alone, so that a run
/// that is resumed ends where it would have ended.
fn patience_exhausted(patience: usize, history: &[EvalPoint]) -> Option<usize> {
    let losses: Vec<f64> = history.iter().map(|point| loss(&point.evaluation)).collect();
    let (best, _) = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    (losses.len() > best + patience).then(|| history[best].step)
}

/// The phase of a method that a stage of a run trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    /// The method as it is.
    Whole,
    /// The likelihood at the mean; ranks stay.
    Mean,
    /// The likelihood and the divergence under this weight, per training example; ranks stay.
    Posterior { kl_weight: f64 },
}

/// What a step needs to know of the run around it.
pub(crate) struct StepContext<'a> {
    pub config: &'a TrainConfig,
    pub setup: &'a Setup,
    pub phase: Phase,
    pub n_train: usize,
    /// Factor of the learning rates by the schedule of the settings.
    pub scheduled: f64,
}

impl StepContext<'_> {
    /// The pass of micro-batch `part` of `step`; every micro-batch draws its own noise.
    pub(crate) fn pass(&self, step: usize, part: usize) -> Pass {
        let key = NoiseKey::new(self.config.seed).at_step(step as u32);
        let key = NoiseKey { seed: key.seed ^ ((part as u64) << PART_SHIFT), ..key };
        let scheme = if self.phase == Phase::Mean { Scheme::Mean } else { self.setup.scheme };
        let pass = Pass::sampled(scheme, key);
        let drops = self.config.model_dropout || self.setup.adapter.dropout > 0.0;
        if drops { pass.with_dropout(key) } else { pass }
    }
}

/// Takes a step. Returns the objective, and what [`update`] does.
fn train_step<M: Model, T: Method<M> + ?Sized>(
    context: &StepContext<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    batches: Vec<Batch<M::Input>>,
) -> Result<(ObjectiveParts, Updated), Error> {
    let (step, n_train) = (state.done, context.n_train);
    let examples = batches.iter().map(|batch| batch.targets.answers()).sum::<usize>();
    let empty =
        || Error::argument("batch", format_args!("an example at least at step {step}"), "none");
    let first = batches.first().filter(|_| examples > 0).ok_or_else(empty)?;
    let mut sizes = StepSizes {
        step,
        steps: context.config.steps,
        examples,
        tokens: 0,
        batch: BatchSize { examples: first.targets.answers(), tokens: first.tokens, n_train },
        n_train,
    };
    let (mut gradients, mut unread) = (NamedGradients::default(), Vec::new());
    for (part, batch) in batches.into_iter().enumerate() {
        let pass = context.pass(step, part);
        let (nll, ..) = likelihood(&state.model, &batch, &pass, examples);
        sizes.tokens += batch.tokens;
        // The KL belongs to the step, not to a micro-batch; what divides it is that of a batch as
        // the loader gives it, for the published scripts accumulate such batches.
        let divisor = n_train as f64;
        let terms = match context.phase {
            _ if part > 0 => Terms::none(),
            Phase::Whole => method.terms(&state.model, &pass, sizes)?,
            Phase::Mean => Terms { divisor, ..Terms::none() },
            Phase::Posterior { kl_weight } => {
                Terms { kl_weight, divisor, ..method.terms(&state.model, &pass, sizes)? }
            }
        };
        let Terms { kl, kl_weight, divisor, penalty } = terms;
        let objective = Objective { nll, kl, penalty, kl_weight, divisor };
        let loss = objective.loss();
        unread.push(objective.unread(&loss));
        // Without a head nothing is left to learn once every rank is pruned, and no graph to go back.
        if loss.is_tracked() {
            let backward = loss.backward();
            gradients.accumulate(NamedGradients::collect(&state.model, &backward));
        }
    }
    // Read when every pass is under way: a device does not wait for the host between forward and backward.
    let parts = unread.into_iter().map(|read| read()).reduce(|total, parts| ObjectiveParts {
        loss: total.loss + parts.loss,
        nll: total.nll + parts.nll,
        ..total
    });
    let parts = parts.ok_or_else(empty)?;
    finite("loss", parts.loss, step)?;
    Ok((parts, update(context, state, method, gradients, sizes)?))
}

/// The negative log-likelihood of `batch` over the `answers` of its step, with logits and targets.
pub(crate) fn likelihood<M: Model>(
    model: &M,
    batch: &Batch<M::Input>,
    pass: &Pass,
    answers: usize,
) -> (Tensor<1>, Tensor<2>, Targets) {
    let logits = model.logits(&batch.input, pass);
    // One block of rows for each member that the adapters hold.
    let members = logits.dims()[0] / batch.targets.answers().max(1);
    let targets = batch.targets.repeat(members);
    let nll = negative_log_likelihood(logits.clone(), &targets);
    (nll.mul_scalar(1.0 / (answers * members) as f64), logits, targets)
}

/// The factor of the learning rates, before a skipped update sets it to 0, and the changes of ranks with the number of completed
/// steps at which they happened.
type Updated = (f64, Vec<(RankChange, usize)>);

/// The update with the method's changes around it.
pub(crate) fn update<M: Model, T: Method<M> + ?Sized>(
    context: &StepContext<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    mut gradients: NamedGradients,
    sizes: StepSizes,
) -> Result<Updated, Error> {
    let (step, pass, mut changes) = (sizes.step, context.pass(sizes.step, 0), Vec::new());
    let (tail, scheduled) = (context.setup.tail, context.scheduled);
    let factor = tail.map_or(scheduled, |tail| tail.factor(step, scheduled));
    let skip = std::mem::take(&mut state.skip_next_update);
    let mut rate_factor = if skip { 0.0 } else { factor };
    for when in [UpdatePhase::BeforeUpdate, UpdatePhase::AfterUpdate] {
        if when == UpdatePhase::AfterUpdate {
            if let Some(clip) = context.config.gradient_clip {
                let norm = finite("gradient norm", gradients.global_norm(), step)?;
                gradients.clip(norm, clip);
            }
            // A method that rebuilt the optimiser just now starts the schedule anew with this update.
            if std::mem::take(&mut state.skip_next_update) {
                rate_factor = 0.0;
            }
            state.optimizer.step(&mut state.model, &gradients, rate_factor);
        }
        if context.phase != Phase::Whole {
            continue;
        }
        let change = method.update(
            when,
            StepState {
                sizes,
                pass: &pass,
                rate_factor,
                model: &mut state.model,
                in_use: &mut state.in_use,
                optimizer: &mut state.optimizer,
                gradients: &mut gradients,
            },
        )?;
        if let Some(change) = change {
            state.skip_next_update = change.skip_next_update;
            changes.push((change, step + usize::from(when == UpdatePhase::AfterUpdate)));
        }
    }
    Ok((factor, changes))
}

fn finite(name: &'static str, value: f64, step: usize) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(Error::Diverged { name, step, value }) }
}
