//! Gradients by parameter name: accumulation, global norm, clipping.

use std::collections::BTreeMap;

use burn::tensor::{Gradients, Tensor};

use crate::model::NamedModule;

/// Added to the norm before dividing, as PyTorch's `clip_grad_norm_` does.
const NORM_EPSILON: f64 = 1e-6;

/// Gradients of the trainable parameters, flattened, by checkpoint name.
#[derive(Clone, Debug, Default)]
pub struct NamedGradients {
    values: BTreeMap<String, Tensor<1>>,
}

impl NamedGradients {
    /// Takes the gradients of every trainable parameter of `model` out of `gradients`.
    ///
    /// Parameters that the loss does not reach are absent, and the optimizer skips them.
    pub fn collect(model: &impl NamedModule, gradients: &Gradients) -> Self {
        let mut values = BTreeMap::new();
        model.visit_parameters(&mut |p| {
            if !p.value.is_empty()
                && let Some(gradient) = p.value.gradient(gradients)
            {
                values.insert(p.name.to_owned(), gradient);
            }
        });
        Self { values }
    }

    /// Adds `other`, as for one more micro-batch.
    pub fn accumulate(&mut self, other: Self) {
        for (name, gradient) in other.values {
            let sum = match self.values.remove(&name) {
                Some(present) => present + gradient,
                None => gradient,
            };
            self.values.insert(name, sum);
        }
    }

    /// Multiplies every gradient by `factor`, as after accumulating several micro-batches.
    pub fn scale(&mut self, factor: f64) {
        for gradient in self.values.values_mut() {
            *gradient = gradient.clone().mul_scalar(factor);
        }
    }

    /// The gradient of `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor<1>> {
        self.values.get(name)
    }

    /// Forgets the gradients whose name satisfies `drop`.
    pub fn remove_where(&mut self, drop: impl Fn(&str) -> bool) {
        self.values.retain(|name, _| !drop(name));
    }

    /// Replaces the gradient of the parameter `name` by what `cut` leaves of it.
    pub(crate) fn cut(&mut self, name: &str, cut: impl Fn(Tensor<1>) -> Option<Tensor<1>>) {
        let gradient = self.values.remove(name);
        if let Some(gradient) = gradient.and_then(|gradient| cut(gradient.without_autodiff())) {
            self.values.insert(name.to_owned(), gradient);
        }
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// `sqrt(Σ g²)` over all gradients; reads one number back from the device.
    ///
    /// The squares of a tensor are summed on the device, the tensors in f64 on the host.
    pub fn global_norm(&self) -> f64 {
        let sums: Vec<Tensor<1>> = self.values.values().map(|g| g.clone().square().sum()).collect();
        if sums.is_empty() {
            return 0.0;
        }
        let sums = Tensor::cat(sums, 0).into_data().iter::<f64>().collect::<Vec<_>>();
        sums.iter().sum::<f64>().sqrt()
    }

    /// Scales all gradients by `min(1, max_norm / (norm + 1e-6))` and returns that coefficient.
    pub fn clip(&mut self, norm: f64, max_norm: f64) -> f64 {
        let coefficient = (max_norm / (norm + NORM_EPSILON)).min(1.0);
        if coefficient < 1.0 {
            self.scale(coefficient);
        }
        coefficient
    }
}
