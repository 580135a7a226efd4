//! The life of a method in small traits, whose defaults are those of maximum likelihood.
//!
//! | Trait | Asked | For |
//! |---|---|---|
//! | [`Attach`] | once, before training | adapters and their learning rates |
//! | [`Regularise`] | at every step | noise, terms beside the likelihood, the rate |
//! | [`RankPolicy`] | around every update | ranks that go, and what a checkpoint must hold of it |
//! | [`Predict`] | whenever the model answers | logits at the mean and at draws |

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::BatchSize;

use super::inputs::Inputs;
use super::model::Model;
use super::predict::Logits;
use super::search::RankSearch;
use super::state::RankCause;
use crate::adapter::AdapterConfig;
use crate::error::Error;
use crate::files::HostTensor;
use crate::model::{AdapterTargets, attach_adapters, ranks};
use crate::optimizer::{AdamW, NamedGradients, ParameterGroups};
use crate::peft::PosteriorRun;
use crate::sampling::{Pass, Scheme};

/// What a method puts on a model.
pub trait Attach<M: Model> {
    /// The adapter that every targeted layer gets.
    fn adapter(&self) -> AdapterConfig;

    /// Puts fresh adapters on the layers that `targets` name.
    fn attach(&self, model: &mut M, targets: &AdapterTargets, seed: NoiseKey) -> Result<(), Error> {
        attach_adapters(model, targets, &self.adapter(), seed)?;
        Ok(())
    }

    /// Rates and decays by role, made from those of the settings.
    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        *settings
    }

    /// What the file of the adapters' posterior says of a run with `seed`; `None` of a method whose
    /// adapters have none.
    fn posterior(&self, _seed: u64) -> Option<PosteriorRun> {
        None
    }
}

/// What a method minimises beside the likelihood, and under which noise.
pub trait Regularise<M: Model> {
    /// Where noise enters in training.
    fn scheme(&self) -> Scheme {
        Scheme::Mean
    }

    /// Factor of every learning rate at `step`, where the schedule says `scheduled`.
    fn rate_factor(&self, _step: usize, scheduled: f64) -> f64 {
        scheduled
    }

    /// Terms added to the likelihood of a step, whose forward used `pass`.
    fn terms(&self, _model: &M, _pass: &Pass, _sizes: StepSizes) -> Result<Terms, Error> {
        Ok(Terms::none())
    }
}

/// How a method changes ranks while it trains.
pub trait RankPolicy<M: Model> {
    /// Called between backward and update.
    fn before_update(&mut self, _step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        Ok(None)
    }

    /// Called after the update.
    fn after_update(&mut self, _step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        Ok(None)
    }

    /// How the ranks are searched for after the last step; `None` if they are not.
    fn search(&self) -> Option<RankSearch> {
        None
    }

    /// `model` was cut, and is refined on `n_train` answers from here on: it gets its posterior.
    fn refine(&mut self, _model: &mut M, _n_train: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Ranks in use, by module path.
    fn ranks(&self, model: &M) -> BTreeMap<String, usize> {
        ranks(model).into_iter().collect()
    }

    /// Removes what no longer takes part from a model that is about to be kept.
    fn compact(&self, _model: &mut M) {}

    /// What a checkpoint must hold.
    fn state(&self) -> MethodState {
        MethodState::default()
    }

    /// Continues from a checkpoint; the model already has the checkpoint's shapes.
    fn restore(&mut self, _model: &M, _state: MethodState) -> Result<(), Error> {
        Ok(())
    }
}

/// How a method answers.
pub trait Predict<M: Model> {
    /// Logits, or logarithms of probabilities, whose probabilities the caller averages. With draws
    /// there is a member for each, unless [`draws_nest`](Self::draws_nest) says otherwise; 0 asks for
    /// the method's deterministic answer.
    fn predict(
        &self,
        model: &M,
        inputs: &Inputs<'_, M::Input>,
        draws: usize,
    ) -> Result<Logits, Error> {
        inputs.predict(model, draws)
    }

    /// Whether the draws of a smaller number are the first ones of a larger, so that one call serves
    /// all numbers.
    fn draws_nest(&self) -> bool {
        true
    }
}

/// Everything that the loop asks of a method.
pub trait Method<M: Model>: Attach<M> + Regularise<M> + RankPolicy<M> + Predict<M> {}

impl<M, T> Method<M> for T
where
    M: Model,
    T: Attach<M> + Regularise<M> + RankPolicy<M> + Predict<M> + ?Sized,
{
}

/// What a method adds to the mean negative log-likelihood of a step.
#[derive(Debug, Default)]
pub struct Terms {
    /// `Σ KL(q ‖ p)`, nats.
    pub kl: Option<Tensor<1>>,
    /// Factor of the KL at this step.
    pub kl_weight: f64,
    /// Divisor of the KL.
    pub divisor: f64,
    /// Any other penalty, weighted.
    pub penalty: Option<Tensor<1>>,
}

impl Terms {
    /// Nothing is added.
    pub fn none() -> Self {
        Self { divisor: 1.0, ..Self::default() }
    }

    /// `weight · kl`.
    pub fn kl(kl: Option<Tensor<1>>, weight: f64) -> Self {
        Self { kl, kl_weight: weight, divisor: 1.0, penalty: None }
    }

    /// `penalty` as it is.
    pub fn penalty(penalty: Option<Tensor<1>>) -> Self {
        Self { penalty, ..Self::none() }
    }
}

/// Position and sizes of a step, which weights and schedules may ask for.
#[derive(Clone, Copy, Debug)]
pub struct StepSizes {
    /// Step, counted from 0.
    pub step: usize,
    /// Steps of the run.
    pub steps: usize,
    /// Answers of the step: its examples, or their tokens where those are predicted.
    pub examples: usize,
    /// Tokens of the step so far, padding excluded.
    pub tokens: usize,
    /// The first micro-batch.
    pub batch: BatchSize,
    /// Answers in the training set.
    pub n_train: usize,
}

/// What a method may change around an update.
pub struct StepState<'a, M> {
    /// Position and sizes.
    pub sizes: StepSizes,
    /// The pass that the step's forward used.
    pub pass: &'a Pass,
    /// Factor of every learning rate at this step.
    pub rate_factor: f64,
    /// The model.
    pub model: &'a mut M,
    /// The optimiser.
    pub optimizer: &'a mut AdamW,
    /// This step's gradients: unclipped before the update, as used after it.
    pub gradients: &'a mut NamedGradients,
}

/// A change of ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct RankChange {
    /// Why.
    pub cause: RankCause,
    /// Sum of ranks before.
    pub before: usize,
    /// Sum of ranks after.
    pub after: usize,
    /// Statistics of the directions that went, by module path.
    pub removed: BTreeMap<String, Vec<f64>>,
    /// The optimiser lost its state: the next update has rate 0, as a rebuilt schedule starts there.
    pub skip_next_update: bool,
}

/// State of a method beyond the model and the optimiser.
#[derive(Clone, Debug, Default)]
pub struct MethodState {
    /// Tensors by name.
    pub tensors: BTreeMap<String, HostTensor>,
    /// Small values.
    pub values: serde_json::Value,
}
