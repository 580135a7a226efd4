//! Noise under autodiff: a constant.

use burn::backend::AutodiffBackend;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use lrvd_core::noise::NoiseKey;

use crate::ops::backend::LrvdBackend;

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    like: FloatTensor<Autodiff<B, C>>,
    shape: Shape,
    key: NoiseKey,
) -> FloatTensor<Autodiff<B, C>> {
    let noise = B::fused_standard_normal(like.into_primitive(), shape, key);
    <Autodiff<B, C> as AutodiffBackend>::from_inner(noise)
}
