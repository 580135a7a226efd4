//! The gate of a gated feed-forward block.

#[cfg(feature = "flex")]
mod cpu;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

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
    op::fused(GatedSilu, operands(gate, up))
}

/// [`gated_silu()`](fn@gated_silu) from Burn's operations.
///
/// # Panics
///
/// As [`gated_silu()`](fn@gated_silu).
pub fn gated_silu_composite<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    op::composite(GatedSilu, operands(gate, up))
}

fn operands<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Operands<Dispatch> {
    assert_eq!(gate.dims(), up.dims(), "shapes of `gate` and `up`");
    Operands::of([gate, up].map(Tensor::into_dispatch))
}

#[derive(Clone, Debug)]
struct GatedSilu;

impl FusedOp for GatedSilu {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [gate, up] = x.all().map(Value::<B>);
        (gate.clone() * gate.logistic() * up).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }
}
