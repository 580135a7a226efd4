//! Sizes and arguments of the activation noise kernels.
//!
//! The backward pass writes `Γ` once and leaves its sums to Burn's reductions, whose order is fixed.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::Noise;
use super::kernel::{gaussian_kernel, rank_two_kernel};
use crate::ops::cube::{empty_like, sizes};
use crate::ops::standard_normal::launch::kernel_key;
use crate::ops::value::Value;

/// The output for `x = mean`, or `Γ` for `x` = gradient.
fn rank_two(
    x: CubeTensor,
    [q, w, t]: [CubeTensor; 3],
    noise: Noise,
    of_gradient: bool,
) -> CubeTensor {
    let x = into_contiguous(x);
    let out = empty_like(&x);
    let Some((count, dim)) = sizes(&out, 4) else { return out };
    rank_two_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        into_contiguous(q).into_tensor_arg(),
        into_contiguous(w).into_tensor_arg(),
        into_contiguous(t).into_tensor_arg(),
        out.clone().into_tensor_arg(),
        kernel_key(noise.key),
        noise.scale as f32,
        of_gradient,
        dtype_to_storage_type(out.dtype),
    );
    out
}

pub(crate) fn forward(
    mean: CubeTensor,
    q: CubeTensor,
    w: CubeTensor,
    t: CubeTensor,
    noise: Noise,
) -> CubeTensor {
    rank_two(mean, [q, w, t], noise, false)
}

pub(crate) fn backward(
    q: CubeTensor,
    w: CubeTensor,
    t: CubeTensor,
    grad: CubeTensor,
    noise: Noise,
    needs_grad: [bool; 3],
) -> (Option<CubeTensor>, Option<CubeTensor>, Option<CubeTensor>) {
    if grad.shape().num_elements() == 0 {
        return super::composite::backward::<CubeBackend>(q, w, t, grad, noise, needs_grad);
    }
    let gamma = rank_two(grad, [q.clone(), w.clone(), t], noise, true);
    super::composite::sums::<CubeBackend>(Value(gamma), Value(q), Value(w), needs_grad)
}

/// The output for `x = mean`, or the gradient of the variance for `x` = gradient.
fn gaussian(x: CubeTensor, variance: CubeTensor, noise: Noise, of_gradient: bool) -> CubeTensor {
    let x = into_contiguous(x);
    let out = empty_like(&x);
    let Some((count, dim)) = sizes(&out, 4) else { return out };
    gaussian_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        into_contiguous(variance).into_tensor_arg(),
        out.clone().into_tensor_arg(),
        kernel_key(noise.key),
        noise.scale as f32,
        of_gradient,
        dtype_to_storage_type(out.dtype),
    );
    out
}

pub(crate) fn gaussian_forward(mean: CubeTensor, variance: CubeTensor, noise: Noise) -> CubeTensor {
    gaussian(mean, variance, noise, false)
}

pub(crate) fn gaussian_backward(
    variance: CubeTensor,
    grad: CubeTensor,
    noise: Noise,
) -> CubeTensor {
    gaussian(grad, variance, noise, true)
}
