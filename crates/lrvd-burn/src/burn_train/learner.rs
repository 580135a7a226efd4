//! A model with adapters as burn-train's `Learner` takes it.

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ModuleDisplay};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::tensor::Tensor;
use burn::train::{InferenceStep, Interrupter, TrainOutput, TrainStep};
use lrvd_core::schedule::BatchSize;

use super::metrics::StepOutput;
use crate::error::Error;
use crate::model::{AdapterTargets, NamedModule};
use crate::objective::Objective;
use crate::optimizer::{AdamW, NamedGradients};
use crate::sampling::Pass;
use crate::train::{
    Batch, InUse, Method, Model, Part, Run, Setup, StepContext, StepSizes, Terms, TrainConfig,
    TrainState, negative_log_likelihood, ranks_in_use, update,
};

/// A model with adapters that burn-train's `Learner` trains by the rules of a method.
///
/// A step is that of [`Run::fit`]: the method's terms, noise from seed and step, changes of ranks, and
/// an update by [`AdamW`], whose moments are cut with the ranks. The optimizer that `Learner::new` takes is not used; its
/// learning rate or schedule is the factor of the rates in [`TrainConfig::groups`].
///
/// Gradients of accumulated batches are summed, and the divergence with them, so that the objective keeps its proportions.
///
/// An interrupted run cannot be resumed bit for bit: burn-train's checkpoints hold no step, no moments, no position in the
/// data and no state of the method, and their tensors fit the ranks they were saved with.
///
/// A step of burn-train cannot fail. An error stops the run through the [`Interrupter`];
/// `LearningResult::interrupted` then has the reason.
#[derive(Module, Debug)]
pub struct Learning<M: Module, T: Clone + Debug + Send> {
    model: M,
    #[module(skip)]
    training: Training<T>,
}

/// What trains the model.
#[derive(Clone)]
struct Training<T> {
    method: T,
    config: TrainConfig,
    setup: Setup,
    n_train: usize,
    step: usize,
    skip_next_update: bool,
    in_use: InUse,
    optimizer: AdamW,
    /// The micro-batches since the last update, shared with the clones that burn-train makes for a step.
    parts: Arc<Mutex<Vec<BatchSize>>>,
    stop: Interrupter,
}

/// burn-train prints the model, and this with it, at the end of a training.
impl<T: Debug> Debug for Training<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Training")
            .field("method", &self.method)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

impl<T> Training<T> {
    fn parts(&self) -> MutexGuard<'_, Vec<BatchSize>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size<I>(&self, batch: &Batch<I>) -> BatchSize {
        BatchSize { examples: batch.answers(), tokens: batch.tokens, n_train: self.n_train }
    }

    fn sizes(&self, parts: &[BatchSize]) -> StepSizes {
        let n_train = self.n_train;
        let none = BatchSize { examples: 0, tokens: 0, n_train };
        StepSizes {
            step: self.step,
            steps: self.config.steps,
            examples: parts.iter().map(|part| part.examples).sum(),
            tokens: parts.iter().map(|part| part.tokens).sum(),
            batch: parts.first().copied().unwrap_or(none),
            n_train,
        }
    }
}

impl<M, T> Learning<M, T>
where
    M: Model,
    T: Method<M> + Clone + Debug + Send,
{
    /// Puts fresh adapters on the layers of `model` that `targets` name, and unfreezes its head. `config` has all settings but the
    /// schedule, evaluations and patience, which are burn-train's; `interrupter` is that of the training.
    pub fn new(
        model: M,
        method: T,
        targets: &AdapterTargets,
        config: &TrainConfig,
        n_train: usize,
        interrupter: Interrupter,
    ) -> Result<Self, Error> {
        let run = Run::new(model, method, targets, config)?;
        let (setup, Run { state, method, .. }) = (run.setup()?, run);
        let training = Training {
            method: *method,
            config: config.clone(),
            setup,
            n_train,
            step: 0,
            skip_next_update: false,
            in_use: state.in_use,
            optimizer: state.optimizer,
            parts: Arc::default(),
            stop: interrupter,
        };
        Ok(Self { model: state.model, training })
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, at the end.
    pub fn into_model(self) -> M {
        self.model
    }

    /// The objective of `batch` with its parts.
    fn output(&self, batch: Batch<M::Input>, pass: &Pass) -> (Tensor<1>, StepOutput) {
        let Training { method, in_use, .. } = &self.training;
        let logits = self.model.logits(&batch.input, pass);
        let sizes = self.training.sizes(&[self.training.size(&batch)]);
        let terms = method.terms(&self.model, pass, sizes).unwrap_or_else(|error| {
            self.training.stop.stop(Some(&error.to_string()));
            Terms::none()
        });
        // One block of rows for each member that the adapters hold.
        let (answers, all) = (batch.answers().max(1), logits.dims()[0]);
        let targets = batch.targets.repeat(all / answers);
        let nll =
            negative_log_likelihood(logits.clone(), &targets).mul_scalar((all as f64).recip());
        let Terms { kl, kl_weight, divisor, penalty } = terms;
        let objective = Objective { nll, kl, penalty, kl_weight, divisor };
        let loss = objective.loss();
        let Objective { nll, kl, .. } = objective;
        let total_rank = ranks_in_use(&self.model, in_use).values().sum();
        (loss.clone(), StepOutput { loss, nll, kl, total_rank, logits, targets })
    }

    /// The update with what the method does around it.
    fn update(self, scheduled: f64, mut gradients: GradientsParams) -> Self {
        let Self { model, training } = self;
        let sizes = training.sizes(&std::mem::take(&mut *training.parts()));
        let named = take(&model, &mut gradients);
        let Training { mut method, in_use, optimizer, skip_next_update, mut step, .. } = training;
        let context = context(&training.config, &training.setup, training.n_train, scheduled);
        let mut state =
            TrainState { skip_next_update, in_use, ..TrainState::new(model, optimizer) };
        match update(&context, &mut state, &mut method, named, sizes) {
            Ok(_) => step += 1,
            Err(error) => training.stop.stop(Some(&error.to_string())),
        }
        let TrainState { model, optimizer, skip_next_update, in_use, .. } = state;
        let training = Training { method, step, skip_next_update, in_use, optimizer, ..training };
        Self { model, training }
    }
}

/// The context of a step whose learning rates have the factor `scheduled`.
fn context<'a>(
    config: &'a TrainConfig,
    setup: &'a Setup,
    n_train: usize,
    scheduled: f64,
) -> StepContext<'a> {
    StepContext { config, setup, part: Part::Whole, n_train, scheduled }
}

/// Takes the gradients of every parameter that `model` names out of `gradients`, flattened.
fn take(model: &impl NamedModule, gradients: &mut GradientsParams) -> NamedGradients {
    let mut named = NamedGradients::default();
    model.visit_parameters(&mut |p| {
        let (id, len) = (p.value.id(), p.value.len());
        let gradient = match p.value.shape().len() {
            1 => gradients.remove::<1>(id),
            2 => gradients.remove::<2>(id).map(|g| g.reshape([len])),
            _ => gradients.remove::<3>(id).map(|g| g.reshape([len])),
        };
        // Burn has gradients for factors of rank 0, too; there is nothing to update.
        if let Some(gradient) = gradient.filter(|_| len > 0) {
            named.values.insert(p.name.to_owned(), gradient);
        }
    });
    named
}

impl<M, T> TrainStep for Learning<M, T>
where
    M: Model + ModuleDisplay,
    M::Input: Send + 'static,
    T: Method<M> + Clone + Debug + Send,
{
    type Input = Batch<M::Input>;
    type Output = StepOutput;

    fn step(&self, batch: Batch<M::Input>) -> TrainOutput<StepOutput> {
        let training = &self.training;
        let part = {
            let mut parts = training.parts();
            parts.push(training.size(&batch));
            parts.len() - 1
        };
        let Training { config, setup, n_train, step, .. } = training;
        let pass = context(config, setup, *n_train, 1.0).pass(*step, part);
        let (loss, item) = self.output(batch, &pass);
        // Without a head nothing is left to learn once every rank is pruned.
        let grads = if loss.is_tracked() {
            GradientsParams::from_grads(loss.backward(), self)
        } else {
            GradientsParams::new()
        };
        TrainOutput { grads, item }
    }

    fn optimize(
        self,
        _optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        gradients: GradientsParams,
    ) -> Self {
        self.update(rate.base(), gradients)
    }

    fn optimize_multi(
        self,
        _optimizer: &mut ModuleOptimizer,
        _rate: ModuleLearningRate,
        _gradients: MultiGradientsParams,
    ) -> Self {
        let reason = "adapters are trained on one device: use `ExecutionStrategy::single`";
        self.training.stop.stop(Some(reason));
        self
    }
}

impl<M, T> InferenceStep for Learning<M, T>
where
    M: Model + ModuleDisplay,
    M::Input: Send + 'static,
    T: Method<M> + Clone + Debug + Send,
{
    type Input = Batch<M::Input>;
    type Output = StepOutput;

    fn step(&self, batch: Batch<M::Input>) -> StepOutput {
        self.output(batch, &Pass::mean()).1
    }
}
