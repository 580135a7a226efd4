//! Sizes and arguments of the GELU kernels.

use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel::{gelu_grad_kernel, gelu_kernel};
use crate::ops::cube::{empty_like, sizes};

pub(crate) fn forward(x: CubeTensor) -> CubeTensor {
    let x = into_contiguous(x);
    let out = empty_like(&x);
    let Some((count, dim)) = sizes(&out, 1) else { return out };
    gelu_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        dtype_to_storage_type(out.dtype),
    );
    out
}

pub(crate) fn backward(x: CubeTensor, grad: CubeTensor) -> CubeTensor {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let out = empty_like(&grad);
    let Some((count, dim)) = sizes(&out, 1) else { return out };
    gelu_grad_kernel::launch(
        &out.client,
        count,
        dim,
        x.into_tensor_arg(),
        grad.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        dtype_to_storage_type(out.dtype),
    );
    out
}
