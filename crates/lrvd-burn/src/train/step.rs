//! One step: forward, backward, clip, update, and the method's own changes around the update.

use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::BatchSize;

use super::batch::{Batch, negative_log_likelihood};
use super::config::TrainConfig;
use super::method::{Method, RankChange, StepSizes, StepState, Terms};
use super::model::Model;
use super::state::TrainState;
use crate::error::Error;
use crate::objective::{Objective, ObjectiveParts, UnreadParts};
use crate::optimizer::NamedGradients;
use crate::sampling::Pass;

/// Numbers of micro-batches and of prediction batches are mixed into the bits of the seed from here on, which
/// [`MAX_SEED`](super::MAX_SEED) keeps free.
pub(super) const PART_SHIFT: u32 = 40;

/// What a step needs to know of the run around it.
pub(crate) struct StepContext<'a> {
    pub config: &'a TrainConfig,
    pub n_train: usize,
    pub rate_factor: f64,
}

/// A step that was taken.
pub(super) struct StepOutcome {
    pub parts: ObjectiveParts,
    /// Rank changes with the number of completed steps at which they happened.
    pub changes: Vec<(RankChange, usize)>,
}

pub(super) fn train_step<M: Model, T: Method<M> + ?Sized>(
    context: &StepContext<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    batches: Vec<Batch<M::Input>>,
) -> Result<StepOutcome, Error> {
    let (config, step) = (context.config, state.done);
    let key = NoiseKey::new(config.seed).at_step(step as u32);
    let mut pass = Pass::sampled(method.scheme(), key);
    if config.model_dropout || method.adapter().dropout > 0.0 {
        pass = pass.with_dropout(key);
    }
    let answers = batches.iter().map(Batch::answers);
    let (examples, first) = (answers.clone().sum::<usize>(), answers.clone().next().unwrap_or(0));
    if examples == 0 {
        return Err(empty(step));
    }
    let n_train = context.n_train;
    let mut sizes = StepSizes {
        step,
        steps: config.steps,
        examples,
        tokens: 0,
        batch: BatchSize { examples: first, tokens: 0, n_train },
        n_train,
    };
    let (mut gradients, mut unread) = (NamedGradients::default(), Vec::new());
    for (part, batch) in batches.into_iter().enumerate() {
        // Every micro-batch draws its own noise.
        let pass = Pass {
            noise: part_key(pass.noise, part),
            dropout: pass.dropout.map(|key| part_key(key, part)),
            ..pass
        };
        let logits = state.model.logits(&batch.input, &pass);
        // One block of rows for each member that the adapters hold.
        let members = logits.dims()[0] / batch.answers().max(1);
        let nll = negative_log_likelihood(logits, &batch.targets.repeat(members))
            .mul_scalar(1.0 / (examples * members) as f64);
        sizes.tokens += batch.tokens;
        // The KL belongs to the step, not to a micro-batch; what divides it is that of a batch as
        // the loader gives it, for the published scripts accumulate such batches.
        let terms = if part == 0 {
            sizes.batch.tokens = batch.tokens;
            method.terms(&state.model, &pass, sizes)?
        } else {
            Terms::none()
        };
        let objective = Objective {
            nll,
            kl: terms.kl,
            penalty: terms.penalty,
            kl_weight: terms.kl_weight,
            divisor: terms.divisor,
        };
        let loss = objective.loss();
        unread.push(objective.unread(&loss));
        // Without a head nothing is left to learn once every rank is pruned, and no graph to go back.
        if loss.is_tracked() {
            let backward = loss.backward();
            gradients.accumulate(NamedGradients::collect(&state.model, &backward));
        }
    }
    // Read when every pass is under way: a device does not wait for the host between forward and backward.
    let parts = unread.into_iter().map(UnreadParts::read).reduce(|total, parts| ObjectiveParts {
        loss: total.loss + parts.loss,
        nll: total.nll + parts.nll,
        ..total
    });
    let parts = parts.ok_or_else(|| empty(step))?;
    finite("loss", parts.loss, step)?;
    let changes = update(context, state, method, gradients, &pass, sizes)?;
    Ok(StepOutcome { parts, changes })
}

pub(crate) fn update<M: Model, T: Method<M> + ?Sized>(
    context: &StepContext<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    mut gradients: NamedGradients,
    pass: &Pass,
    sizes: StepSizes,
) -> Result<Vec<(RankChange, usize)>, Error> {
    let (step, mut changes) = (sizes.step, Vec::new());
    let skip = std::mem::take(&mut state.skip_next_update);
    let rate_factor = if skip { 0.0 } else { context.rate_factor };
    let before = method.before_update(StepState {
        sizes,
        pass,
        rate_factor,
        model: &mut state.model,
        optimizer: &mut state.optimizer,
        gradients: &mut gradients,
    })?;
    // A method that rebuilt the optimiser just now starts the schedule anew with this update.
    let skip = before.as_ref().is_some_and(|change| change.skip_next_update);
    changes.extend(before.map(|change| (change, step)));
    if let Some(clip) = context.config.gradient_clip {
        let norm = finite("gradient norm", gradients.global_norm(), step)?;
        gradients.clip(norm, clip);
    }
    let rate_factor = if skip { 0.0 } else { rate_factor };
    state.optimizer.step(&mut state.model, &gradients, rate_factor);
    let after = method.after_update(StepState {
        sizes,
        pass,
        rate_factor,
        model: &mut state.model,
        optimizer: &mut state.optimizer,
        gradients: &mut gradients,
    })?;
    state.skip_next_update = after.as_ref().is_some_and(|change| change.skip_next_update);
    changes.extend(after.map(|change| (change, step + 1)));
    Ok(changes)
}

/// The key of micro-batch `part`; the first one keeps the step's key.
pub(crate) fn part_key(key: NoiseKey, part: usize) -> NoiseKey {
    NoiseKey { seed: key.seed ^ ((part as u64) << PART_SHIFT), ..key }
}

fn empty(step: usize) -> Error {
    Error::Argument(format!("step {step} has no training example"))
}

fn finite(name: &'static str, value: f64, step: usize) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(Error::Diverged { name, step, value }) }
}
