//! Dropout from Burn's operations.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::TensorData;
use lrvd_core::noise::{NoiseKey, fill_uniform};

use super::threshold_and_factor;
use crate::ops::value::Value;

pub(crate) fn forward<B: Backend>(x: FloatTensor<B>, rate: f64, key: NoiseKey) -> FloatTensor<B> {
    let shape = x.shape();
    let (_, factor) = threshold_and_factor(rate);
    let mut mask = vec![0.0f32; shape.num_elements()];
    fill_uniform(key, 0, &mut mask);
    for number in &mut mask {
        *number = f32::from(u8::from(f64::from(*number) >= rate));
    }
    let x = Value::<B>(x);
    let mask = x.host(TensorData::new(mask, shape));
    (x * mask * factor).0
}
