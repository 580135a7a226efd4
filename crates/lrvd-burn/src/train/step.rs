//! Step of training: forward, backward, clip, update, and the method's own changes around the update.

use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::BatchSize;

use super::config::TrainConfig;
use super::data::{Batch, Model, Targets, negative_log_likelihood};
use super::method::{Method, Setup, StepContext, StepState, UpdatePhase};
use super::state::{RankCause, TrainState};
use crate::error::Error;
use crate::model::walk::renew_tied;
use crate::objective::{Objective, ObjectiveParts};
use crate::optimizer::NamedGradients;
use crate::sampling::{PART_SHIFT, Pass, Scheme};

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    /// The method as it is.
    Whole,
    /// The likelihood at the mean; ranks stay.
    Mean,
    /// The likelihood and the divergence under this weight, per training example; ranks stay.
    Posterior { kl_weight: f64 },
}

/// Rules of a step, from the run around it.
pub(crate) struct StepRules<'a> {
    pub config: &'a TrainConfig,
    pub setup: &'a Setup,
    pub phase: Phase,
    pub n_train: usize,
    /// Factor of the learning rates by the schedule of the settings.
    pub scheduled: f64,
}

impl StepRules<'_> {
    /// Pass of micro-batch `part` of `step`; every micro-batch draws its own noise.
    pub(crate) fn pass(&self, step: usize, part: usize) -> Pass {
        let key = NoiseKey::new(self.config.seed).at_step(step as u32);
        let key = NoiseKey { seed: key.seed ^ ((part as u64) << PART_SHIFT), ..key };
        let scheme = if self.phase == Phase::Mean { Scheme::Mean } else { self.setup.scheme };
        let pass = Pass::sampled(scheme, key);
        let drops = self.config.model_dropout || self.setup.adapter.dropout > 0.0;
        if drops { pass.with_dropout(key) } else { pass }
    }
}

/// Takes a step. Returns the objective, and the result of [`update`].
pub(super) fn train_step<M: Model, T: Method<M> + ?Sized>(
    rules: &StepRules<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    batches: Vec<Batch<M::Input>>,
) -> Result<(ObjectiveParts, Updated), Error> {
    let step = state.done;
    let n_train = rules.n_train;
    let examples = batches.iter().map(|batch| batch.targets.answers()).sum::<usize>();
    let empty =
        || Error::argument("batch", format_args!("an example at least at step {step}"), "none");
    let first = batches.first().filter(|_| examples > 0).ok_or_else(empty)?;
    let mut context = StepContext {
        step,
        steps: rules.config.steps,
        examples,
        tokens: 0,
        batch: BatchSize { examples: first.targets.answers(), tokens: first.tokens, n_train },
        n_train,
        pass: rules.pass(step, 0),
    };
    let mut gradients = NamedGradients::default();
    let mut unread = Vec::new();
    for (part, batch) in batches.into_iter().enumerate() {
        let pass = rules.pass(step, part);
        if part > 0 {
            renew_tied(&mut state.model);
        }
        let (nll, ..) = likelihood(&state.model, &batch, &pass, examples);
        context.tokens += batch.tokens;
        // The KL belongs to the step, not to a micro-batch; what divides it is that of a batch as
        // the loader gives it, for the published scripts accumulate such batches.
        let divisor = n_train as f64;
        let likelihood = Objective::likelihood(nll);
        let objective = match rules.phase {
            _ if part > 0 => likelihood,
            Phase::Whole => method.objective(&state.model, &context, likelihood)?,
            Phase::Mean => Objective { divisor, ..likelihood },
            Phase::Posterior { kl_weight } => {
                let objective = method.objective(&state.model, &context, likelihood)?;
                Objective { kl_weight, divisor, ..objective }
            }
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
    let parts = unread.into_iter().map(|read| read()).reduce(|total, parts| ObjectiveParts {
        loss: total.loss + parts.loss,
        nll: total.nll + parts.nll,
        ..total
    });
    let parts = parts.ok_or_else(empty)?;
    finite("loss", parts.loss, step)?;
    Ok((parts, update(rules, state, method, gradients, context)?))
}

/// Negative log-likelihood of `batch` over the `answers` of its step, with logits and targets.
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

/// Factor of the learning rates, before a skipped update sets it to 0, and the changes of ranks with the number of completed
/// steps at which they happened.
type Updated = (f64, Vec<(RankCause, usize)>);

/// Updates the model, with the method's changes around it.
pub(crate) fn update<M: Model, T: Method<M> + ?Sized>(
    rules: &StepRules<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    mut gradients: NamedGradients,
    context: StepContext,
) -> Result<Updated, Error> {
    let step = context.step;
    let factor = method.rate_factor(step, rules.scheduled);
    let skip = std::mem::take(&mut state.skip_next_update);
    let mut rate_factor = if skip { 0.0 } else { factor };
    let mut changes = Vec::new();
    for phase in [UpdatePhase::BeforeUpdate, UpdatePhase::AfterUpdate] {
        if phase == UpdatePhase::AfterUpdate {
            if let Some(clip) = rules.config.gradient_clip {
                let norm = finite("gradient norm", gradients.global_norm(), step)?;
                gradients.clip(norm, clip);
            }
            // A method that rebuilt the optimizer just now starts the schedule anew with this update.
            if std::mem::take(&mut state.skip_next_update) {
                rate_factor = 0.0;
            }
            state.optimizer.step(&mut state.model, &gradients, rate_factor);
        }
        if rules.phase != Phase::Whole {
            continue;
        }
        let change = method.update(
            phase,
            StepState {
                context,
                rate_factor,
                model: &mut state.model,
                rank_masks: &mut state.in_use,
                removed: &mut state.journal.removed,
                optimizer: &mut state.optimizer,
                skip_next_update: &mut state.skip_next_update,
                gradients: &mut gradients,
            },
        )?;
        let done = step + usize::from(phase == UpdatePhase::AfterUpdate);
        changes.extend(change.map(|cause| (cause, done)));
    }
    Ok((factor, changes))
}

fn finite(name: &'static str, value: f64, step: usize) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(Error::Diverged { name, step, value }) }
}
