//! Layer normalisation with the checkpoint's names.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_burn::ops::layer_norm;
use lrvd_burn::parameters::{Layout, NamedParameter, ParameterMut, Role};

use crate::source::{Init, WeightSource};

/// `(x − mean)/sqrt(var + ε)·weight + bias` over the last axis.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// Scale, `[d]`.
    pub weight: Param<Tensor<1>>,
    /// Shift, `[d]`.
    pub bias: Param<Tensor<1>>,
    epsilon: f64,
}

impl LayerNorm {
    /// Reads `{path}.weight` and `{path}.bias`.
    pub(crate) fn load(source: &mut WeightSource<'_>, path: &str, d: usize, epsilon: f64) -> Self {
        let mut get = |name: &str, init| {
            let tensor = source.tensor(&format!("{path}.{name}"), [d], Layout::AsStored, init);
            Param::from_tensor(tensor).set_require_grad(false)
        };
        Self {
            weight: get("weight", Init::Constant(1.0)),
            bias: get("bias", Init::Constant(0.0)),
            epsilon,
        }
    }

    /// Normalises the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        layer_norm(x, self.weight.val(), self.bias.val(), self.epsilon)
    }

    pub(crate) fn visit_parameters(
        &mut self,
        path: &str,
        visit: &mut dyn FnMut(NamedParameter<'_>),
    ) {
        for (name, value) in [("weight", &mut self.weight), ("bias", &mut self.bias)] {
            visit(NamedParameter {
                name: &format!("{path}.{name}"),
                role: Role::Backbone,
                layout: Layout::AsStored,
                value: ParameterMut::Vector(value),
            });
        }
    }
}
