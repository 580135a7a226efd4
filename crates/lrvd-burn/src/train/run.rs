//! A run from the first step to the saved adapter.

use lrvd_core::noise::NoiseKey;

use super::batches::Batches;
use super::checkpoint::Checkpoints;
use super::config::{Plan, TrainConfig};
use super::fit::{Observer, Outcome, fit};
use super::inputs::Inputs;
use super::method::Method;
use super::model::Model;
use super::predict::Logits;
use super::state::TrainState;
use crate::error::Error;
use crate::model::{AdapterTargets, check_scheme};
use crate::optimizer::AdamW;
use crate::parameters::Role;

/// A model with what trains it.
pub struct Run<M, T: ?Sized> {
    /// Everything that changes.
    pub state: TrainState<M>,
    /// The method.
    pub method: Box<T>,
    plan: Plan,
}

impl<M: Model, T: Method<M>> Run<M, T> {
    /// Puts fresh adapters on the layers of `model` that `targets` name, and unfreezes its head.
    pub fn new(
        model: M,
        method: T,
        targets: &AdapterTargets,
        config: &TrainConfig,
    ) -> Result<Self, Error> {
        Self::with(model, Box::new(method), targets, config)
    }
}

impl<M: Model, T: Method<M> + ?Sized> Run<M, T> {
    /// As [`Run::new`], of a method whose type is not known.
    pub fn with(
        mut model: M,
        method: Box<T>,
        targets: &AdapterTargets,
        config: &TrainConfig,
    ) -> Result<Self, Error> {
        let plan = config.check()?;
        let groups = method.groups(&config.groups);
        groups.check()?;
        method.attach(&mut model, targets, NoiseKey::new(config.seed))?;
        check_scheme(&model, method.scheme())?;
        model.visit_parameters_mut(&mut |p| match p.role {
            Role::Head => p.value.set_trainable(true),
            Role::Pooler => p.value.set_trainable(config.train_pooler),
            _ => {}
        });
        let state = TrainState::new(model, AdamW::new(config.optimizer, groups));
        Ok(Self { state, method, plan })
    }

    /// The settings.
    pub fn config(&self) -> &TrainConfig {
        self.plan.config()
    }

    /// Steps of the whole run: those of the settings, and those that follow a search for ranks.
    pub fn steps(&self) -> usize {
        self.config().steps + self.method.search().map_or(0, |search| search.refine_steps)
    }

    /// Factor of the KL that a posterior was trained with in the end; 0 of a method without one.
    pub fn kl_weight(&self) -> f64 {
        self.method.posterior(self.config().seed).map_or(0.0, |run| run.kl_weight)
    }

    /// Continues from the newest checkpoint; `false` if there is none.
    pub fn resume(&mut self, checkpoints: &Checkpoints) -> Result<bool, Error> {
        checkpoints.resume(&mut self.state, &mut *self.method)
    }

    /// Trains to the last step, or until `observer` asks to stop.
    pub fn fit<B, O>(&mut self, batches: &mut B, observer: &mut O) -> Result<Outcome, O::Error>
    where
        B: Batches<Input = M::Input>,
        O: Observer<M, T>,
    {
        fit(&self.plan, &mut self.state, &mut *self.method, batches, observer)
    }

    /// The model's answers to `inputs`: at the mean for 0 draws, else at as many draws.
    pub fn predict(&self, inputs: &Inputs<'_, M::Input>, draws: usize) -> Result<Logits, Error> {
        self.method.predict(&self.state.model.clone().valid(), inputs, draws)
    }
}
