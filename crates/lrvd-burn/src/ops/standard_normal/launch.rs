//! Sizes and arguments of the noise kernel.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::Shape;
use burn_cubecl::tensor::CubeTensor;
use lrvd_core::noise::NoiseKey;

use super::kernel::{KernelKeyLaunch, standard_normal_kernel};
use crate::ops::cube::{empty, sizes};

/// A key as a kernel argument.
pub(crate) fn kernel_key(key: NoiseKey) -> KernelKeyLaunch {
    let [seed_low, seed_high] = key.philox_key();
    KernelKeyLaunch::new(seed_low, seed_high, key.step, key.module, key.stream)
}

pub(crate) fn forward(like: CubeTensor, shape: Shape, key: NoiseKey) -> CubeTensor {
    let out = empty(&like, shape);
    let Some((count, dim)) = sizes(&out, 4) else { return out };
    standard_normal_kernel::launch(
        &out.client,
        count,
        dim,
        out.clone().into_tensor_arg(),
        kernel_key(key),
        dtype_to_storage_type(out.dtype),
    );
    out
}
