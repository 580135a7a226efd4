//! The gate of a gated feed-forward block.

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
    assert_eq!(gate.dims(), up.dims(), "shapes of `gate` and `up`");
    op::fused(GatedSilu, Operands::of([gate, up].map(Tensor::into_dispatch)))
}

#[derive(Clone, Debug)]
struct GatedSilu;

impl FusedOp for GatedSilu {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [gate, up] = x.all().map(Value::<B>);
        (gate.clone() * gate.logistic() * up).0
    }

    op::forms!(cpu);
}

#[cfg(feature = "flex")]
mod cpu {
    #![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

    use super::GatedSilu;
    use crate::ops::cpu::prelude::*;

    #[inline(always)]
    fn logistic(x: f32) -> f32 {
        1.0 / (1.0 + exp(-x))
    }

    wide! {
        /// `gate` becomes the output.
        fn value<'a>(gate: &'a mut [f32], up: &'a [f32]) {
            for (gate, &up) in gate.iter_mut().zip(up) {
                *gate = *gate * logistic(*gate) * up;
            }
        }

        /// `grad` becomes the gradient of the gate.
        fn slopes<'a>(
            grad: &'a mut [f32],
            gate: &'a [f32],
            up: &'a [f32],
            d_up: &'a mut [f32],
        ) {
            for (((grad, &gate), &up), d_up) in grad.iter_mut().zip(gate).zip(up).zip(d_up) {
                let s = logistic(gate);
                *d_up = *grad * gate * s;
                *grad = *grad * up * (s * (1.0 + gate * (1.0 - s)));
            }
        }
    }

    pub(crate) fn forward(_: &GatedSilu, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[0, 1]);
        let [gate, up] = x.all();
        let up = contiguous(up);
        let value = |first, gate: &mut [f32]| value(gate, &slice(&up)[first..][..gate.len()]);
        Fused { out: in_place(gate, TASK, value), saved }
    }

    pub(crate) fn gradient(_: &GatedSilu, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, .. } = x;
        let ([gate, up], mut grad) = (saved.all().map(contiguous), contiguous(grad));
        let shape = gate.shape();
        let mut d_up = vec![0.0; shape.num_elements()];
        let tasks = slice_mut(&mut grad).chunks_mut(TASK).zip(d_up.chunks_mut(TASK)).enumerate();
        run(tasks.collect(), |(i, (grad, d_up))| {
            let [gate, up] = [&gate, &up].map(|x| &slice(x)[i * TASK..][..grad.len()]);
            slopes(grad, gate, up, d_up);
        });
        Operands::of([grad, tensor(d_up, shape)])
    }
}
