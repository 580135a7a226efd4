//! Merging into the base weight, and exchange with Burn's own weight-space LoRA.

use burn::module::{LoraAdapter, Module, Param, Reparameterizer};
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
        self.assert_dense_mean();
        let weight = self.weight.val().without_autodiff();
        let weight = match self.delta() {
            Some(delta) => {
                let [stored, wide] = [&weight, &delta].map(Tensor::dtype).map(FloatDType::from);
                (weight.cast(wide) + delta).cast(stored)
            }
            None => weight,
        };
        plain_linear(weight, self.bias.map(|b| b.val().without_autodiff()))
    }

    fn assert_dense_mean(&self) {
        assert!(
            self.has_dense_mean(),
            "the adapter has no dense mean: ask `AdaptedLinear::has_dense_mean` first"
        );
    }

    /// A layer from a Burn linear one; an adapter that Burn's `apply_lora` put on its weight comes
    /// along, with its scale.
    pub fn from_burn(path: &str, linear: Linear) -> Self {
        let lora: Option<LoraAdapter> = linear.weight.adapter().cloned();
        let weight = linear.weight.base().without_autodiff();
        let bias = linear.bias.map(|b| b.val().without_autodiff());
        let mut layer = Self::new(path, weight, bias);
        if let Some(LoraAdapter { a, b, scale }) = lora {
            let rank = a.val().dims()[1];
            layer.place(LowRankAdapter::new(a, b, scale), rank);
        }
        layer
    }

    /// The layer as a Burn linear one with Burn's weight-space LoRA at the posterior mean.
    ///
    /// AdaLoRA's singular values and mean scales are folded into A. The posterior itself has no
    /// place there.
    ///
    /// # Panics
    ///
    /// As [`AdaptedLinear::merge`].
    #[must_use]
    pub fn into_burn(self) -> Linear {
        self.assert_dense_mean();
        let linear = plain_linear(
            self.weight.val().without_autodiff(),
            self.bias.as_ref().map(|b| b.val().without_autodiff()),
        );
        let Some(adapter) = self.low_rank() else { return linear };
        let a = scaled_a(adapter);
        let factors = LoraAdapter {
            a: Param::from_tensor(a),
            b: Param::from_tensor(adapter.b.val().without_autodiff()),
            scale: adapter.scaling,
        };
        linear.apply_reparameterization(Given(Some(factors)))
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

/// Puts one ready adapter on the first matrix it meets, and freezes the base.
struct Given(Option<LoraAdapter>);

impl Reparameterizer for Given {
    type Reparam = LoraAdapter;

    fn reparameterize<const D: usize>(
        &mut self,
        _path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LoraAdapter>) {
        let adapter = if D == 2 { self.0.take() } else { None };
        (param.set_require_grad(false), adapter)
    }
}

fn plain_linear(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Linear {
    let [d_input, d_output] = weight.dims();
    let device = weight.device();
    let mut linear = LinearConfig::new(d_input, d_output).with_bias(bias.is_some()).init(&device);
    linear.weight = Param::from_tensor(weight);
    linear.bias = bias.map(Param::from_tensor);
    linear
}
