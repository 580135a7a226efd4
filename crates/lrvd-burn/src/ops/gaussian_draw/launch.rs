//! Sizes and arguments of the draws' kernels; sums are Burn's, whose order is fixed.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use lrvd_core::noise::NoiseKey;

use super::composite::summed;
use super::kernel::{draw_kernel, times_noise_kernel};
use crate::ops::cube::{empty, empty_single, sizes};
use crate::ops::standard_normal::launch::kernel_key;
use crate::ops::value::Value;

pub(crate) fn forward(
    mean: CubeTensor,
    std: CubeTensor,
    count: usize,
    key: NoiseKey,
) -> CubeTensor {
    let (mean, std) = (into_contiguous(mean), into_contiguous(std));
    let (shape, narrow) = (mean.shape(), std.shape());
    let out = empty(&mean, Shape::new([count, shape[0], shape[1]]));
    let Some((cubes, dim)) = sizes(&out, 4) else { return out };
    let row_stride = if narrow[0] == 1 { 0 } else { narrow[1] as u32 };
    draw_kernel::launch(
        &out.client,
        cubes,
        dim,
        mean.into_tensor_arg(),
        std.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        kernel_key(key),
        row_stride,
        u32::from(narrow[1] != 1),
        dtype_to_storage_type(out.dtype),
    );
    out
}

pub(crate) fn backward(
    std: CubeTensor,
    grad: CubeTensor,
    key: NoiseKey,
    needs_grad: [bool; 2],
) -> (Option<CubeTensor>, Option<CubeTensor>) {
    let (dtype, shape) = (grad.dtype, grad.shape());
    if shape.num_elements() == 0 {
        return super::composite::backward::<CubeBackend>(std, grad, key, needs_grad);
    }
    let d_mean = needs_grad[0].then(|| {
        let sums = Value::<CubeBackend>(cast(grad.clone(), DType::F32)).sum(0);
        cast(sums.reshape([shape[1], shape[2]]).0, dtype)
    });
    let d_std = needs_grad[1].then(|| {
        let products = times_noise(into_contiguous(grad), key);
        cast(summed::<CubeBackend>(Value(products), &std.shape()).0, dtype)
    });
    (d_mean, d_std)
}

fn times_noise(x: CubeTensor, key: NoiseKey) -> CubeTensor {
    let out = empty_single(&x, x.shape());
    let Some((cubes, dim)) = sizes(&out, 4) else { return out };
    let dtype = dtype_to_storage_type(x.dtype);
    times_noise_kernel::launch(
        &out.client,
        cubes,
        dim,
        x.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        kernel_key(key),
        dtype,
    );
    out
}
