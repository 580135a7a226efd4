//! The gate of a gated feed-forward block.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::LrvdBackend;

/// `silu(gate) ⊙ up`, elementwise.
///
/// # Formula
///
/// ```text
/// silu(x) = x · σ(x),   silu'(x) = σ(x) · (1 + x · (1 − σ(x))),   σ(x) = 1 / (1 + exp(−x))
/// ```
///
/// # Shapes
///
/// `gate`, `up` and the result have one shape.
///
/// # Numerics
///
/// The backward pass saves the two arguments alone.
///
/// # Panics
///
/// If the shapes differ.
///
/// # References
///
/// Shazeer 2020, arXiv:2002.05202 (`SwiGLU`).
pub fn gated_silu<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    assert_eq!(gate.dims(), up.dims(), "shapes of `gate` and `up`");
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_gated_silu(
        gate.into_dispatch(),
        up.into_dispatch(),
    ))
}

/// [`gated_silu()`](fn@gated_silu) from Burn's operations.
///
/// # Panics
///
/// As [`gated_silu()`](fn@gated_silu).
pub fn gated_silu_composite<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    assert_eq!(gate.dims(), up.dims(), "shapes of `gate` and `up`");
    Tensor::from_dispatch(composite::forward::<Dispatch>(gate.into_dispatch(), up.into_dispatch()))
}
