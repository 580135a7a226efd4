//! A linear layer and its update from Burn's operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::{FiveGradients, Value, as_row};

/// Rows of each group, `[groups, rows, features]`.
fn grouped<B: Backend>(x: &Value<B>, groups: usize) -> Value<B> {
    let shape = x.shape();
    let (rows, features) = (shape[0] * shape[1], shape[2]);
    x.clone().reshape([groups, rows / groups, features])
}

/// The output and, with factors, `s` as `[groups, rows, rank]`.
pub(crate) fn forward<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    a: Option<FloatTensor<B>>,
    b: Option<FloatTensor<B>>,
    scale: f64,
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    let (x, weight) = (Value::<B>(x), Value::<B>(weight));
    let (shape, d_output) = (x.shape(), weight.shape()[1]);
    let mut out = x.clone().reshape([shape[0] * shape[1], shape[2]]).matmul(weight);
    if let Some(bias) = bias {
        out = out + as_row(bias, 2);
    }
    let mut out = out.reshape([shape[0], shape[1], d_output]);
    let (Some(a), Some(b)) = (a, b) else { return (out.0, None) };
    let (a, b) = (Value::<B>(a), Value::<B>(b));
    let s = grouped(&x, a.shape()[0]).matmul(a) * scale;
    out = out + s.clone().matmul(b).reshape([shape[0], shape[1], d_output]);
    (out.0, Some(s.0))
}

/// Gradients of `x`, `weight`, `bias`, `a` and `b` where `needs_grad`; those of `x`
/// and of `x·A` are added to `acc`.
#[expect(clippy::too_many_arguments, reason = "the operands of the forward pass and what it saved")]
pub(crate) fn backward<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    a: Option<FloatTensor<B>>,
    b: Option<FloatTensor<B>>,
    hidden: Option<FloatTensor<B>>,
    grad: FloatTensor<B>,
    scale: f64,
    needs_grad: [bool; 5],
    acc: [Option<FloatTensor<B>>; 2],
) -> FiveGradients<B> {
    let (x, grad) = (Value::<B>(x), Value::<B>(grad));
    let shape = x.shape();
    let rows = |v: &Value<B>| {
        let shape = v.shape();
        v.clone().reshape([shape[0] * shape[1], shape[2]])
    };
    let mut d_x =
        needs_grad[0].then(|| rows(&grad).matmul(Value(weight).swap(0, 1)).reshape(shape.clone()));
    let d_weight = needs_grad[1].then(|| rows(&x).swap(0, 1).matmul(rows(&grad)).0);
    let d_bias = needs_grad[2].then(|| {
        let width = grad.shape()[2];
        rows(&grad).sum(0).reshape([width]).0
    });
    let [grad_x_acc, grad_h_acc] = acc.map(|acc| acc.map(Value::<B>));
    if let Some(acc) = grad_x_acc {
        d_x = d_x.map(|d_x| d_x + acc);
    }
    let (mut d_a, mut d_b) = (None, None);
    if let (Some(a), Some(b), Some(s)) = (a, b, hidden) {
        let (a, b) = (Value::<B>(a), Value::<B>(b));
        let groups = a.shape()[0];
        let g = grouped(&grad, groups);
        if needs_grad[0] || needs_grad[3] {
            let mut h = g.clone().matmul(b.swap(1, 2)) * scale;
            if let Some(acc) = grad_h_acc {
                h = h + acc;
            }
            d_a = needs_grad[3].then(|| grouped(&x, groups).swap(1, 2).matmul(h.clone()).0);
            d_x = d_x.map(|d_x| d_x + h.matmul(a.swap(1, 2)).reshape(shape));
        }
        d_b = needs_grad[4].then(|| Value::<B>(s).swap(1, 2).matmul(g).0);
    }
    (d_x.map(|d_x| d_x.0), d_weight, d_bias, d_a, d_b)
}
