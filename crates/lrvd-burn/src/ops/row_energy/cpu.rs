//! Sums of squares on slices.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::RowEnergy;
use crate::ops::cpu::{Real, contiguous, rows_per_task, run, sum_pairs, sum_rows, wide};
use crate::ops::op::{Fused, Operands};

wide! {
    fn rows_forward<'a, E>(out: &'a mut [E], x: &'a [E], weight: Option<&'a [E]>) {
        let width = x.len() / out.len().max(1);
        for (out, x) in out.iter_mut().zip(x.chunks_exact(width)) {
            *out = match weight {
                Some(weight) => sum_pairs(x, weight, |x, w| x * x * w),
                None => sum_pairs(x, x, |x, _| x * x),
            };
        }
    }

    /// `d_x` starts as zeros; an empty `d_weight` is not needed.
    fn rows_backward<'a, E>(
        d_x: &'a mut [E],
        d_weight: &'a mut [E],
        x: &'a [E],
        weight: &'a [E],
        grad: &'a [E],
    ) {
        let width = weight.len();
        let rows = d_x.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(grad);
        for ((d_x, x), &grad) in rows {
            for (d_weight, &x) in d_weight.iter_mut().zip(x) {
                *d_weight += grad * x * x;
            }
            let twice = grad + grad;
            for ((d_x, &x), &weight) in d_x.iter_mut().zip(x).zip(weight) {
                *d_x = twice * weight * x;
            }
        }
    }
}

pub(super) fn forward<E: Real>(_: &RowEnergy, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[0, 1]);
    let ([x], [weight]) = x.parts();
    Fused { out: energy::<E>(x, weight), saved }
}

/// `Σ_k w[k]·x[n,k]²` of every row.
pub(in crate::ops) fn energy<E: Real>(x: FlexTensor, weight: Option<FlexTensor>) -> FlexTensor {
    let (x, weight) = (contiguous(x), weight.map(contiguous));
    let (rows, width) = (x.shape()[0], x.shape()[1]);
    let mut out = vec![E::ZERO; rows];
    let weight = weight.as_ref().map(E::slice);
    let count = rows_per_task(width);
    let tasks = out.chunks_mut(count).zip(E::slice(&x).chunks(count * width)).collect();
    run(tasks, |(out, x): (&mut [E], &[E])| rows_forward(out, x, weight));
    E::tensor(out, Shape::new([rows]))
}

pub(super) fn gradient<E: Real>(
    _: &RowEnergy,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let ([x], [weight]) = saved.parts();
    Operands::some(energy_gradient::<E>(x, weight, grad, [needs_grad[0], needs_grad[1]]))
}

/// Gradients of `x` and `weight`, where needed.
pub(in crate::ops) fn energy_gradient<E: Real>(
    x: FlexTensor,
    weight: Option<FlexTensor>,
    grad: FlexTensor,
    needs_grad: [bool; 2],
) -> [Option<FlexTensor>; 2] {
    let (x, weight, grad) = (contiguous(x), weight.map(contiguous), contiguous(grad));
    let shape = x.shape();
    let (rows, width) = (shape[0], shape[1]);
    let ones = if weight.is_none() { vec![E::ONE; width] } else { Vec::new() };
    let weight = weight.as_ref().map_or(ones.as_slice(), E::slice);
    let mut d_x = vec![E::ZERO; rows * width];
    let count = rows_per_task(width);
    let tasks = d_x
        .chunks_mut(count * width)
        .zip(E::slice(&x).chunks(count * width))
        .zip(E::slice(&grad).chunks(count))
        .collect();
    let parts = run(tasks, |((d_x, x), grad): ((&mut [E], &[E]), &[E])| {
        let mut d_weight = if needs_grad[1] { vec![E::ZERO; width] } else { Vec::new() };
        rows_backward(d_x, &mut d_weight, x, weight, grad);
        d_weight
    });
    [
        needs_grad[0].then(|| E::tensor(d_x, shape)),
        needs_grad[1].then(|| E::tensor(sum_rows(&parts, width), Shape::new([width]))),
    ]
}
