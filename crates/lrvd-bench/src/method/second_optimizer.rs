//! The second optimiser of BLoB, `ScalaBL` and C-LoRA: gradient descent beside `AdamW`.
//!
//! ```text
//! first:   AdamW on the likelihood
//! second:  θ ← θ − rate·factor·(π_i·∂KL/∂θ + g)       KL of the model that the first one has moved
//! ```
//!
//! `factor` is that of the learning-rate schedule, `π_i` BLoB's weight of the step. The published codes differ in
//! whose gradient `g` of the step's objective the second one takes over:
//!
//! | [`Owned`] | AdamW moves | the second one adds |
//! |---|---|---|
//! | `Noise` (BLoB's code) | means, head | `g` of the noise parameters |
//! | `Nothing` (`BayesAdapt`) | all of them | nothing |
//! | `Context` (C-LoRA's code) | A, B, head | `g` of the context network, divergence included |
//!
//! What it takes over is not clipped: where the experiment clips, the norm of what is left to `AdamW` is.
//!
//! Nothing here outlives a step, so there is nothing for a checkpoint to keep.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::parameters::{NamedParameter, Role};
use lrvd_burn::train::StepState;
use lrvd_models::AutoClassifier;

use super::kl_cycle::KlCycle;
use crate::settings::Optimizers;

/// Below this the weight is 0 in single precision, and the KL gradient is negligible.
const SMALLEST_WEIGHT: f64 = f32::MIN_POSITIVE as f64;

/// Whose gradients of the step's objective `AdamW` does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owned {
    Noise,
    /// Those of the network that reads the law of C-LoRA's matrix off the input.
    Context,
    Nothing,
}

impl From<Optimizers> for Owned {
    fn from(optimizers: Optimizers) -> Self {
        match optimizers {
            Optimizers::Two => Self::Noise,
            Optimizers::Bayesadapt => Self::Nothing,
        }
    }
}

impl Owned {
    fn holds(self, parameter: &NamedParameter<'_>) -> bool {
        match self {
            Self::Noise => parameter.role == Role::LogVariance,
            Self::Context => parameter.name.contains(".lora_context_"),
            Self::Nothing => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SecondOptimizer {
    rate: f64,
    owned: Owned,
    /// The objective's gradients of what is owned, between the two hooks of a step.
    kept: BTreeMap<String, Tensor<1>>,
}

impl SecondOptimizer {
    /// Descent at `rate`, also on the objective's gradients of what is `owned`.
    pub(super) fn new(rate: f64, owned: impl Into<Owned>) -> Self {
        Self { rate, owned: owned.into(), kept: BTreeMap::new() }
    }

    /// Takes the gradients of what is owned away from AdamW, unclipped.
    pub(super) fn before_update(&mut self, state: StepState<'_, AutoClassifier>) {
        self.kept.clear();
        let StepState { model, gradients, .. } = state;
        model.visit_parameters(&mut |p| {
            if self.owned.holds(&p)
                && let Some(gradient) = gradients.get(p.name)
            {
                self.kept.insert(p.name.to_owned(), gradient.clone());
            }
        });
        gradients.remove_where(|name| self.kept.contains_key(name));
    }

    /// Descends on `kl` of the model as AdamW left it, weighed by `cycle`, and on the gradients kept before.
    pub(super) fn after_update(
        &mut self,
        state: StepState<'_, AutoClassifier>,
        cycle: KlCycle,
        kl: impl FnOnce(&AutoClassifier) -> Option<Tensor<1>>,
    ) -> Result<(), lrvd_burn::Error> {
        let StepState { sizes, rate_factor, model, .. } = state;
        let weight = cycle.weight(sizes.step, sizes.n_train)?;
        let kl = if weight < SMALLEST_WEIGHT || rate_factor == 0.0 { None } else { kl(model) };
        let of_kl = kl.map_or_else(NamedGradients::default, |kl| {
            NamedGradients::collect(model, &kl.mul_scalar(weight).backward())
        });
        self.descend(model, rate_factor, &of_kl);
        Ok(())
    }

    /// Descends on the gradients kept before and on `others`, `rate_factor` times as fast as the peak rate.
    pub(super) fn descend(
        &mut self,
        model: &mut AutoClassifier,
        rate_factor: f64,
        others: &NamedGradients,
    ) {
        let kept = std::mem::take(&mut self.kept);
        let rate = self.rate * rate_factor;
        if rate == 0.0 {
            return;
        }
        model.visit_parameters_mut(&mut |p| {
            let parts = [others.get(p.name), kept.get(p.name)];
            let parts = parts.into_iter().flatten().cloned().map(without_graph);
            let Some(gradient) = parts.reduce(|a, b| a + b) else { return };
            let value = p.value.flat() - gradient.mul_scalar(rate);
            p.value.set_flat(value);
        });
    }
}

/// A gradient is a plain tensor on some backends and not on others.
fn without_graph(gradient: Tensor<1>) -> Tensor<1> {
    if gradient.device().is_autodiff() { gradient.inner() } else { gradient }
}
