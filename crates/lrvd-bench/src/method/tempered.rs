//! Temperature scaling on top of any method.
//!
//! `p = softmax(z / T)` with `T > 0` fitted to the negative log-likelihood of examples that were kept
//! out of training; one number for every number of draws. The classes' order never changes, so neither does accuracy. With
//! draws, `T` divides the logarithm of the averaged probabilities: what is calibrated is the answer
//! that is given.
//!
//! Where the held-out examples do not determine a temperature (all of them are answered rightly, and
//! the colder the better, or the logits speak against the labels) it stays 1. A score has no
//! temperature: a regression task gets the answers of the method below as they are.
//!
//! Source: Guo et al. 2017, arXiv:1706.04599.

use std::collections::BTreeMap;

use burn::module::Module;
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::model::AdapterTargets;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::baselines::temperature_scaling;
use lrvd_core::metrics::{log_softmax, mean_probability};
use lrvd_core::noise::NoiseKey;

use super::{
    Method, MethodError, MethodState, RankChange, Regulariser, StepSizes, StepState, Tuning,
};
use crate::backbone::TaskModel;
use crate::eval::Inputs;
use crate::eval::RunContext;
use crate::settings::ExperimentConfig;

/// Share of the training examples that the temperature is fitted to: the tail, as published code
/// takes it.
const HOLDOUT: f64 = 0.2;

/// A method whose averaged probabilities are sharpened or softened by one number.
pub(super) struct Tempered {
    inner: Method,
    /// Temperature by number of draws; the answers differ, and so does what calibrates them.
    temperatures: BTreeMap<usize, f64>,
}

impl Tempered {
    pub(super) fn new(inner: Method) -> Self {
        Self { inner, temperatures: BTreeMap::new() }
    }

    /// Logarithms of the averaged probabilities, `[n, labels]`.
    fn averaged(
        &self,
        model: &TaskModel,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Vec<f64>, MethodError> {
        let labels = inputs.batching.labels;
        let logits = self.inner.predict(model, inputs, draws)?;
        let members = logits.len() / (inputs.examples.len() * labels).max(1);
        let mean = mean_probability(&log_softmax(&logits, labels)?, members.max(1), labels)?;
        // A probability that underflowed has no logarithm to scale.
        Ok(mean.into_iter().map(|p| p.max(f64::MIN_POSITIVE).ln()).collect())
    }
}

impl Tuning for Tempered {
    fn adapter(&self) -> AdapterConfig {
        self.inner.adapter()
    }

    fn attach(
        &self,
        model: &mut TaskModel,
        targets: &AdapterTargets,
        seed: NoiseKey,
    ) -> Result<(), MethodError> {
        self.inner.attach(model, targets, seed)
    }

    fn is_variational(&self) -> bool {
        self.inner.is_variational()
    }

    fn groups(&self, config: &ExperimentConfig) -> ParameterGroups {
        self.inner.groups(config)
    }

    fn training_scheme(&self) -> Scheme {
        self.inner.training_scheme()
    }

    fn members(&self) -> usize {
        self.inner.members()
    }

    fn regularise(
        &self,
        model: &TaskModel,
        pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        self.inner.regularise(model, pass, sizes)
    }

    fn rate_factor(&self, step: usize, scheduled: f64) -> f64 {
        self.inner.rate_factor(step, scheduled)
    }

    fn before_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        self.inner.before_update(state)
    }

    fn after_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        self.inner.after_update(state)
    }

    fn ranks(&self, model: &TaskModel) -> BTreeMap<String, usize> {
        self.inner.ranks(model)
    }

    fn compact(&self, model: &mut TaskModel) {
        self.inner.compact(model);
    }

    fn holdout(&self) -> f64 {
        self.inner.holdout().max(HOLDOUT)
    }

    fn is_post_hoc(&self) -> bool {
        true
    }

    fn finish(
        &mut self,
        model: &mut TaskModel,
        context: &RunContext<'_>,
    ) -> Result<(), MethodError> {
        self.inner.finish(model, context)?;
        if context.task.goal.is_regression() {
            return Ok(());
        }
        let model = model.clone().valid();
        let inputs = Inputs::holdout(context);
        let classes: Vec<usize> =
            inputs.examples.iter().filter_map(|example| example.label.class()).collect();
        let numbers = std::iter::once(0).chain(self.inner.draws(context.config));
        for draws in numbers.collect::<Vec<_>>() {
            let logs = self.averaged(&model, &inputs, draws)?;
            let fit = temperature_scaling(&logs, inputs.batching.labels, &classes)?;
            self.temperatures.insert(draws, if fit.at_bound { 1.0 } else { fit.temperature });
        }
        Ok(())
    }

    /// The temperature of each number of draws, beside what the method below found.
    fn fitted(&self) -> BTreeMap<String, f64> {
        let mut found = self.inner.fitted();
        found.extend(self.temperatures.iter().map(|(k, &t)| (format!("temperature-k{k}"), t)));
        found
    }

    fn draws(&self, config: &ExperimentConfig) -> Vec<usize> {
        self.inner.draws(config)
    }

    fn predict(
        &self,
        model: &TaskModel,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Vec<f64>, MethodError> {
        // Before the fit, as in evaluations during training, and for scores there is none.
        let Some(temperature) = self.temperatures.get(&draws) else {
            return self.inner.predict(model, inputs, draws);
        };
        let logs = self.averaged(model, inputs, draws)?;
        Ok(logs.into_iter().map(|value| value / temperature).collect())
    }

    /// Each number of draws has a temperature of its own, unless there is none.
    fn draws_nest(&self) -> bool {
        self.temperatures.is_empty() && self.inner.draws_nest()
    }

    fn stored_parameters(&self) -> usize {
        self.inner.stored_parameters() + self.temperatures.len().max(1)
    }

    fn state(&self) -> MethodState {
        self.inner.state()
    }

    fn restore(&mut self, model: &TaskModel, state: MethodState) -> Result<(), MethodError> {
        self.inner.restore(model, state)
    }
}
