//! Normalisation of the last axis, with the checkpoint's names.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_burn::adapter::adapter_dtype;
use lrvd_burn::model::Named;
use lrvd_burn::ops::{layer_norm, rms_norm};
use lrvd_burn::parameters::Group;

use crate::source::{Init, Layout, WeightSource, frozen};

/// `(x − mean)/sqrt(var + ε)·weight + bias` over the last axis.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// Scale, `[d]`.
    pub weight: Named<Param<Tensor<1>>>,
    /// Shift, `[d]`, if the model has one.
    pub bias: Option<Named<Param<Tensor<1>>>>,
    epsilon: f64,
}

impl LayerNorm {
    /// Reads `{path}.weight` and `{path}.bias`.
    pub(crate) fn load(source: &mut WeightSource<'_>, path: &str, d: usize, epsilon: f64) -> Self {
        let mut get = |name: &str, init| source.parameter(&format!("{path}.{name}"), [d], init);
        Self {
            weight: get("weight", Init::Constant(1.0)),
            bias: Some(get("bias", Init::Constant(0.0))),
            epsilon,
        }
    }

    /// Reads `{path}.weight` alone, of a norm in `group`.
    pub(crate) fn unshifted(
        source: &mut WeightSource<'_>,
        path: &str,
        group: Group,
        d: usize,
        epsilon: f64,
    ) -> Self {
        let name = format!("{path}.weight");
        let (init, dtype) = (Init::Constant(1.0), source.dtype());
        let weight = frozen(source.tensor(&name, [d], Layout::AsStored, init, dtype));
        Self { weight: Named::new(name, group, weight), bias: None, epsilon }
    }

    /// Normalises the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let bias = self.bias.as_ref().map(|bias| bias.val());
        layer_norm(x, self.weight.val(), bias, self.epsilon)
    }
}

/// `x/sqrt(mean(x²) + ε)·weight` over the last axis.
///
/// # Numerics
///
/// The weight is held in the type of the activations, whatever type the matrices are stored in.
///
/// # References
///
/// Zhang, Sennrich 2019, arXiv:1910.07467.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// Scale, `[d]`.
    pub weight: Named<Param<Tensor<1>>>,
    epsilon: f64,
}

impl RmsNorm {
    /// Reads `{path}.weight`.
    pub(crate) fn load(source: &mut WeightSource<'_>, path: &str, d: usize, epsilon: f64) -> Self {
        let name = format!("{path}.weight");
        let dtype = adapter_dtype(source.dtype());
        let weight =
            frozen(source.tensor(&name, [d], Layout::AsStored, Init::Constant(1.0), dtype));
        Self { weight: Named::new(name, Group::Backbone, weight), epsilon }
    }

    /// Normalises the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        rms_norm(x, self.weight.val(), self.epsilon)
    }
}
