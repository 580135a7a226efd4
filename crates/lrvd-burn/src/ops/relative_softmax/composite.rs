//! The softmax from Burn's operations.
//!
//! The shift that aligns relative positions with keys is a reinterpretation of memory: with one
//! column of padding, rows of `2L` numbers read as rows of `2L-1` start one place earlier each.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;

use crate::ops::value::Value;

/// What separates a masked key from the live ones before the exponential.
pub(crate) fn far_below(dtype: DType) -> f64 {
    if dtype == DType::F16 { 3.0e4 } else { 1.0e30 }
}

/// Smallest denominator: a row with a live key has at least `exp(0) = 1`.
pub(crate) const LEAST_SUM: f64 = 0.5;

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
    let mask = mask.map(|mask| Value::<B>(mask).reshape([b, 1, 1, l]));
    let reference = match &mask {
        Some(mask) => {
            let penalty = (mask.clone() + -1.0) * far_below(score.dtype());
            (score.clone() * mask.clone() + penalty).max(3)
        }
        None => score.clone().max(3),
    };
    let difference = score - reference.detach();
    if let Some(mask) = mask {
        // The mask comes before the exponential too: a masked key may have any score.
        let weight = (difference * mask.clone()).exp() * mask;
        (weight.clone() / weight.sum(3).at_least(LEAST_SUM)).0
    } else {
        let weight = difference.exp();
        (weight.clone() / weight.sum(3)).0
    }
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
    let mean = (grad.clone() * p.clone()).sum(3);
    let score = p * (grad - mean) * scale;
    let c2p = wanted[0].then(|| spread(score.clone(), [b, h, l]).0);
    let p2c = wanted[1].then(|| spread(score.clone().swap(2, 3), [b, h, l]).0);
    (score.0, c2p, p2c)
}
