//! Sums over all axes but the last: one cube per column, in `f32` and in a fixed order.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::Shape;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::empty;
use super::rows::{cube_sum, row_sizes};

/// Sums of `x`, or of `x · other`, over all axes but the last; `x` has at least one element.
pub(crate) fn sum_rows(x: CubeTensor, other: Option<CubeTensor>) -> CubeTensor {
    let x = into_contiguous(x);
    let (shape, other) = (x.shape(), other.map(into_contiguous));
    let width = shape[shape.len() - 1];
    let out = empty(&x, Shape::new([width]));
    let (count, dim, units) = row_sizes(&x, width, shape.num_elements() / width);
    column_sums_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        other.map(CubeTensor::into_tensor_arg).into(),
        out.clone().into_tensor_arg(),
        units,
        dtype_to_storage_type(out.dtype),
    );
    out
}

#[cube(launch)]
fn column_sums_kernel<F: Float>(
    x: &Tensor<F>,
    other: ComptimeOption<&Tensor<F>>,
    out: &mut Tensor<F>,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = out.len();
    if CUBE_POS >= width {
        terminate!();
    }
    let mut shared = Shared::<[f32]>::new_slice(units);
    let mut sum = 0.0f32;
    for row in range_stepped(UNIT_POS as usize, x.len() / width, units) {
        let at = row * width + CUBE_POS;
        let mut value = f32::cast_from(x[at]);
        #[comptime]
        match other {
            ComptimeOption::Some(other) => value *= f32::cast_from(other[at]),
            ComptimeOption::None => {}
        }
        sum += value;
    }
    let sum = cube_sum(sum, &mut shared);
    if UNIT_POS == 0 {
        out[CUBE_POS] = F::cast_from(sum);
    }
}
