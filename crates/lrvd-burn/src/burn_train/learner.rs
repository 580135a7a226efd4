//! A model with adapters as burn-train's `Learner` takes it.

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ModuleDisplay};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::tensor::Tensor;
use burn::train::{InferenceStep, Interrupter, TrainOutput, TrainStep};
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::BatchSize;

use super::gradients;
use super::output::StepOutput;
use crate::error::Error;
use crate::model::{AdapterTargets, ranks};
use crate::objective::Objective;
use crate::optimizer::AdamW;
use crate::sampling::Pass;
use crate::train::{
    Batch, Method, Model, Run, StepContext, StepSizes, Terms, TrainConfig, TrainState,
    negative_log_likelihood, part_key, update,
};

/// A model with adapters that burn-train's `Learner` trains by the rules of a method.
///
/// A step is that of [`train::fit`](crate::train::fit): the method's terms, noise from seed and step, the rank policy, and
/// an update by [`AdamW`], whose moments are cut with the ranks. The optimizer that `Learner::new` takes is not used; its
/// learning rate or schedule is the factor of the rates in [`TrainConfig::groups`].
///
/// Gradients of accumulated batches are summed, and the divergence with them, so that the objective keeps its proportions.
///
/// An interrupted run cannot be resumed bit for bit: burn-train's checkpoints hold no step, no moments, no position in the
/// data and no state of the method, and their tensors fit the ranks they were saved with.
///
/// burn-train gives a step no way to fail. An error stops the run through the [`Interrupter`];
/// `LearningResult::interrupted` then has the reason.
#[derive(Module, Debug)]
pub struct Learning<M: Module, T: Clone + Debug + Send> {
    model: M,
    #[module(skip)]
    method: T,
    #[module(skip)]
    config: TrainConfig,
    #[module(skip)]
    n_train: usize,
    #[module(skip)]
    step: usize,
    #[module(skip)]
    skip_next_update: bool,
    #[module(skip)]
    optimizer: Optimizer,
    #[module(skip)]
    parts: Parts,
    #[module(skip)]
    stop: Stop,
}

/// The optimizer; burn-train prints the model, and this with it, at the end of a training.
#[derive(Clone)]
struct Optimizer(AdamW);

impl Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdamW").field(&self.0.state().len()).finish()
    }
}

/// The micro-batches since the last update, shared with the clones that burn-train makes for a step.
#[derive(Clone, Debug, Default)]
struct Parts(Arc<Mutex<Vec<BatchSize>>>);

/// How a step says that it failed.
#[derive(Clone)]
struct Stop(Interrupter);

impl Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.0.should_stop()).finish()
    }
}

impl Stop {
    fn because(&self, error: &Error) {
        self.0.stop(Some(&error.to_string()));
    }
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, Vec<BatchSize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M, T> Learning<M, T>
where
    M: Model,
    T: Method<M> + Clone + Debug + Send,
{
    /// Puts fresh adapters on the layers of `model` that `targets` name, and unfreezes its head. `config` says all but the
    /// schedule, evaluations and patience, which are burn-train's; `interrupter` is that of the training.
    pub fn new(
        model: M,
        method: T,
        targets: &AdapterTargets,
        config: &TrainConfig,
        n_train: usize,
        interrupter: Interrupter,
    ) -> Result<Self, Error> {
        if method.search().is_some() {
            return Err(Error::Undefined(
                "rank search: it cuts its ranks after the last step, which burn-train's loop does not do"
                    .to_owned(),
            ));
        }
        let Run { state, method, .. } = Run::new(model, method, targets, config)?;
        Ok(Self {
            model: state.model,
            method: *method,
            config: config.clone(),
            n_train,
            step: 0,
            skip_next_update: false,
            optimizer: Optimizer(state.optimizer),
            parts: Parts::default(),
            stop: Stop(interrupter),
        })
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, at the end.
    pub fn into_model(self) -> M {
        self.model
    }

    fn pass(&self, part: usize) -> Pass {
        let key = part_key(NoiseKey::new(self.config.seed).at_step(self.step as u32), part);
        let pass = Pass::sampled(self.method.scheme(), key);
        if self.config.model_dropout || self.method.adapter().dropout > 0.0 {
            pass.with_dropout(key)
        } else {
            pass
        }
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

    fn output(&self, batch: Batch<M::Input>, pass: &Pass, terms: Terms) -> (Tensor<1>, StepOutput) {
        let logits = self.model.logits(&batch.input, pass);
        // One block of rows for each member that the adapters hold.
        let (answers, all) = (batch.answers().max(1), logits.dims()[0]);
        let targets = batch.targets.repeat(all / answers);
        let nll =
            negative_log_likelihood(logits.clone(), &targets).mul_scalar((all as f64).recip());
        let Terms { kl, kl_weight, divisor, penalty } = terms;
        let objective = Objective { nll, kl, penalty, kl_weight, divisor };
        let loss = objective.loss();
        let Objective { nll, kl, .. } = objective;
        let total_rank = ranks(&self.model).iter().map(|(_, rank)| rank).sum();
        (loss.clone(), StepOutput { loss, nll, kl, total_rank, logits, targets })
    }

    /// The update with what the method does around it.
    fn update(mut self, rate: f64, mut gradients: GradientsParams) -> Self {
        let parts = std::mem::take(&mut *self.parts.lock());
        let (sizes, pass) = (self.sizes(&parts), self.pass(0));
        let named = gradients::take(&self.model, &mut gradients);
        let rate_factor = self.method.rate_factor(self.step, rate);
        let context = StepContext { config: &self.config, n_train: self.n_train, rate_factor };
        let mut state = TrainState::new(self.model, self.optimizer.0);
        state.skip_next_update = self.skip_next_update;
        match update(&context, &mut state, &mut self.method, named, &pass, sizes) {
            Ok(_) => self.step += 1,
            Err(error) => self.stop.because(&error),
        }
        let TrainState { model, optimizer, skip_next_update, .. } = state;
        Self { model, optimizer: Optimizer(optimizer), skip_next_update, ..self }
    }
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
        let n_train = self.n_train;
        let size = BatchSize { examples: batch.answers(), tokens: batch.tokens, n_train };
        let mut parts = self.parts.lock();
        let pass = self.pass(parts.len());
        parts.push(size);
        let sizes = self.sizes(&parts[parts.len() - 1..]);
        drop(parts);
        let terms = self.method.terms(&self.model, &pass, sizes).unwrap_or_else(|error| {
            self.stop.because(&error);
            Terms::none()
        });
        let (loss, item) = self.output(batch, &pass, terms);
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
        self.stop
            .0
            .stop(Some("adapters are trained on one device: use `ExecutionStrategy::single`"));
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
        let n_train = self.n_train;
        let size = BatchSize { examples: batch.answers(), tokens: batch.tokens, n_train };
        let (pass, sizes) = (Pass::mean(), self.sizes(&[size]));
        let terms = self.method.terms(&self.model, &pass, sizes).unwrap_or_else(|error| {
            self.stop.because(&error);
            Terms::none()
        });
        self.output(batch, &pass, terms).1
    }
}
