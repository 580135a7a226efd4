//! Dropout on a device.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Dropout, threshold_and_factor};
use crate::ops::cube::{empty_like, launch, sizes};
use crate::ops::op::{Fused, Operands};
use crate::ops::standard_normal::cube::{KernelKey, kernel_key, philox};

/// One unit per block of four elements.
#[cube(launch)]
fn dropout_kernel<F: Float>(
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

pub(super) fn forward(op: &Dropout, x: Operands<CubeBackend>, _: bool) -> Fused<CubeBackend> {
    let [x] = x.all();
    Fused { out: dropped(x, op), saved: Operands::of([]) }
}

/// Linear, so that its gradient is the same operation.
pub(super) fn gradient(
    op: &Dropout,
    _: Operands<CubeBackend>,
    grad: CubeTensor,
    _: &[bool],
) -> Operands<CubeBackend> {
    Operands::of([dropped(grad, op)])
}

pub(in crate::ops) fn dropped(x: CubeTensor, &Dropout { rate, key }: &Dropout) -> CubeTensor {
    let (threshold, factor) = threshold_and_factor(rate);
    let x = into_contiguous(x);
    let out = empty_like(&x);
    launch!(dropout_kernel, sizes(&out, 4), out.dtype, [x] => [out], kernel_key(key), threshold, factor as f32);
    out
}
