//! Dropout on a device.

use cubecl::prelude::*;

use crate::ops::standard_normal::kernel::{KernelKey, philox};

/// One unit per block of four elements.
#[cube(launch)]
pub(super) fn dropout_kernel<F: Float>(
    x: &Tensor<F>,
    out: &mut Tensor<F>,
    key: KernelKey,
    threshold: u32,
    factor: f32,
    #[define(F)] _dtype: ElemType,
) {
    let start = ABSOLUTE_POS * 4;
    if start >= out.len() {
        terminate!();
    }
    let mut words = Array::<u32>::new(4usize);
    philox(&key, ABSOLUTE_POS as u32, &mut words);
    #[unroll]
    for lane in 0..4usize {
        if start + lane < out.len() {
            let value = f32::cast_from(x[start + lane]) * factor;
            out[start + lane] =
                F::cast_from(select((words[lane] >> 8u32) >= threshold, value, 0.0f32));
        }
    }
}
