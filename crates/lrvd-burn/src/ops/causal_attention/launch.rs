//! Sizes and arguments of the attention kernels.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;

use super::kernel::{STATISTICS, attention_kernel, key_grad_kernel, query_grad_kernel};
use crate::ops::cube::{empty_like, empty_single, row_sizes};
use crate::ops::value::ThreeGradients;

/// What a cube's units share out: partners, then channels.
fn breadth(shape: &Shape) -> usize {
    shape[1].max(shape[3])
}

pub(crate) fn forward(
    query: CubeTensor,
    key: CubeTensor,
    value: CubeTensor,
    mask: CubeTensor,
    scale: f64,
) -> CubeTensor {
    let [query, key, value] = [query, key, value].map(into_contiguous);
    let mask = into_contiguous(cast(mask, query.dtype));
    let (out, shape) = (empty_like(&query), query.shape());
    if shape.num_elements() == 0 {
        return out;
    }
    let (count, dim, units) = row_sizes(&out, shape.num_elements() / shape[3], breadth(&shape));
    attention_kernel::launch(
        &out.client,
        count,
        dim,
        query.into_tensor_arg(),
        key.into_tensor_arg(),
        value.into_tensor_arg(),
        mask.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        scale as f32,
        units,
        shape[3].div_ceil(units),
        dtype_to_storage_type(out.dtype),
    );
    out
}

pub(crate) fn backward(
    arguments: [CubeTensor; 4],
    grad: CubeTensor,
    scale: f64,
    wanted: [bool; 3],
) -> ThreeGradients<CubeBackend> {
    if arguments[0].shape().num_elements() == 0 {
        return super::composite::backward::<CubeBackend>(arguments, grad, scale, wanted);
    }
    let [query, key, value, mask] = arguments.map(into_contiguous);
    let (mask, grad) = (into_contiguous(cast(mask, query.dtype)), into_contiguous(grad));
    let (d_query, shape) = (empty_like(&query), query.shape());
    let rows = shape.num_elements() / shape[3];
    let statistics = empty_single(&query, Shape::new([rows, STATISTICS]));
    let (count, dim, units) = row_sizes(&d_query, rows, breadth(&shape));
    let slots = shape[3].div_ceil(units);
    query_grad_kernel::launch(
        &d_query.client,
        count,
        dim,
        query.clone().into_tensor_arg(),
        key.clone().into_tensor_arg(),
        value.clone().into_tensor_arg(),
        mask.clone().into_tensor_arg(),
        grad.clone().into_tensor_arg(),
        d_query.clone().into_tensor_arg(),
        statistics.clone().into_tensor_arg(),
        scale as f32,
        units,
        slots,
        dtype_to_storage_type(d_query.dtype),
    );
    let d_query = wanted[0].then_some(d_query);
    if !wanted[1] && !wanted[2] {
        return (d_query, None, None);
    }
    let (d_key, d_value) = (empty_like(&key), empty_like(&value));
    let rows = key.shape().num_elements() / shape[3];
    let (count, dim, _) = row_sizes(&d_key, rows, breadth(&shape));
    key_grad_kernel::launch(
        &d_key.client,
        count,
        dim,
        query.into_tensor_arg(),
        key.into_tensor_arg(),
        value.into_tensor_arg(),
        mask.into_tensor_arg(),
        grad.into_tensor_arg(),
        statistics.into_tensor_arg(),
        d_key.clone().into_tensor_arg(),
        d_value.clone().into_tensor_arg(),
        scale as f32,
        units,
        slots,
        dtype_to_storage_type(d_key.dtype),
    );
    (d_query, wanted[1].then_some(d_key), wanted[2].then_some(d_value))
}
