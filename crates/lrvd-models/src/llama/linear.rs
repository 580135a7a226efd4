//! Float types of a Llama.
//!
//! Activations, norms, adapters and posteriors are in the compute type: double precision for double-precision weights,
//! single precision for all others. Matrices may be stored as bf16 or f16;
//! [`AdaptedLinear`](lrvd_burn::adapter::AdaptedLinear) then multiplies in the stored type. Burn's CPU backend has such
//! products (as fast as single precision, not faster); other devices say so through `Device::supports_dtype`.

use burn::tensor::{DType, FloatDType, Tensor};

/// `x` in the float type `dtype`.
pub(super) fn cast<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    x.cast(FloatDType::from(dtype))
}

/// The tensor without its autodiff association.
pub(super) fn plain<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.inner() } else { tensor }
}
