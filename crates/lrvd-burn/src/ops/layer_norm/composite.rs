//! Layer normalisation from Burn's operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::{ThreeGradients, Value, as_row};

/// Normalised rows and the reciprocal standard deviation.
fn normalise<B: Backend>(x: Value<B>, eps: f64) -> (Value<B>, Value<B>) {
    let last = x.shape().len() - 1;
    let centred = x.clone() - x.mean(last);
    let r = (centred.clone().square().mean(last) + eps).sqrt().recip();
    (centred * r.clone(), r)
}

pub(crate) fn forward<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    beta: FloatTensor<B>,
    eps: f64,
) -> FloatTensor<B> {
    let x = Value::<B>(x);
    let rank = x.shape().len();
    if x.shape().contains(&0) {
        return x.0;
    }
    let (normal, _) = normalise(x, eps);
    (normal * as_row(gamma, rank) + as_row(beta, rank)).0
}

pub(crate) fn backward<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    grad: FloatTensor<B>,
    eps: f64,
    needs_grad: [bool; 3],
) -> ThreeGradients<B> {
    let (x, grad) = (Value::<B>(x), Value::<B>(grad));
    let shape = x.shape();
    let (rank, width) = (shape.len(), shape[shape.len() - 1]);
    let rows = shape[..rank - 1].iter().product::<usize>();
    if rows * width == 0 {
        let zeros = || Value::<B>(gamma.clone()) * 0.0;
        return (
            needs_grad[0].then_some(grad.0),
            needs_grad[1].then(|| zeros().0),
            needs_grad[2].then(|| zeros().0),
        );
    }
    let over_rows = |v: Value<B>| v.reshape([rows, width]).sum(0).reshape([width]).0;
    let (normal, r) = normalise(x, eps);
    let d_gamma = needs_grad[1].then(|| over_rows(grad.clone() * normal.clone()));
    let d_beta = needs_grad[2].then(|| over_rows(grad.clone()));
    let d_x = needs_grad[0].then(|| {
        let g = grad.clone() * as_row(gamma.clone(), rank);
        let along = (g.clone() * normal.clone()).mean(rank - 1);
        (r * (g.clone() - g.mean(rank - 1) - normal.clone() * along)).0
    });
    (d_x, d_gamma, d_beta)
}
