//! AdamW over named parameters, with state that pruning can cut and a checkpoint can hold.
//!
//! Burn's own optimizer keeps its state by random parameter ids behind a byte record, holds its
//! betas in f32 and clips per tensor. Here the state is keyed by checkpoint name, scalars are f64
//! as in PyTorch, and the gradient norm is global; a prune slices the moments along the pruned
//! axis, and a resumed run continues bit for bit.

mod gradients;

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_core::error::{check_range, quoted};
use serde::{Deserialize, Serialize};

pub use self::gradients::NamedGradients;

use crate::error::Error;
use crate::model::NamedModule;
use crate::ops::{AdamWUpdate, moving_average};
use crate::parameters::Group;

/// Hyper-parameters shared by all groups; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
        check_range("optimizer.beta1", self.beta1, 0.0..1.0)?;
        check_range("optimizer.beta2", self.beta2, 0.0..1.0)?;
        check_range("optimizer.epsilon", self.epsilon, 0.0..=1.0)
    }
}

/// Upper bound on plausible rates and decays.
const LARGEST: f64 = 1e6;

/// Learning rate and decoupled weight decay of one group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRates {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decoupled decay per unit of learning rate.
    pub weight_decay: f64,
}

/// Rates of every role.
///
/// | Group | Parameters | Decay |
/// |---|---|---|
/// | `adapter` | factors A and B, AdaLoRA's E | usually 0 |
/// | `log_variance` | posterior parameters | 0 |
/// | `pooler` | matrices of the pooler, at the adapter's rate | usually 1e-2 |
/// | `head` | matrices of the task head | usually 1e-2 |
/// | `pooler`, `head`, vectors | biases and norm scales | always 0 |
/// | `backbone` | unfrozen backbone weights, as `head` | matrices only |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterGroups {
    /// Adapter factors.
    pub adapter: GroupRates,
    /// Posterior parameters.
    pub log_variance: GroupRates,
    /// Pooler.
    pub pooler: GroupRates,
    /// Task head.
    pub head: GroupRates,
    /// Backbone weights, if any are trained.
    pub backbone: GroupRates,
}

impl ParameterGroups {
    /// Checks that rates and decays are finite and at least 0.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        for (rate, decay, group) in [
            ("adapter.learning_rate", "adapter.weight_decay", self.adapter),
            ("log_variance.learning_rate", "log_variance.weight_decay", self.log_variance),
            ("pooler.learning_rate", "pooler.weight_decay", self.pooler),
            ("head.learning_rate", "head.weight_decay", self.head),
            ("backbone.learning_rate", "backbone.weight_decay", self.backbone),
        ] {
            check_range(rate, group.learning_rate, 0.0..=LARGEST)?;
            check_range(decay, group.weight_decay, 0.0..=LARGEST)?;
        }
        Ok(())
    }

    /// The rates of a parameter with `role` and `dimensions` axes.
    pub fn rates(&self, group: Group, dimensions: usize) -> GroupRates {
        let rates = match group {
            Group::AdapterMean => self.adapter,
            Group::LogVariance => GroupRates { weight_decay: 0.0, ..self.log_variance },
            Group::Pooler => self.pooler,
            Group::Head => self.head,
            Group::Backbone => self.backbone,
        };
        let exempt =
            matches!(group, Group::Pooler | Group::Head | Group::Backbone) && dimensions < 2;
        GroupRates { weight_decay: if exempt { 0.0 } else { rates.weight_decay }, ..rates }
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

/// The optimizer.
///
/// # Formula
///
/// ```text
/// p ← p − η·wd·p
/// m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²
/// p ← p − η/(1 − β1^t) · m / (sqrt(v)/sqrt(1 − β2^t) + ε)        t counts from 1
/// ```
///
/// The rate η of the factor B of an adapter is multiplied by a further number, that of LoRA+.
///
/// A parameter without a gradient is skipped: no decay, no count. One that was cut without this optimizer starts anew.
///
/// # References
///
/// Loshchilov and Hutter 2019, arXiv:1711.05101; LoRA+: Hayou et al. 2024, arXiv:2402.12354.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    groups: ParameterGroups,
    b_factor: f64,
    state: BTreeMap<String, Moments>,
}

impl AdamW {
    /// An optimizer without state.
    pub fn new(config: AdamWConfig, groups: ParameterGroups) -> Self {
        Self { config, groups, b_factor: 1.0, state: BTreeMap::new() }
    }

    /// The rate of the factor B as a multiple of that of A.
    #[must_use]
    pub fn with_b_factor(self, b_factor: f64) -> Self {
        Self { b_factor, ..self }
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
            let is_b = p.group == Group::AdapterMean && p.name.ends_with(".lora_B");
            let rate = rates.learning_rate * factor * if is_b { self.b_factor } else { 1.0 };
            let fits = |moments: &Moments| moments.first.dims() == g.dims();
            let known = self.state.remove(p.name).filter(fits);
            let Moments { first, second, steps } = match known {
                Some(moments) => moments,
                None => Moments { first: g.zeros_like(), second: g.zeros_like(), steps: 0 },
            };
            let first = moving_average(first, g.clone(), beta1, false);
            let second = moving_average(second, g, beta2, true);
            let steps = steps + 1;
            let t = steps as f64;
            let update = AdamWUpdate {
                shrink: 1.0 - rate * rates.weight_decay,
                size: rate / (1.0 - beta1.powf(t)),
                root: (1.0 - beta2.powf(t)).sqrt(),
                epsilon,
            };
            let value = update.apply(p.value.flat(), first.clone(), second.clone());
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
        let is_unexpected = |(name, moments): &(&String, &Moments)| {
            let found = [&moments.first, &moments.second].map(|m| Some(m.dims()[0]));
            found != [lengths.get(*name).copied(); 2]
        };
        let mut unexpected = state.iter().filter(is_unexpected).map(|(name, _)| name).peekable();
        if unexpected.peek().is_some() {
            let what = format!("does not fit the model: unexpected {}", quoted(unexpected));
            return Err(Error::Checkpoint { entry: "optimizer".to_owned(), what });
        }
        self.state = state;
        Ok(())
    }

    /// Replaces the moments of the parameter `name` by what `cut` leaves of them.
    pub(crate) fn cut(&mut self, name: &str, cut: impl Fn(Tensor<1>) -> Option<Tensor<1>>) {
        let Some(Moments { first, second, steps }) = self.state.remove(name) else { return };
        if let Some((first, second)) = cut(first).zip(cut(second)) {
            self.state.insert(name.to_owned(), Moments { first, second, steps });
        }
    }
}
