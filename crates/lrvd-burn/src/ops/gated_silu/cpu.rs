//! The gate on slices.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::{Flex, TensorMetadata};
use burn_flex::FlexTensor;

use super::GatedSilu;
use crate::ops::cpu::{Binary, Real, TASK, contiguous, run, wide, zip};
use crate::ops::op::{Fused, Operands};

/// `1 / (1 + exp(-x))`.
#[inline(always)]
fn logistic<E: Real>(x: E) -> E {
    E::ONE / (E::ONE + (-x).exp())
}

/// `silu(gate) · up`.
struct Value;

impl<E: Real> Binary<E> for Value {
    #[inline(always)]
    fn of(gate: E, up: E) -> E {
        gate * logistic(gate) * up
    }
}

pub(super) fn forward<E: Real>(_: &GatedSilu, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[0, 1]);
    let [gate, up] = x.all();
    Fused { out: zip::<E, Value>(gate, up), saved }
}

wide! {
    /// `grad` becomes the gradient of the gate.
    fn chunk_backward<'a, E>(
        grad: &'a mut [E],
        gate: &'a [E],
        up: &'a [E],
        d_up: &'a mut [E],
    ) {
        for (((grad, &gate), &up), d_up) in grad.iter_mut().zip(gate).zip(up).zip(d_up) {
            let s = logistic(gate);
            *d_up = *grad * gate * s;
            *grad = *grad * up * (s * (E::ONE + gate * (E::ONE - s)));
        }
    }
}

/// Chunks of the gradient, of the two arguments, and of the second one's gradient.
type Task<'a, E> = (((&'a mut [E], &'a [E]), &'a [E]), &'a mut [E]);

pub(super) fn gradient<E: Real>(
    _: &GatedSilu,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let ([gate, up], mut grad) = (saved.all().map(contiguous), contiguous(grad));
    let shape = gate.shape();
    let mut d_up = vec![E::ZERO; shape.num_elements()];
    let tasks = E::slice_mut(&mut grad)
        .chunks_mut(TASK)
        .zip(E::slice(&gate).chunks(TASK))
        .zip(E::slice(&up).chunks(TASK))
        .zip(d_up.chunks_mut(TASK))
        .collect();
    run(tasks, |(((grad, gate), up), d_up): Task<'_, E>| chunk_backward(grad, gate, up, d_up));
    Operands::needed([grad, E::tensor(d_up, shape)], needs_grad)
}
