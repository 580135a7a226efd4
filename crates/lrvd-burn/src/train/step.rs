//! One step: forward, backward, clip, update, and the method's own changes around the update.

use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::BatchSize;

use super::config::{PART_SHIFT, TrainConfig};
use super::data::{Batch, Model, negative_log_likelihood};
use super::method::{Method, Placement, RankChange, Setup, StepSizes, StepState, Terms};
use super::state::TrainState;
use crate::error::Error;
use crate::objective::{Objective, ObjectiveParts};
use crate::optimizer::NamedGradients;
use crate::sampling::{Pass, Scheme};

/// The part of a method that a stage of a run trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
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
    pub part: Part,
    pub n_train: usize,
    /// Factor of the learning rates by the schedule of the settings.
    pub scheduled: f64,
}

impl StepContext<'_> {
    /// The pass of micro-batch `part` of `step`; every micro-batch draws its own noise.
    pub(crate) fn pass(&self, step: usize, part: usize) -> Pass {
        let key = NoiseKey::new(self.config.seed).at_step(step as u32);
        let key = NoiseKey { seed: key.seed ^ ((part as u64) << PART_SHIFT), ..key };
        let scheme = if self.part == Part::Mean { Scheme::Mean } else { self.setup.scheme };
        let pass = Pass::sampled(scheme, key);
        let drops = self.config.model_dropout || self.setup.adapter.dropout > 0.0;
        if drops { pass.with_dropout(key) } else { pass }
    }

    fn terms<M: Model, T: Method<M> + ?Sized>(
        &self,
        method: &T,
        model: &M,
        pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Terms, Error> {
        let divisor = sizes.n_train as f64;
        Ok(match self.part {
            Part::Whole => method.terms(model, pass, sizes)?,
            Part::Mean => Terms { divisor, ..Terms::none() },
            Part::Posterior { kl_weight } => {
                Terms { kl_weight, divisor, ..method.terms(model, pass, sizes)? }
            }
        })
    }
}

/// A step that was taken.
pub(super) struct StepOutcome {
    pub parts: ObjectiveParts,
    pub rate_factor: f64,
    /// Rank changes with the number of completed steps at which they happened.
    pub changes: Vec<(RankChange, usize)>,
}

pub(super) fn train_step<M: Model, T: Method<M> + ?Sized>(
    context: &StepContext<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    batches: Vec<Batch<M::Input>>,
) -> Result<StepOutcome, Error> {
    let (step, n_train) = (state.done, context.n_train);
    let examples = batches.iter().map(Batch::answers).sum::<usize>();
    let empty = || Error::Argument(format!("step {step} has no training example"));
    let first = batches.first().filter(|_| examples > 0).ok_or_else(empty)?;
    let mut sizes = StepSizes {
        step,
        steps: context.config.steps,
        examples,
        tokens: 0,
        batch: BatchSize { examples: first.answers(), tokens: first.tokens, n_train },
        n_train,
    };
    let (mut gradients, mut unread) = (NamedGradients::default(), Vec::new());
    for (part, batch) in batches.into_iter().enumerate() {
        let pass = context.pass(step, part);
        let logits = state.model.logits(&batch.input, &pass);
        // One block of rows for each member that the adapters hold.
        let members = logits.dims()[0] / batch.answers().max(1);
        let nll = negative_log_likelihood(logits, &batch.targets.repeat(members))
            .mul_scalar(1.0 / (examples * members) as f64);
        sizes.tokens += batch.tokens;
        // The KL belongs to the step, not to a micro-batch; what divides it is that of a batch as
        // the loader gives it, for the published scripts accumulate such batches.
        let terms = match part {
            0 => context.terms(method, &state.model, &pass, sizes)?,
            _ => Terms::none(),
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
    let (rate_factor, changes) = update(context, state, method, gradients, sizes)?;
    Ok(StepOutcome { parts, rate_factor, changes })
}

/// The update with the method's changes around it. Returns the factor of the learning rates, before a skipped update sets it to
/// 0, and the changes of ranks with the number of completed steps at which they happened.
pub(crate) fn update<M: Model, T: Method<M> + ?Sized>(
    context: &StepContext<'_>,
    state: &mut TrainState<M>,
    method: &mut T,
    mut gradients: NamedGradients,
    sizes: StepSizes,
) -> Result<(f64, Vec<(RankChange, usize)>), Error> {
    let (step, pass, mut changes) = (sizes.step, context.pass(sizes.step, 0), Vec::new());
    let factor = context.setup.rate_factor(step, context.scheduled);
    let skip = std::mem::take(&mut state.skip_next_update);
    let mut rate_factor = if skip { 0.0 } else { factor };
    for when in [Placement::BeforeUpdate, Placement::AfterUpdate] {
        if when == Placement::AfterUpdate {
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
        if context.part != Part::Whole {
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
            changes.push((change, step + usize::from(when == Placement::AfterUpdate)));
        }
    }
    Ok((factor, changes))
}

fn finite(name: &'static str, value: f64, step: usize) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(Error::Diverged { name, step, value }) }
}
