//! The softmax from Burn's operations.
//!
//! The shift that aligns relative positions with keys is a reinterpretation of memory: with one
//! column of padding, rows of `2L` numbers read as rows of `2L-1` start one place earlier each.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::{Value, masked_softmax, softmax_gradient};

/// `out[i, j] = position[i, (L-1-i)+j]`.
fn align<B: Backend>(position: Value<B>, [b, h, l]: [usize; 3]) -> Value<B> {
    let columns = 2 * l - 1;
    position
        .pad_last_axis(0, 1)
        .reshape([b, h, l * 2 * l])
        .last_axis(l - 1..l - 1 + l * columns)
        .reshape([b, h, l, columns])
        .last_axis(0..l)
}

/// The transpose of [`align`]: `out[i, (L-1-i)+j] = grad[i, j]`, 0 elsewhere.
fn spread<B: Backend>(grad: Value<B>, [b, h, l]: [usize; 3]) -> Value<B> {
    let columns = 2 * l - 1;
    grad.pad_last_axis(0, l - 1)
        .reshape([b, h, l * columns])
        .pad_last_axis(l - 1, 1)
        .reshape([b, h, l, 2 * l])
        .last_axis(0..columns)
}

pub(crate) fn forward<B: Backend>(
    content: FloatTensor<B>,
    c2p: Option<FloatTensor<B>>,
    p2c: Option<FloatTensor<B>>,
    mask: Option<FloatTensor<B>>,
    scale: f64,
) -> FloatTensor<B> {
    let mut score = Value::<B>(content);
    let &[b, h, l, _] = score.shape().as_slice() else { unreachable!("checked to have rank 4") };
    if b * h * l == 0 {
        return score.0;
    }
    if let Some(c2p) = c2p {
        score = score + align(Value(c2p), [b, h, l]);
    }
    if let Some(p2c) = p2c {
        score = score + align(Value(p2c), [b, h, l]).swap(2, 3);
    }
    score = score * scale;
    if let Some(mask) = mask {
        return masked_softmax(score, Value::<B>(mask).reshape([b, 1, 1, l])).0;
    }
    let reference = score.clone().max(3);
    let weight = (score - reference.detach()).exp();
    (weight.clone() / weight.sum(3)).0
}

pub(crate) fn backward<B: Backend>(
    probability: FloatTensor<B>,
    grad: FloatTensor<B>,
    scale: f64,
    wanted: [bool; 2],
) -> (FloatTensor<B>, Option<FloatTensor<B>>, Option<FloatTensor<B>>) {
    let (p, grad) = (Value::<B>(probability), Value::<B>(grad));
    let &[b, h, l, _] = p.shape().as_slice() else { unreachable!("checked to have rank 4") };
    if b * h * l == 0 {
        let empty = wanted.map(|wanted| {
            wanted.then(|| grad.clone().reshape([b, h, l, (2 * l).saturating_sub(1)]).0)
        });
        let [c2p, p2c] = empty;
        return (grad.0, c2p, p2c);
    }
    let score = softmax_gradient(p, grad, scale);
    let c2p = wanted[0].then(|| spread(score.clone(), [b, h, l]).0);
    let p2c = wanted[1].then(|| spread(score.clone().swap(2, 3), [b, h, l]).0);
    (score.0, c2p, p2c)
}
