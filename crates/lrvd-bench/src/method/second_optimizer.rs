//! The second optimiser of BLoB and `ScalaBL`: gradient descent on the KL after every update.
//!
//! ```text
//! first:   AdamW on the likelihood
//! second:  θ ← θ − rate·factor·(π_i·∂KL/∂θ + g)       KL of the model that the first one has moved
//! ```
//!
//! `factor` is that of the learning-rate schedule, `π_i` BLoB's weight of the step. The two published
//! codes differ in who follows the likelihood's gradient `g` of the noise parameters:
//!
//! | [`Optimizers`] | AdamW moves | the second one adds |
//! |---|---|---|
//! | `two` (BLoB's code) | means, head | `g` of the noise parameters, unscaled |
//! | `bayesadapt` | all of them | nothing |
//!
//! Nothing here outlives a step, so there is nothing for a checkpoint to keep.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::parameters::Role;
use lrvd_burn::train::{StepState, TrainError};
use lrvd_models::AutoClassifier;

use super::kl_cycle::KlCycle;
use crate::settings::{ExperimentConfig, Optimizers};

/// Below this the weight is 0 in single precision, and the KL has no gradient to speak of.
const SMALLEST_WEIGHT: f64 = f32::MIN_POSITIVE as f64;

/// Plain gradient descent beside AdamW.
#[derive(Clone, Debug)]
pub(super) struct SecondOptimizer {
    rate: f64,
    cycle: KlCycle,
    optimizers: Optimizers,
    clip: Option<f64>,
    /// The likelihood's gradients of the noise parameters, between the two hooks of a step.
    kept: BTreeMap<String, Tensor<1>>,
}

impl SecondOptimizer {
    /// Descent at `rate` with the weights of `cycle`.
    pub(super) fn new(
        config: &ExperimentConfig,
        rate: f64,
        cycle: KlCycle,
        optimizers: Optimizers,
    ) -> Self {
        let clip = config.gradient_clip;
        Self { rate, cycle, optimizers, clip, kept: BTreeMap::new() }
    }

    /// Takes the noise parameters' gradients away from AdamW.
    ///
    /// Where the experiment clips, all gradients are clipped together before, as for every method.
    pub(super) fn before_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
    ) -> Result<(), TrainError> {
        self.kept.clear();
        if self.optimizers == Optimizers::Bayesadapt {
            return Ok(());
        }
        let StepState { sizes, model, gradients, .. } = state;
        if let Some(clip) = self.clip {
            let value = gradients.global_norm();
            if !value.is_finite() {
                let (name, step) = ("gradient norm", sizes.step);
                return Err(TrainError::NonFinite { name, step, value });
            }
            gradients.clip(value, clip);
        }
        model.visit_parameters(&mut |p| {
            if p.role == Role::LogVariance
                && let Some(gradient) = gradients.get(p.name)
            {
                self.kept.insert(p.name.to_owned(), gradient.clone());
            }
        });
        gradients.remove_where(|name| self.kept.contains_key(name));
        Ok(())
    }

    /// Descends on `kl` of the model as AdamW left it, and on the gradients kept before.
    pub(super) fn after_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
        kl: impl FnOnce(&AutoClassifier) -> Option<Tensor<1>>,
    ) -> Result<(), TrainError> {
        let StepState { sizes, rate_factor, model, .. } = state;
        let of_nll = std::mem::take(&mut self.kept);
        let weight = self.cycle.weight(sizes.step, sizes.n_train)?;
        let rate = self.rate * rate_factor;
        if rate == 0.0 {
            return Ok(());
        }
        let kl = if weight < SMALLEST_WEIGHT { None } else { kl(model) };
        let of_kl = kl.map_or_else(NamedGradients::default, |kl| {
            NamedGradients::collect(model, &kl.mul_scalar(weight).backward())
        });
        model.visit_parameters_mut(&mut |p| {
            let parts = [of_kl.get(p.name), of_nll.get(p.name)];
            let parts = parts.into_iter().flatten().cloned().map(without_graph);
            let Some(gradient) = parts.reduce(|a, b| a + b) else { return };
            let value = p.value.flat() - gradient.mul_scalar(rate);
            p.value.set_flat(value);
        });
        Ok(())
    }
}

/// A gradient is a plain tensor on some backends and not on others.
fn without_graph(gradient: Tensor<1>) -> Tensor<1> {
    if gradient.device().is_autodiff() { gradient.inner() } else { gradient }
}
