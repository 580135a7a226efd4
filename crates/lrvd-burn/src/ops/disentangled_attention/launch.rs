//! Disentangled attention on a device: Burn's products, and kernels for what lies between them.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::IntTensorOps;
use burn::tensor::{Shape, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::AttentionLayout;
use super::composite::{self, Term, join, split, whole};
use super::kernel::{place_sums_kernel, softmax_grad_kernel, softmax_kernel};
use crate::ops::cube::{empty, empty_like, row_sizes, sizes};
use crate::ops::dropout;
use crate::ops::value::Value;

type Device = Value<CubeBackend>;

/// The rows of a term, `[1 | B, heads, rows, d]`.
fn rows(term: &Term<CubeBackend>, heads: usize) -> Option<Device> {
    whole::<CubeBackend>(term).map(|rows| split(rows, heads))
}

fn indices(values: Vec<i32>, like: &CubeTensor) -> CubeTensor {
    let count = values.len();
    CubeBackend::int_from_data(TensorData::new(values, [count]), &like.device)
}

fn dropped(p: Device, layout: &AttentionLayout) -> Device {
    match layout.dropout {
        Some((rate, key)) => Value(dropout::launch::forward(p.0, rate, key)),
        None => p,
    }
}

/// The output and the probabilities before dropout.
pub(crate) fn forward(
    operands: [CubeTensor; 3],
    terms: [Term<CubeBackend>; 2],
    mask: Option<CubeTensor>,
    layout: &AttentionLayout,
) -> (CubeTensor, CubeTensor) {
    if operands[0].shape().num_elements() == 0 {
        return composite::forward::<CubeBackend>(operands, terms, mask, layout);
    }
    let [q, k, v] = operands.map(|x| split::<CubeBackend>(Value(x), layout.heads));
    let [keys, queries] = terms.map(|term| rows(&term, layout.heads).map(|rows| rows.swap(2, 3)));
    let c2p = keys.map(|rows| q.clone().matmul(rows));
    let p2c = queries.map(|rows| k.clone().matmul(rows));
    let p = softmax(q.matmul(k.swap(2, 3)), [c2p, p2c], mask, layout);
    let out = join(dropped(Value(p.clone()), layout).matmul(v));
    (out.0, p)
}

fn softmax(
    content: Device,
    positions: [Option<Device>; 2],
    mask: Option<CubeTensor>,
    layout: &AttentionLayout,
) -> CubeTensor {
    let content = into_contiguous(content.0);
    let shape = content.shape();
    let tokens = shape[3];
    let out = empty_like(&content);
    let mut offsets: Vec<i32> = layout.rows.iter().map(|&row| row as i32).collect();
    // Without positions nothing uses what is read there.
    offsets.resize(2 * tokens - 1, 0);
    let offsets = indices(offsets, &out);
    let [c2p, p2c] = positions.map(|scores| scores.map(|x| into_contiguous(x.0).into_tensor_arg()));
    let (count, dim, units) = row_sizes(&out, shape.num_elements() / tokens, tokens);
    softmax_kernel::launch(
        &out.client,
        count,
        dim,
        content.into_tensor_arg(),
        c2p.into(),
        p2c.into(),
        mask.map(|mask| into_contiguous(mask).into_tensor_arg()).into(),
        offsets.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        layout.scale as f32,
        units,
        dtype_to_storage_type(out.dtype),
    );
    out
}

fn softmax_gradient(p: CubeTensor, grad: Device, scale: f64) -> Device {
    let (p, grad) = (into_contiguous(p), into_contiguous(grad.0));
    let out = empty_like(&p);
    let (shape, tokens) = (p.shape(), p.shape()[3]);
    let (count, dim, units) = row_sizes(&out, shape.num_elements() / tokens, tokens);
    softmax_grad_kernel::launch(
        &out.client,
        count,
        dim,
        p.into_tensor_arg(),
        grad.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        scale as f32,
        units,
        dtype_to_storage_type(out.dtype),
    );
    Value(out)
}

/// The offsets that read each of `count` rows, in order: those of row `n` lie from `starts[n]` to
/// `starts[n + 1]`.
fn readers(rows: &[u32], count: usize) -> [Vec<i32>; 2] {
    let mut offsets: Vec<usize> = (0..rows.len()).collect();
    offsets.sort_by_key(|&offset| rows[offset]);
    let starts = (0..=count).map(|row| offsets.partition_point(|&o| (rows[o] as usize) < row));
    [starts.map(|start| start as i32).collect(), offsets.iter().map(|&o| o as i32).collect()]
}

/// Gradient of the position scores, `[B, H, L, count]`, from that of the scores, `[B, H, L, L]`.
fn place_sums(scores: &Device, layout: &AttentionLayout, count: usize, of_keys: bool) -> Device {
    let scores = into_contiguous(scores.0.clone());
    let [starts, offsets] = readers(&layout.rows, count).map(|list| indices(list, &scores));
    let shape = scores.shape();
    let out = empty(&scores, Shape::new([shape[0], shape[1], shape[2], count]));
    if let Some((cubes, dim)) = sizes(&out, 1) {
        place_sums_kernel::launch(
            &out.client,
            cubes,
            dim,
            scores.into_tensor_arg(),
            starts.into_tensor_arg(),
            offsets.into_tensor_arg(),
            out.clone().into_tensor_arg(),
            of_keys,
            dtype_to_storage_type(out.dtype),
        );
    }
    Value(out)
}

/// Gradients in the order of the composite's.
pub(crate) fn backward(
    operands: [CubeTensor; 3],
    terms: [Term<CubeBackend>; 2],
    probability: CubeTensor,
    grad: CubeTensor,
    layout: &AttentionLayout,
    needs_grad: [bool; 9],
) -> Vec<Option<CubeTensor>> {
    if operands[0].shape().num_elements() == 0 {
        return composite::backward::<CubeBackend>(
            operands,
            terms,
            probability,
            grad,
            layout,
            needs_grad,
        );
    }
    let [q, k, v] = operands.map(|x| split::<CubeBackend>(Value(x), layout.heads));
    let grad = split::<CubeBackend>(Value(grad), layout.heads);
    let d_v = needs_grad[2].then(|| {
        let kept = dropped(Value(probability.clone()), layout);
        join(kept.swap(2, 3).matmul(grad.clone())).0
    });
    let d_p = dropped(grad.matmul(v.swap(2, 3)), layout);
    let d_score = softmax_gradient(probability, d_p, layout.scale);
    let mut d_q = needs_grad[0].then(|| d_score.clone().matmul(k.clone()));
    let mut d_k = needs_grad[1].then(|| d_score.clone().swap(2, 3).matmul(q.clone()));
    let mut of_terms = Vec::new();
    let parts = [(&q, &mut d_q, false), (&k, &mut d_k, true)];
    for ((term, part), needs_grad) in terms.iter().zip(parts).zip(needs_grad[3..].chunks_exact(3)) {
        let (x, d_x, of_keys) = part;
        let Some(rows) = rows(term, layout.heads) else {
            of_terms.extend([None, None, None]);
            continue;
        };
        let d_term = place_sums(&d_score, layout, rows.shape()[2], of_keys);
        if let Some(d_x) = d_x {
            *d_x = d_x.clone() + d_term.clone().matmul(rows);
        }
        if needs_grad.contains(&true) {
            let d_rows = join(d_term.swap(2, 3).matmul(x.clone()));
            of_terms.extend(composite::of_rows(term, d_rows, needs_grad));
        } else {
            of_terms.extend([None, None, None]);
        }
    }
    let mut all = vec![d_q.map(|x| join(x).0), d_k.map(|x| join(x).0), d_v];
    all.extend(of_terms);
    all
}
