//! Root-mean-square normalisation from Burn's operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::{Value, as_row};

/// `1 / sqrt(mean(x²) + eps)`, with the last axis kept.
fn reciprocal_root<B: Backend>(x: Value<B>, eps: f64) -> Value<B> {
    let last = x.shape().len() - 1;
    (x.square().mean(last) + eps).sqrt().recip()
}

pub(crate) fn forward<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    eps: f64,
) -> FloatTensor<B> {
    let x = Value::<B>(x);
    let rank = x.shape().len();
    if x.shape().contains(&0) {
        return x.0;
    }
    (x.clone() * reciprocal_root(x, eps) * as_row(gamma, rank)).0
}

pub(crate) fn backward<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    grad: FloatTensor<B>,
    eps: f64,
    needs_grad: [bool; 2],
) -> (Option<FloatTensor<B>>, Option<FloatTensor<B>>) {
    let (x, grad) = (Value::<B>(x), Value::<B>(grad));
    let shape = x.shape();
    let (rank, width) = (shape.len(), shape[shape.len() - 1]);
    if shape.contains(&0) {
        return (
            needs_grad[0].then_some(grad.0),
            needs_grad[1].then(|| (Value::<B>(gamma) * 0.0).0),
        );
    }
    let r = reciprocal_root(x.clone(), eps);
    let normal = x * r.clone();
    let d_gamma = needs_grad[1].then(|| {
        let rows = shape.iter().product::<usize>() / width;
        (grad.clone() * normal.clone()).reshape([rows, width]).sum(0).reshape([width]).0
    });
    let d_x = needs_grad[0].then(|| {
        let g = grad * as_row(gamma, rank);
        let along = (g.clone() * normal.clone()).mean(rank - 1);
        (r * (g - normal * along)).0
    });
    (d_x, d_gamma)
}
