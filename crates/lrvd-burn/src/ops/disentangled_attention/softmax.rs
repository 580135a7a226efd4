//! Softmax of content and position scores from Burn's operations.
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

/// Probabilities of `content + shifted c2p + shifted p2c`, `[B, H, L, L]`; the position scores are
/// `[B, H, L, 2L−1]`.
pub(super) fn forward<B: Backend>(
    content: Value<B>,
    c2p: Option<Value<B>>,
    p2c: Option<Value<B>>,
    mask: Option<FloatTensor<B>>,
    scale: f64,
) -> Value<B> {
    let mut score = content;
    let &[b, h, l, _] = score.shape().as_slice() else { unreachable!("made with rank 4") };
    if let Some(c2p) = c2p {
        score = score + align(c2p, [b, h, l]);
    }
    if let Some(p2c) = p2c {
        score = score + align(p2c, [b, h, l]).swap(2, 3);
    }
    score = score * scale;
    if let Some(mask) = mask {
        return masked_softmax(score, Value::<B>(mask).reshape([b, 1, 1, l]));
    }
    let reference = score.clone().max(3);
    let weight = (score - reference.detach()).exp();
    weight.clone() / weight.sum(3)
}

/// Gradients of the content scores and, where `needs_grad`, of the position scores.
pub(super) fn backward<B: Backend>(
    probability: Value<B>,
    grad: Value<B>,
    scale: f64,
    needs_grad: [bool; 2],
) -> (Value<B>, [Option<Value<B>>; 2]) {
    let &[b, h, l, _] = probability.shape().as_slice() else { unreachable!("made with rank 4") };
    let score = softmax_gradient(probability, grad, scale);
    let c2p = needs_grad[0].then(|| spread(score.clone(), [b, h, l]));
    let p2c = needs_grad[1].then(|| spread(score.clone().swap(2, 3), [b, h, l]));
    (score, [c2p, p2c])
}
