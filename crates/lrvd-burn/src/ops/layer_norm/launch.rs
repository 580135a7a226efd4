//! Sizes and arguments of the layer normalisation kernels.
//!
//! Gain and shift are usually frozen; where they are not, the gain's gradient sums over rows what the
//! forward kernel gives with a gain of 1.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel::{layer_norm_grad_kernel, layer_norm_kernel};
use crate::ops::cube::{empty_like, row_sizes, sum_rows};
use crate::ops::value::{ThreeGradients, Value};

pub(crate) fn forward(x: CubeTensor, gamma: CubeTensor, beta: CubeTensor, eps: f64) -> CubeTensor {
    let (x, gamma, beta) = (into_contiguous(x), into_contiguous(gamma), into_contiguous(beta));
    let out = empty_like(&x);
    let (count, width) = (x.shape().num_elements(), gamma.shape().num_elements());
    if count == 0 {
        return out;
    }
    let (count, dim, units) = row_sizes(&out, count / width, width);
    layer_norm_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        gamma.into_tensor_arg(),
        beta.into_tensor_arg(),
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
    wanted: [bool; 3],
) -> ThreeGradients<CubeBackend> {
    if x.shape().num_elements() == 0 {
        return super::composite::backward::<CubeBackend>(x, gamma, grad, eps, wanted);
    }
    let d_x = wanted[0].then(|| of_input(x.clone(), gamma.clone(), grad.clone(), eps));
    let d_gamma = wanted[1].then(|| {
        let none = Value::<CubeBackend>(gamma.clone()) * 0.0;
        let normal = forward(x, (none.clone() + 1.0).0, none.0, eps);
        sum_rows(grad.clone(), Some(normal))
    });
    (d_x, d_gamma, wanted[2].then(|| sum_rows(grad, None)))
}

fn of_input(x: CubeTensor, gamma: CubeTensor, grad: CubeTensor, eps: f64) -> CubeTensor {
    let (x, gamma, grad) = (into_contiguous(x), into_contiguous(gamma), into_contiguous(grad));
    let out = empty_like(&grad);
    let width = gamma.shape().num_elements();
    let (count, dim, units) = row_sizes(&out, out.shape().num_elements() / width, width);
    layer_norm_grad_kernel::launch(
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
