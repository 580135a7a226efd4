//! The gate from Burn's operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::Value;

pub(crate) fn forward<B: Backend>(gate: FloatTensor<B>, up: FloatTensor<B>) -> FloatTensor<B> {
    let gate = Value::<B>(gate);
    (gate.clone() * gate.logistic() * Value(up)).0
}

pub(crate) fn backward<B: Backend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    grad: FloatTensor<B>,
    needs_grad: [bool; 2],
) -> (Option<FloatTensor<B>>, Option<FloatTensor<B>>) {
    let (gate, grad) = (Value::<B>(gate), Value::<B>(grad));
    let s = gate.clone().logistic();
    let d_gate = needs_grad[0].then(|| {
        let slope = s.clone() * (gate.clone() * (-s.clone() + 1.0) + 1.0);
        (grad.clone() * Value(up) * slope).0
    });
    let d_up = needs_grad[1].then(|| (grad * gate * s).0);
    (d_gate, d_up)
}
