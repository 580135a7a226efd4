//! Sizes and arguments of the KL's kernels.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel::{FormulaLaunch, kl_grad_kernel, kl_kernel};
use super::{FIT, LOG_VARIANCE, MEAN_EPSILON};
use crate::ops::cube::{empty_like, row_sizes};

/// The formula for a contiguous `mean`.
fn formula(mean: &CubeTensor, rank_axis: usize) -> FormulaLaunch {
    let (shape, [k1, k2, k3], [low, high]) = (mean.shape(), FIT, LOG_VARIANCE);
    let (width, columns) = (shape[1 - rank_axis] as u32, shape[1] as u32);
    let [rank_stride, stride] = if rank_axis == 0 { [columns, 1] } else { [1, columns] };
    let [k1, k2, k3, epsilon, low, high] = [k1, k2, k3, MEAN_EPSILON, low, high].map(|x| x as f32);
    FormulaLaunch::new(k1, k2, k3, epsilon, low, high, width, rank_stride, stride)
}

pub(crate) fn forward(mean: CubeTensor, log_variance: CubeTensor, rank_axis: usize) -> CubeTensor {
    if mean.shape().num_elements() == 0 {
        return super::composite::forward::<CubeBackend>(mean, log_variance, rank_axis);
    }
    let (mean, log_variance) = (into_contiguous(mean), into_contiguous(log_variance));
    let out = empty_like(&log_variance);
    let shape = mean.shape();
    let (count, dim, units) = row_sizes(&out, shape[rank_axis], shape[1 - rank_axis]);
    let formula = formula(&mean, rank_axis);
    kl_kernel::launch(
        &out.client,
        count,
        dim,
        mean.into_tensor_arg(),
        log_variance.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        formula,
        units,
        dtype_to_storage_type(out.dtype),
    );
    out
}

/// Both gradients come from one reading of the means; both are nearly always needed.
pub(crate) fn backward(
    mean: CubeTensor,
    log_variance: CubeTensor,
    grad: CubeTensor,
    rank_axis: usize,
    needs_grad: [bool; 2],
) -> (Option<CubeTensor>, Option<CubeTensor>) {
    if mean.shape().num_elements() == 0 {
        return super::composite::backward::<CubeBackend>(
            mean,
            log_variance,
            grad,
            rank_axis,
            needs_grad,
        );
    }
    let (mean, log_variance) = (into_contiguous(mean), into_contiguous(log_variance));
    let (d_mean, d_log_variance) = (empty_like(&mean), empty_like(&log_variance));
    let shape = mean.shape();
    let (count, dim, units) = row_sizes(&mean, shape[rank_axis], shape[1 - rank_axis]);
    let formula = formula(&mean, rank_axis);
    kl_grad_kernel::launch(
        &d_mean.client,
        count,
        dim,
        mean.into_tensor_arg(),
        log_variance.into_tensor_arg(),
        into_contiguous(grad).into_tensor_arg(),
        d_mean.clone().into_tensor_arg(),
        d_log_variance.clone().into_tensor_arg(),
        formula,
        units,
        dtype_to_storage_type(d_mean.dtype),
    );
    (needs_grad[0].then_some(d_mean), needs_grad[1].then_some(d_log_variance))
}
