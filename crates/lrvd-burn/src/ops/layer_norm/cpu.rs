//! Layer normalisation on slices, by rows.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::LayerNorm;
use crate::ops::cpu::{Real, contiguous, rows_per_task, run, sum, sum_pairs, sum_rows, wide};
use crate::ops::op::{Fused, Operands};

/// Mean and reciprocal standard deviation of a row.
#[inline(always)]
fn statistics<E: Real>(row: &[E], eps: E) -> (E, E) {
    let count = E::of(row.len() as f64);
    let mean = sum(row) / count;
    let variance = sum_pairs(row, row, |x, _| (x - mean) * (x - mean)) / count;
    (mean, E::ONE / (variance + eps).sqrt())
}

wide! {
    /// Normalises whole rows.
    fn rows_forward<'a, E>(
        out: &'a mut [E],
        x: &'a [E],
        gamma: &'a [E],
        beta: &'a [E],
        eps: E,
    ) {
        let width = gamma.len();
        for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let (mean, r) = statistics(x, eps);
            for (((out, &x), &gamma), &beta) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
                *out = (x - mean) * r * gamma + beta;
            }
        }
    }

    /// `grad` becomes the gradient of `x`; an empty part is not needed.
    fn rows_backward<'a, E>(
        grad: &'a mut [E],
        x: &'a [E],
        gamma: &'a [E],
        eps: E,
        parts: &'a mut [Vec<E>; 2],
    ) {
        let width = gamma.len();
        for (grad, x) in grad.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            row_backward(grad, x, gamma, eps, parts);
        }
    }
}

pub(super) fn forward<E: Real>(op: &LayerNorm, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[0, 1]);
    let [x, gamma, beta] = x.all().map(contiguous);
    let (shape, width) = (x.shape(), gamma.shape()[0]);
    let (gamma, beta, eps) = (E::slice(&gamma), E::slice(&beta), E::of(op.eps));
    let mut out = vec![E::ZERO; shape.num_elements()];
    let size = rows_per_task(width) * width;
    let tasks = out.chunks_mut(size).zip(E::slice(&x).chunks(size)).collect();
    run(tasks, |(out, x): (&mut [E], &[E])| rows_forward(out, x, gamma, beta, eps));
    Fused { out: E::tensor(out, shape), saved }
}

pub(super) fn gradient<E: Real>(
    op: &LayerNorm,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let ([x, gamma], mut grad) = (saved.all().map(contiguous), contiguous(grad));
    let (width, gain, eps) = (gamma.shape()[0], E::slice(&gamma), E::of(op.eps));
    let size = rows_per_task(width) * width;
    let tasks = E::slice_mut(&mut grad).chunks_mut(size).zip(E::slice(&x).chunks(size));
    let parts = run(tasks.collect(), |(grad, x): (&mut [E], &[E])| {
        let mut part = [needs_grad[1], needs_grad[2]]
            .map(|needs_grad| if needs_grad { vec![E::ZERO; width] } else { Vec::new() });
        rows_backward(grad, x, gain, eps, &mut part);
        part
    });
    let (gamma_parts, beta_parts): (Vec<_>, Vec<_>) = parts.into_iter().map(Into::into).unzip();
    let vector = |parts: &[Vec<E>]| E::tensor(sum_rows(parts, width), Shape::new([width]));
    Operands::some([
        needs_grad[0].then_some(grad),
        needs_grad[1].then(|| vector(&gamma_parts)),
        needs_grad[2].then(|| vector(&beta_parts)),
    ])
}

/// One row of the gradient.
#[inline(always)]
fn row_backward<E: Real>(
    grad: &mut [E],
    x: &[E],
    gamma: &[E],
    eps: E,
    [d_gamma, d_beta]: &mut [Vec<E>; 2],
) {
    let (mean, r) = statistics(x, eps);
    for ((d_gamma, &grad), &x) in d_gamma.iter_mut().zip(&*grad).zip(x) {
        *d_gamma += grad * (x - mean) * r;
    }
    for (d_beta, &grad) in d_beta.iter_mut().zip(&*grad) {
        *d_beta += grad;
    }
    for (grad, &gamma) in grad.iter_mut().zip(gamma) {
        *grad = *grad * gamma;
    }
    let count = E::of(x.len() as f64);
    let across = sum(grad) / count;
    let along = sum_pairs(grad, x, |grad, x| grad * (x - mean)) * r * r / count;
    for (grad, &x) in grad.iter_mut().zip(x) {
        *grad = r * (*grad - across - (x - mean) * along);
    }
}
