//! The exact GELU.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::LrvdBackend;

/// Gaussian error linear unit, elementwise.
///
/// # Formula
///
/// ```text
/// gelu(x) = x · Phi(x),   gelu'(x) = Phi(x) + x · phi(x)
/// ```
///
/// `Phi` and `phi` are the standard normal distribution function and density (not the tanh
/// approximation).
///
/// # Numerics
///
/// On the CPU `Phi` is within `2e-7` in `f32`, with a relative error below `3e-6` down to `x = -8`,
/// and within `1e-15` in `f64`. The backward pass saves `x` alone.
///
/// # References
///
/// Hendrycks, Gimpel 2016, arXiv:1606.08415.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_gelu(x.into_dispatch()))
}

/// [`gelu()`](fn@gelu) from Burn's operations.
pub fn gelu_composite<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(composite::forward::<Dispatch>(x.into_dispatch()))
}
