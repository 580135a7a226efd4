//! Fine-tuning methods: what each attaches, minimises and does to ranks.
//!
//! One more method is one more file and one line in [`MethodName::build`].

mod adalora;
mod bayes_lora;
mod lora;
mod name;

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::ranks;
use lrvd_burn::optimizer::{AdamW, NamedGradients};
use lrvd_burn::sampling::Scheme;

use crate::error::BenchError;
use crate::report::RankCause;
use crate::train::SequenceModel;

pub use name::{Method, MethodName, RankRequest};

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

/// Sizes that a KL divisor may ask for.
#[derive(Clone, Copy, Debug)]
pub struct StepSizes {
    /// Examples of the step.
    pub examples: usize,
    /// Tokens of the step, padding excluded.
    pub tokens: usize,
    /// Training examples.
    pub n_train: usize,
}

/// What a method may change around an update.
pub struct StepState<'a, M> {
    /// Step, counted from 0.
    pub step: usize,
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

/// A way of fine-tuning.
pub trait Tuning<M: SequenceModel> {
    /// The adapter that every targeted layer gets.
    fn adapter(&self) -> AdapterConfig;

    /// Whether the adapter has a posterior: decides decay, and whether draws are evaluated.
    fn is_variational(&self) -> bool {
        false
    }

    /// Where noise enters in training.
    fn training_scheme(&self) -> Scheme {
        Scheme::Mean
    }

    /// Terms added to the likelihood at `step`.
    ///
    /// # Errors
    ///
    /// [`BenchError`] for a divisor that is 0.
    fn regularise(
        &self,
        _model: &M,
        _step: usize,
        _sizes: StepSizes,
    ) -> Result<Regulariser, BenchError> {
        Ok(Regulariser { divisor: 1.0, ..Regulariser::default() })
    }

    /// Called between backward and update.
    ///
    /// # Errors
    ///
    /// [`BenchError`] if the model does not fit the method's state.
    fn before_update(
        &mut self,
        _state: StepState<'_, M>,
    ) -> Result<Option<RankChange>, BenchError> {
        Ok(None)
    }

    /// Called after the update.
    ///
    /// # Errors
    ///
    /// [`BenchError`] if the model does not fit the method's state.
    fn after_update(&mut self, _state: StepState<'_, M>) -> Result<Option<RankChange>, BenchError> {
        Ok(None)
    }

    /// Ranks in use, by module path.
    fn ranks(&self, model: &M) -> BTreeMap<String, usize> {
        ranks(model).into_iter().collect()
    }

    /// Removes what no longer takes part from a model that is about to be reported.
    fn compact(&self, _model: &mut M) {}

    /// What a checkpoint must hold.
    fn state(&self) -> MethodState {
        MethodState::default()
    }

    /// Continues from a checkpoint; the model already has the checkpoint's shapes.
    ///
    /// # Errors
    ///
    /// [`BenchError`] if the state does not belong to the model.
    fn restore(&mut self, _model: &M, _state: MethodState) -> Result<(), BenchError> {
        Ok(())
    }
}
