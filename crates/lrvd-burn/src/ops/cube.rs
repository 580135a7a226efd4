//! Common parts of the kernels on CubeCL's devices, which compute in `f32` for `f32`, `f16` and `bf16`.
//!
//! Kernels of rows have one cube per row: its units walk along the row and reduce in shared memory, in a fixed order.

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::{self as cubecl, calculate_cube_count_elemwise};

/// Names that every kernel uses.
pub(crate) mod prelude {
    pub(crate) use burn::backend::TensorMetadata;
    pub(crate) use burn_cubecl::CubeBackend as Cube;
    pub(crate) use burn_cubecl::kernel::into_contiguous;
    pub(crate) use burn_cubecl::tensor::CubeTensor;
    pub(crate) use cubecl::prelude::*;

    pub(crate) use super::{LOWEST, cube_reduce, empty, exp_below, launch, row_sizes, sizes};
    pub(crate) use crate::ops::op::{Fused, Operands, Upstream};
    pub(crate) use crate::ops::value::Value;
}

/// An uninitialised tensor beside `like`, contiguous on every device: the kernels index linearly,
/// and CUDA's own layout pads rows.
pub(crate) fn empty(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, like.dtype)
}

/// Cubes and units for one unit per `per_unit` elements; nothing to launch for an empty tensor.
pub(crate) fn sizes(out: &CubeTensor, per_unit: usize) -> Option<(CubeCount, CubeDim)> {
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
pub(crate) use launch;

/// Units of a cube at most: what every device of `WebGPU` offers.
const MOST_UNITS: usize = 256;
/// Units of a cube at least: a plane of most devices.
const FEWEST_UNITS: usize = 32;

/// Below every score: the start of a maximum. Not every device has an infinity.
pub(crate) const LOWEST: f32 = -3.0e38;

/// Cubes and units for `rows` rows of `width` numbers, of which there is at least one; cubes beyond
/// the rows must end by themselves.
pub(crate) fn row_sizes(
    like: &CubeTensor,
    rows: usize,
    width: usize,
) -> (Option<(CubeCount, CubeDim)>, usize) {
    let units = width.next_power_of_two().clamp(FEWEST_UNITS, MOST_UNITS);
    let dim = CubeDim::new_1d(units as u32);
    (Some((calculate_cube_count_elemwise(&like.client, rows * units, dim), dim)), units)
}

/// Sum or, if `largest`, the largest of the values of a cube's units, whose number is a power of two; every unit gets it.
#[cube]
pub(crate) fn cube_reduce(
    value: f32,
    shared: &mut Shared<[f32]>,
    #[comptime] largest: bool,
) -> f32 {
    // What an earlier reduction left may still be read.
    sync_cube();
    shared[UNIT_POS as usize] = value;
    sync_cube();
    let mut active = CUBE_DIM / 2;
    while active > 0 {
        if UNIT_POS < active {
            let own = shared[UNIT_POS as usize];
            let other = shared[(UNIT_POS + active) as usize];
            if largest {
                shared[UNIT_POS as usize] = own.max(other);
            } else {
                shared[UNIT_POS as usize] = own + other;
            }
        }
        sync_cube();
        active /= 2;
    }
    shared[0]
}

/// `exp(x)` of `x <= 0`, and exactly 0 where it would leave the normal numbers and, on some devices, with
/// them the finite; what is no number stays none.
#[cube]
pub(crate) fn exp_below(x: f32) -> f32 {
    select(x < -87.0f32, 0.0f32, x.exp())
}
