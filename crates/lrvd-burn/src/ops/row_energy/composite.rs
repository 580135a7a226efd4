//! Sums of squares from Burn's operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::{Value, as_row};

pub(crate) fn forward<B: Backend>(
    x: FloatTensor<B>,
    weight: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let mut squares = Value::<B>(x).square();
    let rows = squares.shape()[0];
    if let Some(weight) = weight {
        squares = squares * as_row(weight, 2);
    }
    squares.sum(1).reshape([rows]).0
}

/// Gradients of `x` and `weight`, where `needs_grad`.
pub(crate) fn backward<B: Backend>(
    x: FloatTensor<B>,
    weight: Option<FloatTensor<B>>,
    grad: FloatTensor<B>,
    needs_grad: [bool; 2],
) -> (Option<FloatTensor<B>>, Option<FloatTensor<B>>) {
    let x = Value::<B>(x);
    let (rows, width) = (x.shape()[0], x.shape()[1]);
    let grad = Value::<B>(grad).reshape([rows, 1]);
    let d_weight =
        needs_grad[1].then(|| (x.clone().square() * grad.clone()).sum(0).reshape([width]).0);
    let d_x = needs_grad[0].then(|| {
        let slope = x * grad * 2.0;
        weight.map_or(slope.clone(), |weight| slope * as_row(weight, 2)).0
    });
    (d_x, d_weight)
}
