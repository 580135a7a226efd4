//! Gaussian draws on a device, with the noise of `standard_normal`.

use cubecl::prelude::*;

use crate::ops::standard_normal::kernel::{KernelKey, normals};

/// `mean + std ⊙ eps`; one unit per four elements. Standard deviation of entry `[r, c]` at
/// `r · row_stride + c · column_stride`.
#[cube(launch)]
pub(super) fn draw_kernel<F: Float>(
    mean: &Tensor<F>,
    std: &Tensor<F>,
    out: &mut Tensor<F>,
    key: KernelKey,
    row_stride: u32,
    column_stride: u32,
    #[define(F)] _dtype: ElemType,
) {
    let start = ABSOLUTE_POS * 4;
    if start >= out.len() {
        terminate!();
    }
    let columns = mean.shape(1);
    let mut noise = Array::<f32>::new(4usize);
    normals(&key, ABSOLUTE_POS as u32, &mut noise);
    #[unroll]
    for lane in 0..4usize {
        let element = start + lane;
        if element < out.len() {
            let entry = element % mean.len();
            let (row, column) = (entry / columns, entry % columns);
            let at = row * row_stride as usize + column * column_stride as usize;
            let value = f32::cast_from(mean[entry]) + f32::cast_from(std[at]) * noise[lane];
            out[element] = F::cast_from(value);
        }
    }
}

/// `eps ⊙ x`, for the sums that make up the gradient of the standard deviation.
#[cube(launch)]
pub(super) fn times_noise_kernel<F: Float>(
    x: &Tensor<F>,
    out: &mut Tensor<f32>,
    key: KernelKey,
    #[define(F)] _dtype: ElemType,
) {
    let start = ABSOLUTE_POS * 4;
    if start >= out.len() {
        terminate!();
    }
    let mut noise = Array::<f32>::new(4usize);
    normals(&key, ABSOLUTE_POS as u32, &mut noise);
    #[unroll]
    for lane in 0..4usize {
        if start + lane < out.len() {
            out[start + lane] = f32::cast_from(x[start + lane]) * noise[lane];
        }
    }
}
