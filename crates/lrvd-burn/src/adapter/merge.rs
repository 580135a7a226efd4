//! Merging into the base weight.

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{FloatDType, Tensor};

use super::kind::{Adapter, Extension, LowRankAdapter};
use super::linear::AdaptedLinear;

impl AdaptedLinear {
    /// Whether the update at the mean is one matrix, the same for every input: true but for
    /// contextual adapters and member ensembles.
    pub fn has_dense_mean(&self) -> bool {
        self.adapter().is_none_or(Adapter::has_dense_mean)
    }

    /// The dense update `c·A·diag(E)·B` at the posterior mean, `[d_input, d_output]`; `None` without
    /// an adapter, and if the mean is [not one matrix](AdaptedLinear::has_dense_mean).
    pub fn delta(&self) -> Option<Tensor<2>> {
        let adapter = self.low_rank().filter(|_| self.has_dense_mean())?;
        let b = adapter.b.val().without_autodiff();
        Some(scaled_a(adapter).matmul(b).mul_scalar(adapter.scaling))
    }

    /// The layer as a plain linear one, with the posterior mean of the update in its weight.
    ///
    /// The sum is made in the type of the update and rounded once to that of the weight.
    ///
    /// # Panics
    ///
    /// If the mean is [not one matrix](AdaptedLinear::has_dense_mean): no weight can take it in.
    #[must_use]
    pub fn merge(self) -> Linear {
        assert!(
            self.has_dense_mean(),
            "the adapter has no dense mean: check `AdaptedLinear::has_dense_mean` first"
        );
        let weight = self.weight.base().without_autodiff().dequantize();
        let weight = match self.delta() {
            Some(delta) => {
                let [stored, wide] = [&weight, &delta].map(Tensor::dtype).map(FloatDType::from);
                (weight.cast(wide) + delta).cast(stored)
            }
            None => weight,
        };
        let bias = self.bias.map(|b| b.val().without_autodiff());
        let [d_input, d_output] = weight.dims();
        let linear = LinearConfig::new(d_input, d_output).with_bias(bias.is_some());
        let mut linear = linear.init(&weight.device());
        linear.weight = Param::from_tensor(weight);
        linear.bias = bias.map(Param::from_tensor);
        linear
    }
}

/// A with singular values or mean scales folded in.
fn scaled_a(adapter: &LowRankAdapter) -> Tensor<2> {
    let a = adapter.a.val().without_autodiff();
    let between = match &adapter.extension {
        Some(Extension::SingularValues(e)) => e.val(),
        Some(Extension::Scale(scale)) => scale.mean(),
        Some(Extension::Posterior(_) | Extension::Gaussian(_) | Extension::Contextual(_))
        | None => return a,
    };
    a * between.without_autodiff().unsqueeze_dim(0)
}
