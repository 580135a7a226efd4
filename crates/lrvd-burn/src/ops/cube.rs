//! What the kernels on CubeCL's devices share: they compute in `f32` for `f32`, `f16` and `bf16`.

mod rows;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::{CubeCount, CubeDim};

pub(super) use rows::{LOWEST, cube_max, cube_sum, exp_below, row_sizes};

/// An uninitialised tensor beside `like`, contiguous on every device: the kernels index linearly,
/// and CUDA's own layout pads rows.
pub(super) fn empty(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, like.dtype)
}

/// [`empty`] in single precision, whatever `like` holds.
pub(super) fn empty_single(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, DType::F32)
}

/// [`empty`] of the shape of `like`.
pub(super) fn empty_like(like: &CubeTensor) -> CubeTensor {
    empty(like, like.shape())
}

/// Cubes and units for one unit per `per_unit` elements; nothing to launch for an empty tensor.
pub(super) fn sizes(out: &CubeTensor, per_unit: usize) -> Option<(CubeCount, CubeDim)> {
    let units = out.shape().num_elements().div_ceil(per_unit);
    if units == 0 {
        return None;
    }
    let dim = CubeDim::new(&out.client, units);
    Some((calculate_cube_count_elemwise(&out.client, units, dim), dim))
}

/// Launches a kernel on contiguous inputs and fresh outputs, then what is no tensor; nothing for no sizes.
macro_rules! launch {
    ($kernel:ident, $sizes:expr, $dtype:expr, [$($input:expr),*] => [$first:ident $(, $out:ident)*] $(, $rest:expr)*) => {
        if let Some((count, dim)) = $sizes {
            let client = $first.client.clone();
            $kernel::launch(
                &client,
                count,
                dim,
                $($input.into_tensor_arg(),)*
                $first.clone().into_tensor_arg(),
                $($out.clone().into_tensor_arg(),)*
                $($rest,)*
                burn::backend::cubecl::dtype_to_storage_type($dtype),
            );
        }
    };
}
pub(super) use launch;
