//! Dropout on slices.

use burn_flex::FlexTensor;
use lrvd_core::noise::{NoiseKey, words};

use super::threshold_and_factor;
use crate::ops::cpu::{Real, TASK, contiguous, run};

/// Words drawn at a time.
const WORDS: usize = 256;

pub(crate) fn forward<E: Real>(x: FlexTensor, rate: f64, key: NoiseKey) -> FlexTensor {
    let (threshold, factor) = threshold_and_factor(rate);
    let factor = E::of(factor);
    let mut x = contiguous(x);
    let tasks = E::slice_mut(&mut x).chunks_mut(TASK).enumerate().collect();
    run(tasks, |(task, chunk): (usize, &mut [E])| {
        let mut random = [0u32; WORDS];
        for (i, values) in chunk.chunks_mut(WORDS).enumerate() {
            let first_block = (task * TASK + i * WORDS) / 4;
            let random = &mut random[..values.len()];
            words(key, first_block as u32, random);
            for (value, &word) in values.iter_mut().zip(&*random) {
                *value = if word >> 8 >= threshold { *value * factor } else { E::ZERO };
            }
        }
    });
    x
}
