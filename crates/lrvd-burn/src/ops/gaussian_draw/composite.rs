//! Gaussian draws from Burn's operations.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use lrvd_core::noise::NoiseKey;

use crate::ops::backend::LrvdBackend;
use crate::ops::value::Value;

/// `[rows, columns]` as `[1, rows, columns]`.
fn as_one<B: LrvdBackend>(matrix: FloatTensor<B>) -> Value<B> {
    let shape = matrix.shape();
    Value(matrix).reshape([1, shape[0], shape[1]])
}

fn noise<B: LrvdBackend>(like: FloatTensor<B>, shape: [usize; 3], key: NoiseKey) -> Value<B> {
    Value(B::fused_standard_normal(like, Shape::new(shape), key))
}

pub(crate) fn forward<B: LrvdBackend>(
    mean: FloatTensor<B>,
    std: FloatTensor<B>,
    count: usize,
    key: NoiseKey,
) -> FloatTensor<B> {
    let shape = mean.shape();
    let eps = noise::<B>(mean.clone(), [count, shape[0], shape[1]], key);
    (as_one::<B>(mean) + eps * as_one::<B>(std)).0
}

pub(crate) fn backward<B: LrvdBackend>(
    std: FloatTensor<B>,
    grad: FloatTensor<B>,
    key: NoiseKey,
    needs_grad: [bool; 2],
) -> (Option<FloatTensor<B>>, Option<FloatTensor<B>>) {
    let (shape, narrow) = (grad.shape(), std.shape());
    let whole = [shape[1], shape[2]];
    let grad = Value::<B>(grad);
    let d_mean = needs_grad[0].then(|| grad.clone().sum(0).reshape(whole).0);
    let d_std = needs_grad[1].then(|| {
        let eps = noise::<B>(std, [shape[0], shape[1], shape[2]], key);
        summed(grad * eps, &narrow).0
    });
    (d_mean, d_std)
}

/// Sums over draws, and over the axes along which the standard deviation is one.
pub(super) fn summed<B: LrvdBackend>(products: Value<B>, narrow: &Shape) -> Value<B> {
    let shape = products.shape();
    let mut sums = products.sum(0).reshape([shape[1], shape[2]]);
    for axis in 0..2 {
        if narrow[axis] == 1 {
            sums = sums.sum(axis);
        }
    }
    sums
}
