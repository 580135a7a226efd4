//! Sizes and arguments of the gate's kernels.

use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel::{gated_silu_grad_kernel, gated_silu_kernel};
use crate::ops::cube::{empty_like, sizes};

pub(crate) fn forward(gate: CubeTensor, up: CubeTensor) -> CubeTensor {
    let (gate, up) = (into_contiguous(gate), into_contiguous(up));
    let out = empty_like(&gate);
    let Some((count, dim)) = sizes(&out, 1) else { return out };
    gated_silu_kernel::launch(
        &out.client,
        count,
        dim,
        gate.into_tensor_arg(),
        up.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        dtype_to_storage_type(out.dtype),
    );
    out
}

/// Both gradients come from one reading of the arguments; both are nearly always wanted.
pub(crate) fn backward(
    gate: CubeTensor,
    up: CubeTensor,
    grad: CubeTensor,
    wanted: [bool; 2],
) -> (Option<CubeTensor>, Option<CubeTensor>) {
    let (gate, up, grad) = (into_contiguous(gate), into_contiguous(up), into_contiguous(grad));
    let (d_gate, d_up) = (empty_like(&grad), empty_like(&grad));
    if let Some((count, dim)) = sizes(&grad, 1) {
        gated_silu_grad_kernel::launch(
            &d_gate.client,
            count,
            dim,
            gate.into_tensor_arg(),
            up.into_tensor_arg(),
            grad.into_tensor_arg(),
            d_gate.clone().into_tensor_arg(),
            d_up.clone().into_tensor_arg(),
            dtype_to_storage_type(d_gate.dtype),
        );
    }
    (wanted[0].then_some(d_gate), wanted[1].then_some(d_up))
}
