//! Noise made on the host, for backends without a generator.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, TensorData};
use lrvd_core::noise::{NoiseKey, fill_normal, fill_normal_f64};

use crate::ops::value::Value;

pub(crate) fn forward<B: Backend>(
    like: FloatTensor<B>,
    shape: Shape,
    key: NoiseKey,
) -> FloatTensor<B> {
    let like = Value::<B>(like);
    let count = shape.num_elements();
    let data = if like.dtype() == DType::F64 {
        let mut numbers = vec![0.0f64; count];
        fill_normal_f64(key, 0, &mut numbers);
        TensorData::new(numbers, shape)
    } else {
        let mut numbers = vec![0.0f32; count];
        fill_normal(key, 0, &mut numbers);
        TensorData::new(numbers, shape)
    };
    like.host(data).0
}
