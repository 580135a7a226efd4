//! Fine-tuning methods: what each attaches, minimises, does around an update, and predicts.
//!
//! One more method is one more file here, one line in `registry`, and one entry in the table of
//! methods in [`settings`](crate::settings) (`docs/guides/add-a-method.md`).

mod adalora;
mod bayes_lora;
mod bbb;
mod blob;
mod c_lora;
mod error;
#[cfg(test)]
mod fixture;
mod kl_cycle;
mod laplace;
mod lora;
mod lora_ensemble;
mod lrvd_variants;
mod map;
mod mc_dropout;
mod registry;
mod scala_bl;
mod second_optimizer;
mod setup;
mod swag;
mod tempered;
mod tfb;

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::{AdapterTargets, attach_adapters, ranks};
use lrvd_burn::optimizer::{AdamW, NamedGradients, ParameterGroups};
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::BatchSize;

use crate::backbone::TaskModel;
use crate::eval::Inputs;
use crate::eval::RunContext;
use crate::record::RankCause;
use crate::settings::ExperimentConfig;

pub use crate::settings::{MethodName, RankRequest};
pub use error::MethodError;

/// A method with its settings, ready to run.
pub type Method = Box<dyn Tuning>;

/// What a method adds to the mean negative log-likelihood of a step.
#[derive(Debug, Default)]
pub struct Regulariser {
    /// `Σ KL(q ‖ p)`, nats.
    pub kl: Option<Tensor<1>>,
    /// Factor of the KL at this step.
    pub kl_weight: f64,
    /// Divisor of the KL.
    pub divisor: f64,
    /// Any other penalty, weighted.
    pub penalty: Option<Tensor<1>>,
}

impl Regulariser {
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

/// Position and sizes of a step, which KL weights may ask for.
#[derive(Clone, Copy, Debug)]
pub struct StepSizes {
    /// Step, counted from 0.
    pub step: usize,
    /// Examples of the step.
    pub examples: usize,
    /// Tokens of the step so far, padding excluded.
    pub tokens: usize,
    /// The first micro-batch.
    pub batch: BatchSize,
    /// Training examples.
    pub n_train: usize,
}

/// What a method may change around an update.
pub struct StepState<'a> {
    /// Position and sizes.
    pub sizes: StepSizes,
    /// The pass that the step's forward used.
    pub pass: &'a Pass,
    /// Factor of every learning rate at this step.
    pub rate_factor: f64,
    /// The model.
    pub model: &'a mut TaskModel,
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

/// A way of fine-tuning and of predicting.
///
/// The life of a run: [`attach`](Self::attach), then per step [`regularise`](Self::regularise),
/// [`before_update`](Self::before_update) and [`after_update`](Self::after_update), then once
/// [`finish`](Self::finish), then [`predict`](Self::predict). Everything but `adapter` has a
/// default, which is that of maximum likelihood.
pub trait Tuning {
    /// The adapter that every targeted layer gets.
    fn adapter(&self) -> AdapterConfig;

    /// Puts fresh adapters on the layers that `targets` name.
    ///
    /// # Errors
    ///
    /// [`MethodError::Adapter`] if nothing matches or a setting is out of range.
    fn attach(
        &self,
        model: &mut TaskModel,
        targets: &AdapterTargets,
        seed: NoiseKey,
    ) -> Result<(), MethodError> {
        attach_adapters(model, targets, &self.adapter(), seed)?;
        Ok(())
    }

    /// Whether the adapters carry an LRVD posterior: decides decay, statistics and what is saved.
    fn is_variational(&self) -> bool {
        false
    }

    /// Learning rates and decay by role.
    fn groups(&self, config: &ExperimentConfig) -> ParameterGroups {
        config.groups(self.is_variational())
    }

    /// Where noise enters in training.
    fn training_scheme(&self) -> Scheme {
        Scheme::Mean
    }

    /// Models that one forward trains side by side: the batch is repeated that often, and the
    /// likelihood is the mean over them.
    fn members(&self) -> usize {
        1
    }

    /// Factor of every learning rate at `step`, where the schedule says `scheduled`.
    fn rate_factor(&self, _step: usize, scheduled: f64) -> f64 {
        scheduled
    }

    /// Terms added to the likelihood of a step, whose forward used `pass`.
    ///
    /// # Errors
    ///
    /// [`MethodError`] for a divisor that is 0.
    fn regularise(
        &self,
        _model: &TaskModel,
        _pass: &Pass,
        _sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        Ok(Regulariser::none())
    }

    /// Called between backward and update.
    ///
    /// # Errors
    ///
    /// [`MethodError`] if the model does not fit the method's state.
    fn before_update(&mut self, _state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        Ok(None)
    }

    /// Called after the update.
    ///
    /// # Errors
    ///
    /// [`MethodError`] if the model does not fit the method's state.
    fn after_update(&mut self, _state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        Ok(None)
    }

    /// Ranks in use, by module path.
    fn ranks(&self, model: &TaskModel) -> BTreeMap<String, usize> {
        ranks(model).into_iter().collect()
    }

    /// Removes what no longer takes part from a model that is about to be reported.
    fn compact(&self, _model: &mut TaskModel) {}

    /// Share of the training examples that is kept out of training, for [`finish`](Self::finish).
    fn holdout(&self) -> f64 {
        0.0
    }

    /// Whether [`finish`](Self::finish) fits something to the last model: such a method reports no
    /// best checkpoint, which the fit would not belong to.
    fn is_post_hoc(&self) -> bool {
        false
    }

    /// What is fitted once training is over: curvature, a temperature, a noise scale.
    ///
    /// # Errors
    ///
    /// [`MethodError`] if the fit fails.
    fn finish(
        &mut self,
        _model: &mut TaskModel,
        _context: &RunContext<'_>,
    ) -> Result<(), MethodError> {
        Ok(())
    }

    /// The numbers that [`finish`](Self::finish) found and a reader would ask for, by name.
    fn fitted(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Numbers of draws that make sense beside `k = 0`.
    fn draws(&self, config: &ExperimentConfig) -> Vec<usize> {
        if self.is_variational() { config.draws.clone() } else { Vec::new() }
    }

    /// Whether the draws of a smaller number are the first ones of a larger, so that one call serves
    /// all numbers.
    fn draws_nest(&self) -> bool {
        true
    }

    /// Logits, or logarithms of probabilities, `[members, n, labels]`, whose probabilities the
    /// caller averages. With draws there is a member for each, unless [`draws_nest`] says
    /// otherwise; 0 asks for the method's deterministic answer.
    ///
    /// [`draws_nest`]: Self::draws_nest
    ///
    /// # Errors
    ///
    /// [`MethodError`] if the examples cannot be batched.
    fn predict(
        &self,
        model: &TaskModel,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Vec<f64>, MethodError> {
        Ok(inputs.predict(model, draws)?)
    }

    /// Numbers that the method keeps for prediction beside the trained parameters of the model; records
    /// and tables count them apart.
    fn stored_parameters(&self) -> usize {
        0
    }

    /// What a checkpoint must hold.
    fn state(&self) -> MethodState {
        MethodState::default()
    }

    /// Continues from a checkpoint; the model already has the checkpoint's shapes.
    ///
    /// # Errors
    ///
    /// [`MethodError`] if the state does not belong to the model.
    fn restore(&mut self, _model: &TaskModel, _state: MethodState) -> Result<(), MethodError> {
        Ok(())
    }
}
