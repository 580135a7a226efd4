//! Gaussian draws on a device, with the noise of `standard_normal`; sums are Burn's, whose order is fixed.

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::GaussianDraw;
use crate::ops::cube::{empty, empty_single, launch, sizes};
use crate::ops::op::{Fused, Operands};
use crate::ops::standard_normal::cube::{KernelKey, kernel_key, normals};
use crate::ops::value::Value;

/// `mean + std ⊙ eps`; one unit per four elements. Standard deviation of entry `[r, c]` at
/// `r · row_stride + c · column_stride`.
#[cube(launch)]
fn draw_kernel<F: Float>(
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
fn times_noise_kernel<F: Float>(
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

pub(super) fn forward(
    op: &GaussianDraw,
    x: Operands<CubeBackend>,
    save: bool,
) -> Fused<CubeBackend> {
    let saved = x.keep(save, &[1]);
    let [mean, std] = x.all().map(into_contiguous);
    let (shape, narrow) = (mean.shape(), std.shape());
    let out = empty(&mean, Shape::new([op.count, shape[0], shape[1]]));
    let row_stride = if narrow[0] == 1 { 0 } else { narrow[1] as u32 };
    let column_stride = u32::from(narrow[1] != 1);
    launch!(draw_kernel, sizes(&out, 4), out.dtype, [mean, std] => [out],
        kernel_key(op.key), row_stride, column_stride);
    Fused { out, saved }
}

pub(super) fn gradient(
    op: &GaussianDraw,
    saved: Operands<CubeBackend>,
    grad: CubeTensor,
    needs_grad: &[bool],
) -> Operands<CubeBackend> {
    let [std] = saved.all();
    let (dtype, shape, narrow) = (grad.dtype, grad.shape(), std.shape());
    let over_draws = |x: CubeTensor| Value::<CubeBackend>(x).sum(0).reshape([shape[1], shape[2]]);
    let d_mean = needs_grad[0].then(|| {
        let sums = over_draws(cast(grad.clone(), DType::F32));
        cast(sums.0, dtype)
    });
    let d_std = needs_grad[1].then(|| {
        let grad = into_contiguous(grad);
        let products = empty_single(&grad, grad.shape());
        launch!(times_noise_kernel, sizes(&products, 4), dtype, [grad] => [products],
            kernel_key(op.key));
        let mut sums = over_draws(products);
        // Over the axes along which the standard deviation is one.
        for axis in (0..2).filter(|&axis| narrow[axis] == 1) {
            sums = sums.sum(axis);
        }
        cast(sums.0, dtype)
    });
    Operands::some([d_mean, d_std])
}
