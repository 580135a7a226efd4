//! Weighted sums of squares along the last axis.

use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

/// Weighted sum of the squares of every row.
///
/// # Formula
///
/// ```text
/// out[n] = Σ_k w[k]·x[n,k]²       dx = 2·g[n]·w[k]·x[n,k]       dw[k] = Σ_n g[n]·x[n,k]²
/// ```
///
/// Without weights every `w[k]` is 1: the squared norm.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `x` | `[n, d]` |
/// | `weight` | `[d]` |
/// | *returns* | `[n]` |
///
/// # Panics
///
/// If `weight` does not have `d` entries.
pub fn row_energy(x: Tensor<2>, weight: Option<Tensor<1>>) -> Tensor<1> {
    if let Some(weight) = &weight {
        assert_eq!(weight.dims(), [x.dims()[1]], "shape of `weight`");
    }
    let weight = weight.map(Tensor::into_dispatch);
    op::fused(RowEnergy, Operands::some([Some(x.into_dispatch()), weight]))
}

/// Of `x` and an optional `weight`.
#[derive(Clone, Debug)]
pub(super) struct RowEnergy;

impl FusedOp for RowEnergy {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let ([x], [weight]) = x.parts();
        let mut squares = Value::<B>(x).square();
        let rows = squares.shape()[0];
        if let Some(weight) = weight {
            squares = squares * as_row(weight, 2);
        }
        squares.sum(1).reshape([rows]).0
    }

    op::forms!(cpu);
}

#[cfg(feature = "flex")]
pub(super) mod cpu {
    use super::RowEnergy;
    use crate::ops::cpu::prelude::*;

    wide! {
        fn rows_forward<'a>(out: &'a mut [f32], x: &'a [f32], weight: Option<&'a [f32]>) {
            let width = x.len() / out.len().max(1);
            for (out, x) in out.iter_mut().zip(x.chunks_exact(width)) {
                *out = match weight {
                    Some(weight) => sum_pairs(x, weight, |x, w| x * x * w),
                    None => sum_pairs(x, x, |x, _| x * x),
                };
            }
        }

        /// `d_x` starts as zeros; an empty `d_weight` is not needed.
        fn rows_backward<'a>(
            d_x: &'a mut [f32],
            d_weight: &'a mut [f32],
            x: &'a [f32],
            weight: &'a [f32],
            grad: &'a [f32],
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

    pub(crate) fn forward(_: &RowEnergy, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[0, 1]);
        let ([x], [weight]) = x.parts();
        let (x, weight) = (contiguous(x), weight.map(contiguous));
        let [rows, width] = x.shape().dims();
        let weight = weight.as_ref().map(slice);
        let mut out = vec![0.0; rows];
        let count = rows_per_task(width);
        let tasks = out.chunks_mut(count).zip(slice(&x).chunks(count * width)).collect();
        run(tasks, |(out, x): (&mut [f32], &[f32])| rows_forward(out, x, weight));
        Fused { out: tensor(out, [rows]), saved }
    }

    pub(crate) fn gradient(_: &RowEnergy, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let ([x], [weight]) = saved.parts();
        let (x, weight, grad) = (contiguous(x), weight.map(contiguous), contiguous(grad));
        let [rows, width] = x.shape().dims();
        let ones = if weight.is_none() { vec![1.0; width] } else { Vec::new() };
        let weight = weight.as_ref().map_or(ones.as_slice(), slice);
        let mut d_x = vec![0.0; rows * width];
        let count = rows_per_task(width);
        let tasks = d_x
            .chunks_mut(count * width)
            .zip(slice(&x).chunks(count * width))
            .zip(slice(&grad).chunks(count))
            .collect();
        let parts = run(tasks, |((d_x, x), grad): ((&mut [f32], &[f32]), &[f32])| {
            let mut d_weight = if needs_grad[1] { vec![0.0; width] } else { Vec::new() };
            rows_backward(d_x, &mut d_weight, x, weight, grad);
            d_weight
        });
        let d_x = needs_grad[0].then(|| tensor(d_x, [rows, width]));
        Operands::some([d_x, needs_grad[1].then(|| tensor(sum_rows(&parts, width), [width]))])
    }
}
