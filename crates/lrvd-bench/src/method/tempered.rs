//! Temperature scaling on top of any method.
//!
//! `p = softmax(z / T)` with `T > 0` fitted to the negative log-likelihood of examples that were kept
//! out of training; one number for every number of draws. The classes' order never changes, so neither does accuracy. With
//! draws, `T` divides the logarithm of the averaged probabilities: what is calibrated is the answer
//! that is given.
//!
//! Where the loss of the held-out examples has no minimum (all of them are answered rightly, and the colder the
//! better, or the logits speak against the labels) the temperature is the bound of the search that it runs into, 0.01 or
//! 100. A score has no temperature: a regression task gets the answers of the method below as they are.
//!
//! Source: Guo et al. 2017, arXiv:1706.04599.

use std::collections::BTreeMap;

use burn::module::Module;
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::model::AdapterTargets;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::peft::PosteriorRun;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::{
    Attach, Logits, MethodState, Predict, RankChange, RankPolicy, RankSearch, Regularise,
    StepSizes, StepState, Terms,
};
use lrvd_core::baselines::temperature_scaling;
use lrvd_core::metrics::{log_softmax, mean_probability};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoClassifier;

use super::{Inputs, Method, PostHoc};
use crate::error::{Burn, Result};
use crate::eval::RunContext;

/// Share of the training examples that the temperature is fitted to: the tail, as published code
/// takes it.
const HOLDOUT: f64 = 0.2;

/// A method whose averaged probabilities are sharpened or softened by one number.
pub(super) struct Tempered {
    inner: Method,
    draws: Vec<usize>,
    /// Temperature by number of draws; the answers differ, and so does what calibrates them.
    temperatures: BTreeMap<usize, f64>,
}

impl Tempered {
    pub(super) fn new(inner: Method, draws: Vec<usize>) -> Self {
        Self { inner, draws, temperatures: BTreeMap::new() }
    }
}

/// Logarithms of the averaged probabilities of `logits`, of one member.
fn averaged(logits: Logits) -> Burn<Logits> {
    let logs = log_softmax(&logits.values, logits.width)?;
    let mean = mean_probability(&logs, logits.members().max(1), logits.width)?;
    let size = mean.len();
    // A probability that underflowed has the logarithm of its largest term, which is off by that of their number at most.
    // A floor instead would give an answer that is barred a probability again, once a temperature divides it.
    let largest = |i: usize| logs.iter().skip(i).step_by(size).copied().fold(f64::MIN, f64::max);
    let log = |(i, p): (usize, f64)| if p < f64::MIN_POSITIVE { largest(i) } else { p.ln() };
    let values = mean.into_iter().enumerate().map(log).collect();
    Ok(Logits { values, ..logits })
}

/// The averaged probabilities of `logits` under `temperature`, as logits of one member.
pub(crate) fn softened(logits: Logits, temperature: f64) -> Burn<Logits> {
    let mut logs = averaged(logits)?;
    logs.values.iter_mut().for_each(|value| *value /= temperature);
    Ok(logs)
}

impl Attach<AutoClassifier> for Tempered {
    fn adapter(&self) -> AdapterConfig {
        self.inner.adapter()
    }

    fn attach(
        &self,
        model: &mut AutoClassifier,
        targets: &AdapterTargets,
        seed: NoiseKey,
    ) -> Burn<()> {
        self.inner.attach(model, targets, seed)
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        self.inner.groups(settings)
    }

    fn posterior(&self, seed: u64) -> Option<PosteriorRun> {
        self.inner.posterior(seed)
    }
}

impl Regularise<AutoClassifier> for Tempered {
    fn scheme(&self) -> Scheme {
        self.inner.scheme()
    }

    fn rate_factor(&self, step: usize, scheduled: f64) -> f64 {
        self.inner.rate_factor(step, scheduled)
    }

    fn terms(&self, model: &AutoClassifier, pass: &Pass, sizes: StepSizes) -> Burn<Terms> {
        self.inner.terms(model, pass, sizes)
    }
}

impl RankPolicy<AutoClassifier> for Tempered {
    fn before_update(&mut self, state: StepState<'_, AutoClassifier>) -> Burn<Option<RankChange>> {
        self.inner.before_update(state)
    }

    fn after_update(&mut self, state: StepState<'_, AutoClassifier>) -> Burn<Option<RankChange>> {
        self.inner.after_update(state)
    }

    fn search(&self) -> Option<RankSearch> {
        self.inner.search()
    }

    fn refine(&mut self, model: &mut AutoClassifier, n_train: usize) -> Burn<()> {
        self.inner.refine(model, n_train)
    }

    fn ranks(&self, model: &AutoClassifier) -> BTreeMap<String, usize> {
        self.inner.ranks(model)
    }

    fn compact(&self, model: &mut AutoClassifier) {
        self.inner.compact(model);
    }

    fn state(&self) -> MethodState {
        self.inner.state()
    }

    fn restore(&mut self, model: &AutoClassifier, state: MethodState) -> Burn<()> {
        self.inner.restore(model, state)
    }
}

impl Predict<AutoClassifier> for Tempered {
    fn predict(&self, model: &AutoClassifier, inputs: &Inputs<'_>, draws: usize) -> Burn<Logits> {
        // Before the fit, as in evaluations during training, and for scores there is none.
        let Some(temperature) = self.temperatures.get(&draws) else {
            return self.inner.predict(model, inputs, draws);
        };
        softened(self.inner.predict(model, inputs, draws)?, *temperature)
    }

    /// Each number of draws has a separate temperature, if there is one.
    fn draws_nest(&self) -> bool {
        self.temperatures.is_empty() && self.inner.draws_nest()
    }
}

impl PostHoc for Tempered {
    fn holdout(&self) -> f64 {
        self.inner.holdout().max(HOLDOUT)
    }

    fn finish(&mut self, model: &mut AutoClassifier, context: &RunContext<'_>) -> Result<()> {
        self.inner.finish(model, context)?;
        if context.task.goal.is_regression() {
            return Ok(());
        }
        let model = model.clone().valid();
        let holdout = &context.task.holdout;
        let examples = context.examples(holdout);
        let inputs = context.inputs(&examples);
        let classes: Vec<usize> =
            holdout.iter().filter_map(|example| example.label.class()).collect();
        for draws in std::iter::once(0).chain(self.draws.iter().copied()) {
            let logs = averaged(self.inner.predict(&model, &inputs, draws)?)?;
            let fit = temperature_scaling(&logs.values, logs.width, &classes)?;
            self.temperatures.insert(draws, fit.temperature);
        }
        Ok(())
    }

    fn temperatures(&self) -> BTreeMap<usize, f64> {
        self.temperatures.clone()
    }

    /// The temperature of each number of draws, beside what the method below found.
    fn fitted(&self) -> BTreeMap<String, f64> {
        let mut found = self.inner.fitted();
        found.extend(self.temperatures.iter().map(|(k, &t)| (format!("temperature-k{k}"), t)));
        found
    }

    fn takes_other_answers(&self) -> bool {
        self.inner.takes_other_answers()
    }

    fn stored_parameters(&self) -> usize {
        self.inner.stored_parameters() + self.temperatures.len().max(1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_has_no_probability_gets_none_from_the_highest_temperature() {
        // Two members, of which each bars the third answer.
        let values = vec![1.0, 0.5, -1e6, 0.0, 2.0, -1e6];
        let logits = Logits::new(values, 1, 3);
        let soft = softened(logits, 100.0).unwrap().classes().unwrap().remove(0).probabilities;
        assert!(soft[2] == 0.0 && soft[0] > 0.49 && soft[1] > 0.49, "{soft:?}");
    }
}
