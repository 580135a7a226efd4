//! Sizes and arguments of the root-mean-square normalisation kernels; the gain's gradient as for layer
//! normalisation.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel::{rms_norm_grad_kernel, rms_norm_kernel};
use crate::ops::cube::{empty_like, row_sizes, sum_rows};
use crate::ops::value::Value;

pub(crate) fn forward(x: CubeTensor, gamma: CubeTensor, eps: f64) -> CubeTensor {
    let (x, gamma) = (into_contiguous(x), into_contiguous(gamma));
    let out = empty_like(&x);
    let (count, width) = (x.shape().num_elements(), gamma.shape().num_elements());
    if count == 0 {
        return out;
    }
    let (count, dim, units) = row_sizes(&out, count / width, width);
    rms_norm_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        gamma.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        eps as f32,
        units,
        dtype_to_storage_type(out.dtype),
    );
    out
}

pub(crate) fn backward(
    x: CubeTensor,
    gamma: CubeTensor,
    grad: CubeTensor,
    eps: f64,
    wanted: [bool; 2],
) -> (Option<CubeTensor>, Option<CubeTensor>) {
    if x.shape().num_elements() == 0 {
        return super::composite::backward::<CubeBackend>(x, gamma, grad, eps, wanted);
    }
    let d_x = wanted[0].then(|| of_input(x.clone(), gamma.clone(), grad.clone(), eps));
    let d_gamma = wanted[1].then(|| {
        let ones = Value::<CubeBackend>(gamma.clone()) * 0.0 + 1.0;
        sum_rows(grad, Some(forward(x, ones.0, eps)))
    });
    (d_x, d_gamma)
}

fn of_input(x: CubeTensor, gamma: CubeTensor, grad: CubeTensor, eps: f64) -> CubeTensor {
    let (x, gamma, grad) = (into_contiguous(x), into_contiguous(gamma), into_contiguous(grad));
    let out = empty_like(&grad);
    let width = gamma.shape().num_elements();
    let (count, dim, units) = row_sizes(&out, out.shape().num_elements() / width, width);
    rms_norm_grad_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        gamma.into_tensor_arg(),
        grad.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        eps as f32,
        units,
        dtype_to_storage_type(out.dtype),
    );
    out
}
