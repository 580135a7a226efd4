//! The life of a method in one trait, whose defaults are those of maximum likelihood.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use lrvd_core::schedule::BatchSize;

use super::batch::Targets;
use super::examples::{Examples, LabelledExamples, Subset};
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

/// A way of fine-tuning and of predicting. Everything but [`adapter`](Self::adapter) has a default.
///
/// | Called | Functions | For |
/// |---|---|---|
/// | once, before training | `adapter`, `attach`, `groups`, `posterior` | adapters and their learning rates |
/// | at every step | `scheme`, `rate_factor`, `terms` | noise, terms beside the likelihood, the rate |
/// | around every update | `before_update`, `after_update` | ranks that change, and values that another rule moves |
/// | after the last step | `search`, `refine`, `compact`, `finish` | the cut of ranks, and what is fitted to the trained model |
/// | for a checkpoint | `state`, `restore` | what a resumed run needs |
/// | for every answer | `predict`, `draws_nest` | logits at the mean and at draws |
pub trait Method<M: Model> {
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

    /// Fits what is fitted once training is over: curvature, a mean of the path, a noise scale.
    fn finish(&mut self, _model: &mut M, _data: &Fitting<'_, M::Input>) -> Result<(), Error> {
        Ok(())
    }

    /// The numbers that [`finish`](Self::finish) found and a reader would ask for, by name.
    fn fitted(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Numbers that the method keeps for prediction beside the trained parameters of the model; records
    /// and tables count them apart.
    fn stored_parameters(&self) -> usize {
        0
    }

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

    /// Whether a model that answers among other tokens than it was trained with can be asked. What is fitted to the
    /// trained answers cannot.
    fn takes_other_answers(&self) -> bool {
        true
    }
}

/// What a method is [fitted](Method::finish) to once training is over.
pub struct Fitting<'a, I> {
    /// The examples that it was trained on.
    pub train: &'a dyn LabelledExamples<Input = I>,
    /// Those that were kept out of training.
    pub holdout: &'a dyn LabelledExamples<Input = I>,
    /// How the model is asked about any of them; the examples in it are replaced.
    pub inputs: Inputs<'a, I>,
}

impl<'a, I> Fitting<'a, I> {
    /// `examples` to be asked about.
    pub fn inputs<'e>(&self, examples: &'e dyn Examples<Input = I>) -> Inputs<'e, I>
    where
        'a: 'e,
    {
        Inputs { examples, ..self.inputs }
    }

    /// Whether the answers are scores.
    pub fn is_regression(&self) -> Result<bool, Error> {
        Ok(matches!(self.train.targets(&[0])?, Targets::Scores(_)))
    }

    /// `count` training examples, or all if there are fewer, picked by the run's seed and `salt`.
    pub fn picked(
        &self,
        salt: u64,
        count: usize,
    ) -> Subset<'a, dyn LabelledExamples<Input = I> + 'a> {
        let key = NoiseKey::new(self.inputs.seed ^ salt).on_stream(Stream::DATA);
        let mut rows = permutation(key, self.train.len());
        rows.truncate(count);
        Subset { of: self.train, rows }
    }
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
