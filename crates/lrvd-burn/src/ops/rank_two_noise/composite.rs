//! Activation noise from Burn's operations.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};

use super::{Noise, VARIANCE_EPSILON};
use crate::ops::standard_normal;
use crate::ops::value::{ThreeGradients, Value};

/// Noise of the shape of `like`.
fn scaled<B: Backend>(noise: Noise, like: &FloatTensor<B>) -> Value<B> {
    let Noise { key, scale } = noise;
    Value(standard_normal::composite::forward::<B>(like.clone(), like.shape(), key)) * scale
}

/// `q wᵀ + t`.
fn rank_two<B: Backend>(q: Value<B>, w: Value<B>, t: Value<B>) -> Value<B> {
    let (n, d) = (q.shape()[0], w.shape()[0]);
    q.reshape([n, 1]) * w.reshape([1, d]) + t.reshape([n, 1])
}

pub(crate) fn forward<B: Backend>(
    mean: FloatTensor<B>,
    q: FloatTensor<B>,
    w: FloatTensor<B>,
    t: FloatTensor<B>,
    noise: Noise,
) -> FloatTensor<B> {
    if mean.shape().num_elements() == 0 {
        return mean;
    }
    gaussian_forward::<B>(mean, rank_two::<B>(Value(q), Value(w), Value(t)).0, noise)
}

pub(crate) fn backward<B: Backend>(
    q: FloatTensor<B>,
    w: FloatTensor<B>,
    t: FloatTensor<B>,
    grad: FloatTensor<B>,
    noise: Noise,
    needs_grad: [bool; 3],
) -> ThreeGradients<B> {
    let (q, w, t) = (Value::<B>(q), Value::<B>(w), Value::<B>(t));
    let (n, d) = (q.shape()[0], w.shape()[0]);
    if n * d == 0 {
        let zeros = |v: &Value<B>| (v.clone() * 0.0).0;
        return (
            needs_grad[0].then(|| zeros(&q)),
            needs_grad[1].then(|| zeros(&w)),
            needs_grad[2].then(|| zeros(&t)),
        );
    }
    let variance = rank_two(q.clone(), w.clone(), t);
    let gamma = Value::<B>(gaussian_backward::<B>(variance.0, grad, noise));
    sums(gamma, q, w, needs_grad)
}

/// `Γ w`, `Γᵀ q` and `Γ 1`, where `needs_grad`.
pub(super) fn sums<B: Backend>(
    gamma: Value<B>,
    q: Value<B>,
    w: Value<B>,
    needs_grad: [bool; 3],
) -> ThreeGradients<B> {
    let (n, d) = (q.shape()[0], w.shape()[0]);
    let over_channels = |v: Value<B>| v.sum(1).reshape([n]).0;
    (
        needs_grad[0].then(|| over_channels(gamma.clone() * w.reshape([1, d]))),
        needs_grad[1].then(|| (gamma.clone() * q.reshape([n, 1])).sum(0).reshape([d]).0),
        needs_grad[2].then(|| over_channels(gamma)),
    )
}

/// `sqrt(max(variance, 0) + ε)`; the root's own floor holds where ε is below the format's numbers.
fn std<B: Backend>(variance: Value<B>) -> Value<B> {
    (variance.at_least(0.0) + VARIANCE_EPSILON).sqrt().at_least(VARIANCE_EPSILON.sqrt())
}

pub(crate) fn gaussian_forward<B: Backend>(
    mean: FloatTensor<B>,
    variance: FloatTensor<B>,
    noise: Noise,
) -> FloatTensor<B> {
    let noise = scaled::<B>(noise, &mean);
    (Value(mean) + noise * std(Value::<B>(variance))).0
}

pub(crate) fn gaussian_backward<B: Backend>(
    variance: FloatTensor<B>,
    grad: FloatTensor<B>,
    noise: Noise,
) -> FloatTensor<B> {
    let noise = scaled::<B>(noise, &variance);
    let variance = Value::<B>(variance);
    let passes = variance.clone().inside(0.0, f64::MAX);
    (Value(grad) * noise * passes * 0.5 / std(variance)).0
}
