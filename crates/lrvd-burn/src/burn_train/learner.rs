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
use super::moments::{Positions, Shapes, reset};
use super::output::StepOutput;
use crate::error::Error;
use crate::model::{AdapterTargets, check_scheme, ranks};
use crate::objective::Objective;
use crate::parameters::Role;
use crate::sampling::Pass;
use crate::train::{
    Batch, Method, Model, RankChange, StepSizes, StepState, Terms, check_seed,
    negative_log_likelihood, part_key,
};

/// What burn-train does not tell its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnerPlan {
    /// Seed of noise and dropout, at most [`MAX_SEED`](crate::train::MAX_SEED).
    pub seed: u64,
    /// Optimiser steps of the whole run.
    pub steps: usize,
    /// Training examples.
    pub n_train: usize,
    /// Largest global gradient norm; `None` never clips.
    pub gradient_clip: Option<f64>,
    /// Whether the model's own dropout is on in training.
    pub model_dropout: bool,
}

/// A model with adapters that burn-train's `Learner` trains by the rules of a method.
///
/// A training step adds the method's terms to the likelihood and draws its noise from seed and step,
/// as [`train::fit`](crate::train::fit) does; around an update the rank policy has its say, and what
/// it cuts is cut out of the state of Burn's optimiser too. Validation answers at the posterior mean.
///
/// What stays burn-train's stays so: gradients of accumulated batches are summed, and the divergence
/// with them, so that the objective keeps its proportions; learning rates come from Burn's scheduler
/// and its groups.
///
/// A run that was interrupted cannot be resumed bit for bit: burn-train's checkpoints hold no step,
/// no position in the data, no state of the method, and their tensors fit the ranks they were saved
/// with. [`train::fit`](crate::train::fit) is for that.
///
/// When ranks go, Burn puts the optimiser's state together on its default device: set
/// `BURN_DEVICE=flex` for a CPU run of a program that has a GPU backend built in.
///
/// burn-train gives a step no way to fail. An error stops the run through the [`Interrupter`];
/// `LearningResult::interrupted` then has the reason.
#[derive(Module, Debug)]
pub struct Learning<M: Module, T: Clone + Debug + Send> {
    model: M,
    #[module(skip)]
    method: T,
    #[module(skip)]
    plan: LearnerPlan,
    #[module(skip)]
    step: usize,
    #[module(skip)]
    skip_next_update: bool,
    #[module(skip)]
    positions: Positions,
    #[module(skip)]
    parts: Parts,
    #[module(skip)]
    stop: Stop,
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
    /// Puts fresh adapters on the layers of `model` that `targets` name, and unfreezes its head;
    /// `interrupter` is that of the training.
    pub fn new(
        mut model: M,
        method: T,
        targets: &AdapterTargets,
        plan: LearnerPlan,
        interrupter: Interrupter,
    ) -> Result<Self, Error> {
        if method.search().is_some() {
            return Err(Error::Undefined(
                "rank search: it cuts its ranks after the last step, which burn-train's loop does not do"
                    .to_owned(),
            ));
        }
        check_seed(plan.seed)?;
        method.attach(&mut model, targets, NoiseKey::new(plan.seed))?;
        check_scheme(&model, method.scheme())?;
        model.visit_parameters_mut(&mut |p| {
            if p.role == Role::Head {
                p.value.set_trainable(true);
            }
        });
        Ok(Self {
            positions: Positions::new(&model)?,
            model,
            method,
            plan,
            step: 0,
            skip_next_update: false,
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
        let key = part_key(NoiseKey::new(self.plan.seed).at_step(self.step as u32), part);
        let pass = Pass::sampled(self.method.scheme(), key);
        if self.plan.model_dropout || self.method.adapter().dropout > 0.0 {
            pass.with_dropout(key)
        } else {
            pass
        }
    }

    fn sizes(&self, parts: &[BatchSize]) -> StepSizes {
        let n_train = self.plan.n_train;
        let none = BatchSize { examples: 0, tokens: 0, n_train };
        StepSizes {
            step: self.step,
            steps: self.plan.steps,
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
    fn update(
        &mut self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut all: GradientsParams,
    ) -> Result<(), Error> {
        let parts = std::mem::take(&mut *self.parts.lock());
        let (sizes, pass) = (self.sizes(&parts), self.pass(0));
        let mut named = gradients::take(&self.model, &mut all);
        let skipped = std::mem::take(&mut self.skip_next_update);
        let shapes = Shapes::of(&self.model);
        let before = self.method.before_update(StepState {
            sizes,
            pass: &pass,
            rate_factor: 1.0,
            model: &mut self.model,
            optimizer: &mut self.positions.0,
            gradients: &mut named,
        })?;
        let skips = self.follow(&shapes, before.as_ref(), optimizer)?;
        if let Some(clip) = self.plan.gradient_clip {
            let (name, step, value) = ("gradient norm", self.step, named.global_norm());
            if !value.is_finite() {
                return Err(Error::Diverged { name, step, value });
            }
            named.clip(value, clip);
        }
        gradients::put(&self.model, &named, &mut all);
        let rate = if skipped || skips { 0.0.into() } else { rate };
        self.model = optimizer.step(rate, self.model.clone(), all);
        let shapes = Shapes::of(&self.model);
        let after = self.method.after_update(StepState {
            sizes,
            pass: &pass,
            rate_factor: 1.0,
            model: &mut self.model,
            optimizer: &mut self.positions.0,
            gradients: &mut named,
        })?;
        self.skip_next_update = self.follow(&shapes, after.as_ref(), optimizer)?;
        self.step += 1;
        Ok(())
    }

    /// Does to Burn's optimiser what the policy did; whether the next update has rate 0.
    fn follow(
        &mut self,
        shapes: &Shapes,
        change: Option<&RankChange>,
        optimizer: &mut ModuleOptimizer,
    ) -> Result<bool, Error> {
        let Some(change) = change else { return Ok(false) };
        if change.skip_next_update {
            reset(optimizer);
        } else if change.after != change.before {
            shapes.cut(&self.model, &self.positions, optimizer).map_err(Error::other)?;
        }
        self.positions = Positions::new(&self.model)?;
        Ok(change.skip_next_update)
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
        let n_train = self.plan.n_train;
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
        mut self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        gradients: GradientsParams,
    ) -> Self {
        if let Err(error) = self.update(optimizer, rate, gradients) {
            self.stop.because(&error);
        }
        self
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
        let n_train = self.plan.n_train;
        let size = BatchSize { examples: batch.answers(), tokens: batch.tokens, n_train };
        let (pass, sizes) = (Pass::mean(), self.sizes(&[size]));
        let terms = self.method.terms(&self.model, &pass, sizes).unwrap_or_else(|error| {
            self.stop.because(&error);
            Terms::none()
        });
        self.output(batch, &pass, terms).1
    }
}
