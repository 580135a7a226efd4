//! How do weights of a narrow float type meet activations of a wide one?
//!
//! Activations, norms, adapters and posteriors are in the compute type: double precision for double-precision weights,
//! single precision for all others. Matrices may be stored as bf16 or f16. The base product then runs in the stored
//! type, as it does in any half-precision model, and its result is widened; the adapter's update is computed wide:
//!
//! ```text
//! y = wide(narrow(x)·W) + c·(x·A)·B
//! ```
//!
//! The graph of a training step keeps a handle of `W` and no widened copy of it. Burn's CPU backend has bf16 and f16
//! products (as fast as single precision, not faster); other devices say so through `Device::supports_dtype`.

use burn::module::Param;
use burn::tensor::module::linear;
use burn::tensor::{DType, FloatDType, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::parameters::{ParameterMut, Role};
use lrvd_burn::sampling::Pass;

/// The type that activations and adapters have beside weights of type `weights`.
pub(super) fn compute_dtype(weights: DType) -> DType {
    if weights == DType::F64 { DType::F64 } else { DType::F32 }
}

/// `x` in the float type `dtype`.
pub(super) fn cast<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    x.cast(FloatDType::from(dtype))
}

/// The layer on `[batch, tokens, d_input]`, whatever type its weight is stored in.
pub(super) fn apply(layer: &AdaptedLinear, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
    let (wide, narrow) = (x.dtype(), layer.weight.val().dtype());
    if wide == narrow {
        return layer.forward(x, pass);
    }
    let base =
        linear(cast(x.clone(), narrow), layer.weight.val(), layer.bias.as_ref().map(Param::val));
    let base = cast(base, wide);
    if layer.rank() == 0 {
        return base;
    }
    base + update_alone(layer, wide).forward(x, pass)
}

/// The layer without its base: a weight of one column of zeros, whose product broadcasts over the update.
fn update_alone(layer: &AdaptedLinear, dtype: DType) -> AdaptedLinear {
    let mut alone = layer.clone();
    let device = layer.weight.val().device().inner();
    let column = Tensor::zeros([layer.d_input(), 1], (&device, dtype));
    alone.weight = Param::initialized(layer.weight.id, column);
    alone.bias = None;
    alone
}

/// Brings everything that was attached to a layer and took its type from a narrow weight into the compute type,
/// trainability kept.
pub(super) fn widen_adapter(layer: &mut AdaptedLinear) {
    let narrow = layer.weight.val().dtype();
    let dtype = compute_dtype(narrow);
    if dtype == narrow {
        return;
    }
    layer.visit_parameters("", Role::Backbone, &mut |p| {
        if p.role == Role::Backbone {
            return;
        }
        match p.value {
            ParameterMut::Vector(p) => widen(p, dtype),
            ParameterMut::Matrix(p) => widen(p, dtype),
            ParameterMut::Volume(p) => widen(p, dtype),
        }
    });
}

fn widen<const D: usize>(param: &mut Param<Tensor<D>>, dtype: DType) {
    let value = param.val();
    if value.dtype() == dtype {
        return;
    }
    let trainable = value.is_require_grad();
    let value = cast(plain(value), dtype);
    let value = if trainable { value.autodiff().require_grad() } else { value };
    *param = Param::initialized(param.id, value);
}

/// The tensor without its autodiff association.
pub(super) fn plain<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.inner() } else { tensor }
}
