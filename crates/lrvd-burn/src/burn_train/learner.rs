//! A model with adapters as burn-train's `Learner` takes it.

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ModuleDisplay};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::train::{InferenceStep, Interrupter, TrainOutput, TrainStep};
use lrvd_core::schedule::BatchSize;

use super::metrics::StepOutput;
use crate::error::Error;
use crate::objective::Objective;
use crate::optimizer::{AdamW, NamedGradients};
use crate::sampling::Pass;
use crate::train::{
    Batch, Method, Model, Phase, RankMasks, Run, Setup, StepContext, StepRules, TrainConfig,
    TrainState, likelihood, ranks_in_use, update,
};

/// A model with adapters that burn-train's `Learner` trains by the rules of a method.
///
/// A step is that of [`Run::fit`]: the method's terms, noise from seed and step, changes of ranks, and
/// an update by [`AdamW`], whose moments are cut with the ranks. The optimizer that `Learner::new` takes is not used; its
/// learning rate or schedule is the factor of the rates in [`TrainConfig::groups`].
///
/// The objective of accumulated batches is that of a step of [`Run::fit`]: the mean likelihood of all their examples, and the
/// divergence once.
///
/// An interrupted run cannot be resumed bit for bit: burn-train's checkpoints hold no step, no moments, no position in the
/// data and no state of the method, and their tensors fit the ranks they were saved with.
///
/// A step of burn-train cannot fail. An error stops the run through the [`Interrupter`];
/// `LearningResult::interrupted` then has the reason.
#[derive(Module, Debug)]
pub struct Learning<M: Module, T: Clone + Debug + Send> {
    /// The model.
    pub model: M,
    #[module(skip)]
    training: Training<T>,
}

/// Method, settings and state of the training.
#[derive(Clone)]
struct Training<T> {
    method: T,
    config: TrainConfig,
    setup: Setup,
    n_train: usize,
    step: usize,
    skip_next_update: bool,
    in_use: RankMasks,
    optimizer: AdamW,
    /// Shared with the clones that burn-train makes for a step.
    pending: Arc<Mutex<Pending>>,
    stop: Interrupter,
}

/// The micro-batches since the last update: their number, their sizes together, and the gradients of their mean objective,
/// by example.
#[derive(Default)]
struct Pending {
    parts: usize,
    context: Option<StepContext>,
    gradients: NamedGradients,
}

impl Pending {
    /// Counts a micro-batch, and returns its number and its share of the examples so far.
    fn add(&mut self, own: StepContext) -> (usize, f64) {
        let step = self.context.get_or_insert(StepContext { examples: 0, tokens: 0, ..own });
        step.examples += own.examples;
        step.tokens += own.tokens;
        self.parts += 1;
        (self.parts - 1, own.examples as f64 / step.examples.max(1) as f64)
    }

    /// Adds the gradients of the last micro-batch, which has this share of the examples.
    fn accumulate(&mut self, mut gradients: NamedGradients, share: f64) {
        // Of the first one nothing is rounded.
        if self.parts > 1 {
            self.gradients.scale(1.0 - share);
            gradients.scale(share);
        }
        self.gradients.accumulate(gradients);
    }
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
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step on `batch` alone.
    fn context<I>(&self, batch: &Batch<I>) -> StepContext {
        let Self { n_train, step, .. } = *self;
        let steps = self.config.steps;
        let examples = batch.targets.answers();
        let tokens = batch.tokens;
        let first = BatchSize { examples, tokens, n_train };
        let pass = self.rules(1.0).pass(step, 0);
        StepContext { step, steps, examples, tokens, batch: first, n_train, pass }
    }

    fn rules(&self, scheduled: f64) -> StepRules<'_> {
        let Self { config, setup, n_train, .. } = self;
        StepRules { config, setup, phase: Phase::Whole, n_train: *n_train, scheduled }
    }
}

impl<M, T> Learning<M, T>
where
    M: Model,
    T: Method<M> + Clone + Debug + Send,
{
    /// The model and the method of `run`. The settings of `run` all apply but the schedule, evaluations and patience, which are
    /// burn-train's; `interrupter` is that of the training.
    pub fn new(run: Run<M, T>, n_train: usize, interrupter: Interrupter) -> Result<Self, Error> {
        let setup = run.setup()?;
        let Run { state, method, config, .. } = run;
        let training = Training {
            method: *method,
            config,
            setup,
            n_train,
            step: 0,
            skip_next_update: false,
            in_use: state.in_use,
            optimizer: state.optimizer,
            pending: Arc::default(),
            stop: interrupter,
        };
        Ok(Self { model: state.model, training })
    }

    fn output(&self, batch: &Batch<M::Input>, pass: &Pass) -> StepOutput {
        let Training { method, in_use, stop, .. } = &self.training;
        let step = StepContext { pass: *pass, ..self.training.context(batch) };
        let (nll, logits, targets) = likelihood(&self.model, batch, pass, step.examples);
        let likelihood = Objective::likelihood(nll.clone());
        let objective = method.objective(&self.model, &step, likelihood).unwrap_or_else(|error| {
            stop.stop(Some(&error.to_string()));
            Objective::likelihood(nll)
        });
        let loss = objective.loss();
        let Objective { nll, kl, .. } = objective;
        let total_rank = ranks_in_use(&self.model, in_use).values().sum();
        StepOutput { loss, nll, kl, total_rank, logits, targets }
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
        let training = &self.training;
        let (part, share) = training.pending().add(training.context(&batch));
        let item = self.output(&batch, &training.rules(1.0).pass(training.step, part));
        // Without a head nothing is left to learn once every rank is pruned.
        if item.loss.is_tracked() {
            let gradients = NamedGradients::collect(&self.model, &item.loss.backward());
            training.pending().accumulate(gradients, share);
        }
        TrainOutput { grads: GradientsParams::new(), item }
    }

    fn optimize(
        self,
        _optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        _gradients: GradientsParams,
    ) -> Self {
        let Pending { context, gradients, .. } = std::mem::take(&mut *self.training.pending());
        let Some(context) = context else { return self };
        let Self { model, training } = self;
        let Training { mut method, in_use, optimizer, skip_next_update, mut step, .. } = training;
        let rules = StepRules {
            config: &training.config,
            setup: &training.setup,
            phase: Phase::Whole,
            n_train: training.n_train,
            scheduled: rate.base(),
        };
        let mut state =
            TrainState { skip_next_update, in_use, ..TrainState::new(model, optimizer) };
        match update(&rules, &mut state, &mut method, gradients, context) {
            Ok(_) => step += 1,
            Err(error) => training.stop.stop(Some(&error.to_string())),
        }
        let TrainState { model, optimizer, skip_next_update, in_use, .. } = state;
        let training = Training { method, step, skip_next_update, in_use, optimizer, ..training };
        Self { model, training }
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
        self.output(&batch, &Pass::mean())
    }
}
