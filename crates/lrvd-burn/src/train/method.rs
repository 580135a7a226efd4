//! A fine-tuning method: a description of its adapters, and hooks whose defaults are those of maximum likelihood.

use std::collections::BTreeMap;
use std::sync::Arc;

use lrvd_core::noise::{NoiseKey, Stream, permutation};
use lrvd_core::schedule::BatchSize;
use serde::{Deserialize, Serialize};

use super::config::TrainConfig;
use super::data::{Examples, Model, Subset, Targets};
use super::predict::{Inputs, Prediction};
use super::state::{RankCause, RankMasks};
use crate::adapter::{AdapterConfig, UpdateOp};
use crate::error::Error;
use crate::files::HostTensor;
use crate::objective::Objective;
use crate::optimizer::{AdamW, NamedGradients, ParameterGroups};
use crate::peft::PosteriorRun;
use crate::sampling::{Pass, Scheme};

/// A way of fine-tuning and of predicting.
pub trait Method<M: Model> {
    /// The adapters under the settings of a run, or an error if the method's own settings are out of range.
    fn setup(&self, config: &TrainConfig) -> Result<Setup, Error>;

    /// Objective of a step from its likelihood, which is the default.
    fn objective(
        &self,
        _model: &M,
        _step: &StepContext,
        likelihood: Objective,
    ) -> Result<Objective, Error> {
        Ok(likelihood)
    }

    /// Factor of the peak learning rates at `step`, from that of the settings.
    fn rate_factor(&self, _step: usize, scheduled: f64) -> f64 {
        scheduled
    }

    /// Called between backward pass and update, and after the update, for ranks that change and values with a separate update
    /// rule. Returns the cause of a change of ranks, if there was one.
    fn update(
        &mut self,
        _phase: UpdatePhase,
        _step: StepState<'_, M>,
    ) -> Result<Option<RankCause>, Error> {
        Ok(None)
    }

    /// State that a checkpoint must hold.
    fn state(&self) -> MethodState {
        MethodState::default()
    }

    /// Continues from a checkpoint; the model already has the checkpoint's shapes.
    fn restore(&mut self, _model: &M, _state: MethodState) -> Result<(), Error> {
        Ok(())
    }

    /// Fits curvature, a mean of the path, or a noise scale once training is over.
    fn finish(&mut self, _model: &mut M, _data: &Fitting<'_, M::Input>) -> Result<Fitted, Error> {
        Ok(Fitted::default())
    }

    /// Logits, or logarithms of probabilities, whose probabilities the caller averages: a member for each draw,
    /// the draws of a smaller number being the first ones of a larger; without draws the deterministic answer.
    fn predict(&self, model: &M, inputs: &Inputs<'_, M::Input>) -> Result<Prediction, Error> {
        inputs.predict(model)
    }
}

/// Rules by which a method's adapters are attached, trained and saved.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The adapter of every targeted layer.
    pub adapter: AdapterConfig,
    /// Rates and decays by role.
    pub groups: ParameterGroups,
    /// Place of the noise in training.
    pub scheme: Scheme,
    /// Header of the posterior's file; `None` of adapters without a posterior.
    pub posterior: Option<PosteriorRun>,
    /// Update in place of the product of two factors, which every fresh LoRA gets.
    pub op: Option<Arc<dyn UpdateOp>>,
}

impl Setup {
    /// `adapter` at its mean, at the rates and decays of `config`.
    pub fn new(adapter: AdapterConfig, config: &TrainConfig) -> Self {
        let groups = config.groups;
        Self { adapter, groups, scheme: Scheme::Mean, posterior: None, op: None }
    }
}

/// Place of a change beside the optimizer's update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UpdatePhase {
    /// After a completed update.
    #[default]
    AfterUpdate,
    /// Between backward and update.
    BeforeUpdate,
}

/// The data that a method is [fitted](Method::finish) to once training is over.
pub struct Fitting<'a, I> {
    /// The training examples.
    pub train: &'a dyn Examples<Input = I>,
    /// Examples that were held out of training.
    pub holdout: &'a dyn Examples<Input = I>,
    /// Settings of predictions; the examples in it are replaced.
    pub inputs: Inputs<'a, I>,
}

impl<'a, I> Fitting<'a, I> {
    /// `examples` to be predicted.
    pub fn inputs<'e>(&self, examples: &'e dyn Examples<Input = I>) -> Inputs<'e, I>
    where
        'a: 'e,
    {
        Inputs { examples, ..self.inputs }
    }

    /// `true` if the answers are scores.
    pub fn is_regression(&self) -> Result<bool, Error> {
        Ok(matches!(self.train.targets(&[0])?, Targets::Scores(_)))
    }

    /// `count` training examples, or all if there are fewer, picked by the run's seed and `salt`.
    pub fn picked(&self, salt: u64, count: usize) -> Subset<'a, I> {
        let key = NoiseKey::new(self.inputs.draws.seed ^ salt).on_stream(Stream::DATA);
        let mut rows = permutation(key, self.train.len());
        rows.truncate(count);
        Subset { of: self.train, rows }
    }
}

/// Result of [`Method::finish`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fitted {
    /// Numbers for the record, by name.
    pub values: BTreeMap<String, f64>,
    /// Numbers that are kept for prediction beside the trained parameters of the model.
    pub stored: usize,
    /// Temperature of a method that fits one without rows that were held out.
    pub temperature: Option<CrossFitted>,
}

/// Temperature that was fitted to answers to training rows, each by a fit that had left out the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossFitted {
    /// The temperature; `None` of too few rows.
    pub temperature: Option<f64>,
    /// Rows that it was fitted to.
    pub rows: usize,
    /// Fits that answered them, of which each had left out one part.
    pub folds: usize,
}

/// Position, sizes and pass of a step, for weights and schedules.
#[derive(Clone, Copy, Debug)]
pub struct StepContext {
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
    /// The pass of the first micro-batch.
    pub pass: Pass,
}

/// State that a method may change around an update.
pub struct StepState<'a, M> {
    /// Position, sizes and pass.
    pub context: StepContext,
    /// Factor of every learning rate at this step.
    pub rate_factor: f64,
    /// The model.
    pub model: &'a mut M,
    /// Directions in use.
    pub rank_masks: &'a mut RankMasks,
    /// Statistics of the directions that were removed, by module path.
    pub removed: &'a mut BTreeMap<String, Vec<f64>>,
    /// The optimizer.
    pub optimizer: &'a mut AdamW,
    /// To be set if the optimizer lost its state: the next update has rate 0, as a rebuilt schedule starts there.
    pub skip_next_update: &'a mut bool,
    /// This step's gradients: unclipped before the update, as used after it.
    pub gradients: &'a mut NamedGradients,
}

/// State of a method beyond the model and the optimizer.
#[derive(Clone, Debug, Default)]
pub struct MethodState {
    /// Tensors by name.
    pub tensors: BTreeMap<String, HostTensor>,
    /// Small values.
    pub values: serde_json::Value,
}
