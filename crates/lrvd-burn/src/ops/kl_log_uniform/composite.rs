//! The KL from Burn's operations.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use super::{FIT, LOG_VARIANCE, MEAN_EPSILON};
use crate::ops::value::Value;

/// `log_variance` along the rank axis of `mean`.
fn along<B: Backend>(vector: Value<B>, rank_axis: usize) -> Value<B> {
    let rank = vector.shape()[0];
    vector.reshape(if rank_axis == 0 { [rank, 1] } else { [1, rank] })
}

/// `a = clamp(log_variance) - ln(mean² + epsilon)`.
fn log_alpha<B: Backend>(mean: Value<B>, log_variance: Value<B>, rank_axis: usize) -> Value<B> {
    let log_variance = log_variance.clamp(LOG_VARIANCE[0], LOG_VARIANCE[1]);
    along(log_variance, rank_axis) - (mean.square() + MEAN_EPSILON).ln()
}

pub(crate) fn forward<B: Backend>(
    mean: FloatTensor<B>,
    log_variance: FloatTensor<B>,
    rank_axis: usize,
) -> FloatTensor<B> {
    let [k1, k2, k3] = FIT;
    let (mean, log_variance) = (Value::<B>(mean), Value::<B>(log_variance));
    let rank = log_variance.shape()[0];
    if mean.shape().contains(&0) {
        return (log_variance * 0.0).0;
    }
    let a = log_alpha(mean, log_variance, rank_axis);
    let saturation = (-(a.clone() * k3 + k2)).logistic() * k1;
    let kl = saturation + a.neg_log_sigmoid() * 0.5;
    kl.sum(1 - rank_axis).reshape([rank]).0
}

pub(crate) fn backward<B: Backend>(
    mean: FloatTensor<B>,
    log_variance: FloatTensor<B>,
    grad: FloatTensor<B>,
    rank_axis: usize,
    needs_grad: [bool; 2],
) -> (Option<FloatTensor<B>>, Option<FloatTensor<B>>) {
    let [k1, k2, k3] = FIT;
    let (mean, log_variance) = (Value::<B>(mean), Value::<B>(log_variance));
    let rank = log_variance.shape()[0];
    if mean.shape().contains(&0) {
        return (needs_grad[0].then_some(mean.0), needs_grad[1].then(|| (log_variance * 0.0).0));
    }
    let a = log_alpha(mean.clone(), log_variance.clone(), rank_axis);
    let z = a.clone() * k3 + k2;
    let bell = z.clone().logistic() * (-z).logistic();
    let slope = -(bell * (k1 * k3) + (-a).logistic() * 0.5);
    let slope = slope * along(Value(grad), rank_axis);
    let d_log_variance = needs_grad[1].then(|| {
        let inside = log_variance.inside(LOG_VARIANCE[0], LOG_VARIANCE[1]);
        (slope.clone().sum(1 - rank_axis).reshape([rank]) * inside).0
    });
    let d_mean = needs_grad[0].then(|| {
        let denominator = mean.clone().square() + MEAN_EPSILON;
        (slope * mean * -2.0 / denominator).0
    });
    (d_mean, d_log_variance)
}
