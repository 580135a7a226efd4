//! Sizes and arguments of the dropout kernel.

use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use lrvd_core::noise::NoiseKey;

use super::kernel::dropout_kernel;
use super::threshold_and_factor;
use crate::ops::cube::{empty_like, sizes};
use crate::ops::standard_normal::launch::kernel_key;

pub(crate) fn forward(x: CubeTensor, rate: f64, key: NoiseKey) -> CubeTensor {
    let (threshold, factor) = threshold_and_factor(rate);
    let x = into_contiguous(x);
    let out = empty_like(&x);
    let Some((count, dim)) = sizes(&out, 4) else { return out };
    dropout_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        kernel_key(key),
        threshold,
        factor as f32,
        dtype_to_storage_type(out.dtype),
    );
    out
}
