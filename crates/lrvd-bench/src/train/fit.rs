//! The loop around a step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module;
use lrvd_burn::model::{TrainableCounts, trainable_counts};
use lrvd_burn::objective::{Objective, ObjectiveParts};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::{BatchSize, LrSchedule};

use super::TrainError;
use super::loss::negative_log_likelihood;
use super::state::{BestInfo, BestModel, TrainState};
use crate::backbone::SequenceModel;
use crate::data::batch::{DeviceBatch, EpochOrder, OrderConfig, PaddedBatch};
use crate::eval::{Inputs, RunContext, score_draws};
use crate::method::{Method, RankChange, Regulariser, StepSizes, StepState};
use crate::progress::{Event, ProgressSink};
use crate::record::{EvalPoint, RankCause, RankEvent};

/// Micro-batch numbers are mixed into the upper bits of the seed, which seeds do not use.
const PART_SHIFT: u32 = 40;

/// Called after every step with whether a checkpoint is required now.
pub type SaveCheckpoint<'a> = dyn FnMut(&TrainState, &Method, bool) -> Result<(), TrainError> + 'a;

/// How a call to [`fit`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitOutcome {
    /// All steps are done.
    Finished,
    /// The stop flag was seen after a completed step.
    Stopped,
}

/// The order of the training examples, at its start.
///
/// # Errors
///
/// [`TrainError::Batch`] if no batch can be formed.
pub(crate) fn order(context: &RunContext<'_>) -> Result<EpochOrder, TrainError> {
    let RunContext { config, task, seed, .. } = context;
    let order = OrderConfig {
        batch_size: config.batch_size,
        bucketing: config.bucketing,
        last_batch: config.last_batch,
    };
    Ok(EpochOrder::new(NoiseKey::new(*seed), &task.train_lengths(), order)?)
}

/// Trains until the last step, a request in `stop` (seen after a completed step) or an error.
///
/// `checkpoint` is called after every step, and told when it must save: when stopped and at the end.
///
/// # Errors
///
/// [`TrainError::NonFinite`] if the loss or the gradient norm is not finite, and whatever the
/// method or `checkpoint` return.
pub fn fit(
    context: &RunContext<'_>,
    state: &mut TrainState,
    method: &mut Method,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
    checkpoint: &mut SaveCheckpoint<'_>,
) -> Result<FitOutcome, TrainError> {
    let config = context.config;
    let schedule = LrSchedule::linear(config.warmup_steps() as u32, config.steps as u32)?;
    let mut order = order(context)?;
    order.resume(state.order)?;
    let (start, clock) = (state.done, Instant::now());
    if state.done == 0 && state.journal.history.is_empty() {
        record_ranks(state, method, RankCause::Start, 0);
        evaluate(context, state, method, sink, None, schedule.factor(0))?;
    }
    while state.done < config.steps {
        let begun = Instant::now();
        let step = state.done;
        let batch = order.next_batch();
        let factor = method.rate_factor(step, schedule.factor(step as u32));
        let parts = train_step(context, state, method, sink, &batch, factor)?;
        state.done += 1;
        state.order = order.state();
        state.journal.train_seconds += begun.elapsed().as_secs_f64();

        let done = state.done;
        let total_rank = method.ranks(&state.model).values().sum();
        let per_step = clock.elapsed().as_secs_f64() / (done - start) as f64;
        sink.event(&Event::Step {
            done,
            loss: parts.loss,
            nll: parts.nll,
            kl: parts.kl,
            total_rank,
            examples_per_second: config.batch_size as f64 / per_step,
            seconds_left: per_step * (config.steps - done) as f64,
        });
        if done.is_multiple_of(config.evaluate_every) || done == config.steps {
            evaluate(context, state, method, sink, Some(parts), factor)?;
        }
        let stopping = stop.load(Ordering::Relaxed);
        checkpoint(state, method, stopping || done == config.steps)?;
        if stopping && done < config.steps {
            return Ok(FitOutcome::Stopped);
        }
    }
    Ok(FitOutcome::Finished)
}

/// Forward, backward, clip, update, and the method's own changes around the update.
fn train_step(
    context: &RunContext<'_>,
    state: &mut TrainState,
    method: &mut Method,
    sink: &mut dyn ProgressSink,
    indices: &[usize],
    factor: f64,
) -> Result<ObjectiveParts, TrainError> {
    let (config, step) = (context.config, state.done);
    let key = NoiseKey::new(context.seed).at_step(step as u32);
    let mut pass = Pass::sampled(method.training_scheme(), key);
    if config.backbone_dropout || method.adapter().dropout > 0.0 {
        pass = pass.with_dropout(key);
    }
    let micro = indices.len().div_ceil(config.accumulation);
    let members = method.members();
    let (mut gradients, mut total) = (NamedGradients::default(), None::<ObjectiveParts>);
    // Without a head, nothing is left to learn once every rank is pruned, and no graph to go back.
    let learns = trainable_counts(&state.model) != TrainableCounts::default();
    let n_train = context.task.train.len();
    let mut sizes = StepSizes {
        step,
        examples: indices.len(),
        tokens: 0,
        batch: BatchSize { examples: micro.min(indices.len()), tokens: 0, n_train },
        n_train,
    };
    for (part, chunk) in indices.chunks(micro).enumerate() {
        let padded = PaddedBatch::collate(&context.task.train, chunk, context.task.pad_id)?;
        let labels = context.task.labels;
        let batch =
            DeviceBatch::new(&padded, labels, context.device, context.dtype).repeat(members);
        // Every micro-batch draws its own noise.
        let pass = Pass {
            noise: part_key(pass.noise, part),
            dropout: pass.dropout.map(|key| part_key(key, part)),
            ..pass
        };
        let logits = state.model.logits(&batch.input, &pass);
        let nll = negative_log_likelihood(logits, &batch.targets)
            .mul_scalar(1.0 / (indices.len() * members) as f64);
        sizes.tokens += batch.tokens;
        // The KL belongs to the step, not to a micro-batch; what divides it is that of a batch as
        // the loader gives it, for the published scripts accumulate such batches.
        let terms = if part == 0 {
            sizes.batch.tokens = batch.tokens;
            method.regularise(&state.model, &pass, sizes)?
        } else {
            Regulariser::none()
        };
        let objective = Objective {
            nll,
            kl: terms.kl,
            penalty: terms.penalty,
            kl_weight: terms.kl_weight,
            divisor: terms.divisor,
        };
        let loss = objective.loss();
        let parts = objective.read(&loss);
        total = Some(match total {
            None => parts,
            Some(t) => ObjectiveParts { loss: t.loss + parts.loss, nll: t.nll + parts.nll, ..t },
        });
        if learns {
            let backward = loss.backward();
            gradients.accumulate(NamedGradients::collect(&state.model, &backward));
        }
    }
    let parts = total.ok_or(TrainError::EmptyBatch { step })?;
    let finite = |name: &'static str, value: f64| {
        if value.is_finite() { Ok(value) } else { Err(TrainError::NonFinite { name, step, value }) }
    };
    finite("loss", parts.loss)?;

    let rate_factor =
        if std::mem::take(&mut state.journal.skip_next_update) { 0.0 } else { factor };
    let before = method.before_update(StepState {
        sizes,
        pass: &pass,
        rate_factor,
        model: &mut state.model,
        optimizer: &mut state.optimizer,
        gradients: &mut gradients,
    })?;
    note_change(state, method, sink, before, step);
    if let Some(clip) = config.gradient_clip {
        let norm = finite("gradient norm", gradients.global_norm())?;
        gradients.clip(norm, clip);
    }
    // A method that rebuilt the optimiser just now starts the schedule anew with this update.
    let skip = std::mem::take(&mut state.journal.skip_next_update);
    let rate_factor = if skip { 0.0 } else { rate_factor };
    state.optimizer.step(&mut state.model, &gradients, rate_factor);
    let after = method.after_update(StepState {
        sizes,
        pass: &pass,
        rate_factor,
        model: &mut state.model,
        optimizer: &mut state.optimizer,
        gradients: &mut gradients,
    })?;
    note_change(state, method, sink, after, step + 1);
    Ok(parts)
}

/// The key of micro-batch `part`; the first one keeps the step's key.
fn part_key(key: NoiseKey, part: usize) -> NoiseKey {
    NoiseKey { seed: key.seed ^ ((part as u64) << PART_SHIFT), ..key }
}

fn note_change(
    state: &mut TrainState,
    method: &Method,
    sink: &mut dyn ProgressSink,
    change: Option<RankChange>,
    done: usize,
) {
    let Some(change) = change else { return };
    state.journal.skip_next_update |= change.skip_next_update;
    for (path, values) in change.removed {
        state.journal.removed.entry(path).or_default().extend(values);
    }
    record_ranks(state, method, change.cause, done);
    if change.after != change.before {
        sink.event(&Event::Pruned { done, before: change.before, after: change.after });
    }
}

fn record_ranks(state: &mut TrainState, method: &Method, cause: RankCause, done: usize) {
    let ranks = method.ranks(&state.model);
    let total_rank = ranks.values().sum::<usize>() as u64;
    state.journal.rank_events.push(RankEvent {
        step: done as u64,
        cause,
        ranks: ranks.into_iter().map(|(path, r)| (path, r as u32)).collect(),
        total_rank,
    });
}

/// Validation at the posterior mean; keeps a copy of the model if it is strictly the best so far.
fn evaluate(
    context: &RunContext<'_>,
    state: &mut TrainState,
    method: &Method,
    sink: &mut dyn ProgressSink,
    parts: Option<ObjectiveParts>,
    factor: f64,
) -> Result<(), TrainError> {
    let begun = Instant::now();
    let model = state.model.clone().valid();
    let logits = method.predict(&model, &Inputs::validation(context), 0)?;
    let metrics = score_draws(&logits, context.task)?.metrics;
    let ranks = method.ranks(&state.model);
    let total_rank: usize = ranks.values().sum();
    let score = context.task.score(&metrics);
    state.journal.history.push(EvalPoint {
        step: state.done as u64,
        loss: parts.map(|p| p.loss),
        nll: parts.map(|p| p.nll),
        kl: parts.filter(|_| method.is_variational()).map(|p| p.kl),
        kl_weight: parts.filter(|_| method.is_variational()).map(|p| p.kl_weight / p.divisor),
        learning_rate: context.config.learning_rate * factor,
        accuracy: metrics.accuracy,
        standard: metrics.standard.values().next().copied(),
        nll_val: metrics.nll,
        total_rank: total_rank as u64,
    });
    if state.best.as_ref().is_none_or(|best| score > best.info.score) {
        let mut model = state.model.clone();
        method.compact(&mut model);
        let removed = state.journal.removed.clone();
        let info = BestInfo { step: state.done, score, ranks, removed };
        state.best = Some(BestModel { model, info });
    }
    state.journal.peak_memory_bytes = state.journal.peak_memory_bytes.max(context.memory.bytes());
    state.journal.evaluate_seconds += begun.elapsed().as_secs_f64();
    sink.event(&Event::Evaluated {
        done: state.done,
        metric: context.task.selection_metric().to_owned(),
        value: score,
        total_rank,
    });
    Ok(())
}
