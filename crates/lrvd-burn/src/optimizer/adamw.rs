//! AdamW with decoupled weight decay, as `torch.optim.AdamW` computes it.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_core::error::quoted;
use serde::{Deserialize, Serialize};

use super::gradients::NamedGradients;
use super::groups::ParameterGroups;
use crate::adapter::RankCut;
use crate::error::Error;
use crate::model::NamedModule;

/// Hyper-parameters shared by all groups; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl AdamWConfig {
    /// Checks that both averages forget and that nothing is subtracted from the denominator.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        let below_one = 1.0 - f64::EPSILON;
        for (name, value, high) in [
            ("optimizer.beta1", self.beta1, below_one),
            ("optimizer.beta2", self.beta2, below_one),
            ("optimizer.epsilon", self.epsilon, 1.0),
        ] {
            if !(0.0..=high).contains(&value) {
                return Err(lrvd_core::Error::OutOfRange { name, value, low: 0.0, high });
            }
        }
        Ok(())
    }
}

/// First and second moment of one parameter, flattened, and its own step count.
#[derive(Clone, Debug)]
pub struct Moments {
    /// `m`.
    pub first: Tensor<1>,
    /// `v`.
    pub second: Tensor<1>,
    /// Updates so far.
    pub steps: u64,
}

/// The optimiser.
///
/// # Formula
///
/// ```text
/// p ← p − η·wd·p
/// m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²
/// p ← p − η/(1 − β1^t) · m / (sqrt(v)/sqrt(1 − β2^t) + ε)        t counts from 1
/// ```
///
/// A parameter without a gradient is skipped: no decay, no count.
///
/// # References
///
/// Loshchilov and Hutter 2019, arXiv:1711.05101.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    groups: ParameterGroups,
    state: BTreeMap<String, Moments>,
}

impl AdamW {
    /// An optimiser without state.
    pub fn new(config: AdamWConfig, groups: ParameterGroups) -> Self {
        Self { config, groups, state: BTreeMap::new() }
    }

    /// One update with every group's rate multiplied by `factor` (the schedule).
    pub fn step(&mut self, model: &mut impl NamedModule, gradients: &NamedGradients, factor: f64) {
        let AdamWConfig { beta1, beta2, epsilon } = self.config;
        model.visit_parameters_mut(&mut |p| {
            let Some(gradient) = gradients.get(p.name) else { return };
            if !p.value.is_trainable() {
                return;
            }
            let g = gradient.clone().without_autodiff();
            let rates = self.groups.rates(p.group, p.value.shape().len());
            let rate = rates.learning_rate * factor;
            let (first, second, steps) = match self.state.remove(p.name) {
                Some(s) => (s.first.mul_scalar(beta1), s.second.mul_scalar(beta2), s.steps + 1),
                None => (g.zeros_like(), g.zeros_like(), 1),
            };
            let first = first + g.clone().mul_scalar(1.0 - beta1);
            let second = second + g.square().mul_scalar(1.0 - beta2);
            let t = steps as f64;
            let size = rate / (1.0 - beta1.powf(t));
            let root = (1.0 - beta2.powf(t)).sqrt();
            let denominator = second.clone().sqrt().div_scalar(root).add_scalar(epsilon);
            let mut value = p.value.flat();
            if rates.weight_decay != 0.0 {
                value = value.mul_scalar(1.0 - rate * rates.weight_decay);
            }
            value = value - (first.clone() / denominator).mul_scalar(size);
            p.value.set_flat(value);
            self.state.insert(p.name.to_owned(), Moments { first, second, steps });
        });
    }

    /// The groups.
    pub fn groups(&self) -> &ParameterGroups {
        &self.groups
    }

    /// Forgets every moment and count.
    pub fn reset(&mut self) {
        self.state.clear();
    }

    /// Forgets moments and counts of the parameters that `which` names.
    pub(crate) fn forget(&mut self, which: impl Fn(&str) -> bool) {
        self.state.retain(|name, _| !which(name));
    }

    /// State by parameter name.
    pub fn state(&self) -> &BTreeMap<String, Moments> {
        &self.state
    }

    /// Replaces the state.
    pub fn restore(
        &mut self,
        model: &impl NamedModule,
        state: BTreeMap<String, Moments>,
    ) -> Result<(), Error> {
        let mut lengths = BTreeMap::new();
        model.visit_parameters(&mut |p| {
            if p.value.is_trainable() {
                lengths.insert(p.name.to_owned(), p.value.len());
            }
        });
        let unexpected: Vec<String> = state
            .iter()
            .filter(|(name, m)| {
                let len = lengths.get(*name).copied();
                len != Some(m.first.dims()[0]) || len != Some(m.second.dims()[0])
            })
            .map(|(name, _)| name.clone())
            .collect();
        if !unexpected.is_empty() {
            return Err(Error::State(format!(
                "the optimizer state does not fit the model: unexpected {}",
                quoted(unexpected)
            )));
        }
        self.state = state;
        Ok(())
    }

    /// Cuts the moments along with their parameters.
    pub(crate) fn cut(&mut self, cuts: &[RankCut<'_>]) {
        for cut in cuts {
            let Some(moments) = self.state.remove(&cut.name) else { continue };
            let kept = cut.apply(moments.first).zip(cut.apply(moments.second));
            if let Some((first, second)) = kept {
                let moments = Moments { first, second, steps: moments.steps };
                self.state.insert(cut.name.clone(), moments);
            }
        }
    }
}
