//! Dropout on slices.

use burn::backend::Flex;
use burn_flex::FlexTensor;
use lrvd_core::noise::{NoiseKey, words};

use super::{Dropout, threshold_and_factor};
use crate::ops::cpu::{Real, TASK, contiguous, run};
use crate::ops::op::{Fused, Operands};

/// Words drawn at a time.
const WORDS: usize = 256;

pub(super) fn forward<E: Real>(op: &Dropout, x: Operands<Flex>, _: bool) -> Fused<Flex> {
    let [x] = x.all();
    Fused { out: dropped::<E>(x, op), saved: Operands::of([]) }
}

/// Linear, so that its gradient is the same operation.
pub(super) fn gradient<E: Real>(
    op: &Dropout,
    _: Operands<Flex>,
    grad: FlexTensor,
    _: &[bool],
) -> Operands<Flex> {
    Operands::of([dropped::<E>(grad, op)])
}

fn dropped<E: Real>(x: FlexTensor, &Dropout { rate, key }: &Dropout) -> FlexTensor {
    let mut x = contiguous(x);
    let tasks = E::slice_mut(&mut x).chunks_mut(TASK).enumerate().collect();
    run(tasks, |(task, chunk): (usize, &mut [E])| apply(chunk, task * TASK, rate, key));
    x
}

/// Drops elements `first..` of the mask of `key`.
pub(in crate::ops) fn apply<E: Real>(values: &mut [E], first: usize, rate: f64, key: NoiseKey) {
    let (threshold, factor) = threshold_and_factor(rate);
    let factor = E::of(factor);
    // Words come in blocks of four; the first block may begin before the first element.
    let skipped = first % 4;
    let mut random = [0u32; WORDS];
    let (head, rest) = values.split_at_mut((WORDS - skipped).min(values.len()));
    let pieces = std::iter::once((head, skipped)).chain(rest.chunks_mut(WORDS).map(|c| (c, 0)));
    for (i, (values, skipped)) in pieces.enumerate() {
        let first_block = (first / 4 + i * WORDS / 4) as u32;
        let random = &mut random[..skipped + values.len()];
        words(key, first_block, random);
        for (value, &word) in values.iter_mut().zip(&random[skipped..]) {
            *value = if word >> 8 >= threshold { *value * factor } else { E::ZERO };
        }
    }
}
