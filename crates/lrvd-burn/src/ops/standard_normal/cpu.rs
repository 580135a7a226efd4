//! Noise in slices.

use burn::tensor::Shape;
use burn_flex::FlexTensor;
use lrvd_core::noise::NoiseKey;

use crate::ops::cpu::{Real, TASK, run};

pub(crate) fn forward<E: Real>(_like: FlexTensor, shape: Shape, key: NoiseKey) -> FlexTensor {
    let mut numbers = vec![E::ZERO; shape.num_elements()];
    let tasks = numbers.chunks_mut(TASK).enumerate().collect();
    run(tasks, |(task, chunk): (usize, &mut [E])| {
        E::fill_normal(key, (task * TASK) as u64, chunk);
    });
    E::tensor(numbers, shape)
}
