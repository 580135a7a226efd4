//! Root-mean-square normalisation on slices, by rows.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::RmsNorm;
use crate::ops::cpu::{Real, contiguous, rows_per_task, run, sum_pairs, sum_rows, wide};
use crate::ops::op::{Fused, Operands};

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
fn reciprocal_root<E: Real>(row: &[E], eps: E) -> E {
    let mean = sum_pairs(row, row, |x, _| x * x) / E::of(row.len() as f64);
    E::ONE / (mean + eps).sqrt()
}

wide! {
    /// Normalises whole rows.
    fn rows_forward<'a, E>(out: &'a mut [E], x: &'a [E], gamma: &'a [E], eps: E) {
        let width = gamma.len();
        for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let r = reciprocal_root(x, eps);
            for ((out, &x), &gamma) in out.iter_mut().zip(x).zip(gamma) {
                *out = x * r * gamma;
            }
        }
    }

    /// `grad` becomes the gradient of `x`; returns that of `gamma`, or nothing if it is not needed.
    fn rows_backward<'a, E>(
        grad: &'a mut [E],
        x: &'a [E],
        gamma: &'a [E],
        eps: E,
        needs_grad: bool,
    ) -> Vec<E> {
        let width = gamma.len();
        let mut d_gamma = if needs_grad { vec![E::ZERO; width] } else { Vec::new() };
        for (grad, x) in grad.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let r = reciprocal_root(x, eps);
            for ((d_gamma, &grad), &x) in d_gamma.iter_mut().zip(&*grad).zip(x) {
                *d_gamma += grad * x * r;
            }
            for (grad, &gamma) in grad.iter_mut().zip(gamma) {
                *grad = *grad * gamma;
            }
            let along = sum_pairs(grad, x, |grad, x| grad * x) * r * r / E::of(width as f64);
            for (grad, &x) in grad.iter_mut().zip(x) {
                *grad = r * (*grad - x * along);
            }
        }
        d_gamma
    }
}

pub(super) fn forward<E: Real>(op: &RmsNorm, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[0, 1]);
    let [x, gamma] = x.all().map(contiguous);
    let (shape, gamma, eps) = (x.shape(), E::slice(&gamma), E::of(op.eps));
    let mut out = vec![E::ZERO; shape.num_elements()];
    let size = rows_per_task(gamma.len()) * gamma.len();
    let tasks = out.chunks_mut(size).zip(E::slice(&x).chunks(size)).collect();
    run(tasks, |(out, x): (&mut [E], &[E])| rows_forward(out, x, gamma, eps));
    Fused { out: E::tensor(out, shape), saved }
}

pub(super) fn gradient<E: Real>(
    op: &RmsNorm,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let ([x, gamma], mut grad) = (saved.all().map(contiguous), contiguous(grad));
    let (gain, eps) = (E::slice(&gamma), E::of(op.eps));
    let width = gain.len();
    let size = rows_per_task(width) * width;
    let tasks = E::slice_mut(&mut grad).chunks_mut(size).zip(E::slice(&x).chunks(size));
    let parts = run(tasks.collect(), |(grad, x): (&mut [E], &[E])| {
        rows_backward(grad, x, gain, eps, needs_grad[1])
    });
    let d_gamma = needs_grad[1].then(|| E::tensor(sum_rows(&parts, width), Shape::new([width])));
    Operands::some([needs_grad[0].then_some(grad), d_gamma])
}
