//! Disentangled attention on a device: Burn's products, and kernels for what lies between them: the softmax of
//! content and position scores has one cube per row, and sums in `f32`.
//!
//! Position scores stay as the products leave them, one column for every row of the table, and are read
//! at their places. What reads a place is summed by the place itself, in the order of the offsets, so
//! that no two units write to one number.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::IntTensorOps;
use burn::tensor::{Shape, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::composite::{Term, arguments, join, split, whole};
use super::{AttentionLayout, DisentangledAttention};
use crate::ops::cube::{
    LOWEST, cube_max, cube_sum, empty, empty_like, exp_below, launch, row_sizes, sizes,
};
use crate::ops::dropout::{Dropout, cube::dropped as drop_out};
use crate::ops::op::{Fused, Operands};
use crate::ops::value::Value;

/// Score of query `i` with key `j` of the head whose first query has row `first`, before its scale.
#[cube]
fn score<F: Float>(
    content: &Tensor<F>,
    c2p: ComptimeOption<&Tensor<F>>,
    p2c: ComptimeOption<&Tensor<F>>,
    rows: &Tensor<i32>,
    first: usize,
    i: usize,
    j: usize,
) -> f32 {
    let tokens = content.shape(3);
    let row = usize::cast_from(rows[i + tokens - 1 - j]);
    let mut score = f32::cast_from(content[(first + i) * tokens + j]);
    #[comptime]
    match c2p {
        ComptimeOption::Some(c2p) => {
            score += f32::cast_from(c2p[(first + i) * c2p.shape(3) + row]);
        }
        ComptimeOption::None => {}
    }
    #[comptime]
    match p2c {
        ComptimeOption::Some(p2c) => {
            score += f32::cast_from(p2c[(first + j) * p2c.shape(3) + row]);
        }
        ComptimeOption::None => {}
    }
    score
}

/// Whether query `i` of `example` sees key `j`.
#[cube]
fn sees<F: Float>(
    mask: ComptimeOption<&Tensor<F>>,
    example: usize,
    tokens: usize,
    j: usize,
) -> bool {
    #[comptime]
    match mask {
        ComptimeOption::Some(mask) => f32::cast_from(mask[example * tokens + j]) != 0.0f32,
        ComptimeOption::None => true.runtime(),
    }
}

/// `content`, `out`: `[B, H, L, L]`; `c2p`, `p2c`: `[B, H, L, count]`; `mask`: `[B, L]`; `rows`: the row of
/// each offset `i - j + L - 1`.
#[cube(launch)]
fn softmax_kernel<F: Float>(
    content: &Tensor<F>,
    c2p: ComptimeOption<&Tensor<F>>,
    p2c: ComptimeOption<&Tensor<F>>,
    mask: ComptimeOption<&Tensor<F>>,
    rows: &Tensor<i32>,
    out: &mut Tensor<F>,
    scale: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let tokens = out.shape(3);
    if CUBE_POS >= out.len() / tokens {
        terminate!();
    }
    let i = CUBE_POS % tokens;
    let first = CUBE_POS - i;
    let example = first / tokens / out.shape(1);
    let mut shared = Shared::<[f32]>::new_slice(units);
    // Every unit keeps the maximum and the sum of what it has seen.
    let mut top = LOWEST.runtime();
    let mut total = 0.0f32;
    for j in range_stepped(UNIT_POS as usize, tokens, units) {
        if sees::<F>(mask, example, tokens, j) {
            let value = score::<F>(content, c2p, p2c, rows, first, i, j) * scale;
            let higher = top.max(value);
            total = total * exp_below(top - higher) + exp_below(value - higher);
            top = higher;
        }
    }
    let all = cube_max(top, &mut shared);
    let total = cube_sum(total * exp_below(top - all), &mut shared);
    let factor = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
    for j in range_stepped(UNIT_POS as usize, tokens, units) {
        let mut p = 0.0f32;
        if sees::<F>(mask, example, tokens, j) {
            let value = score::<F>(content, c2p, p2c, rows, first, i, j) * scale;
            p = exp_below(value - all) * factor;
        }
        out[CUBE_POS * tokens + j] = F::cast_from(p);
    }
}

/// `p · (grad - rowsum(grad · p)) · scale`, all `[.., L]`.
#[cube(launch)]
fn softmax_grad_kernel<F: Float>(
    p: &Tensor<F>,
    grad: &Tensor<F>,
    out: &mut Tensor<F>,
    scale: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let tokens = out.shape(3);
    if CUBE_POS >= out.len() / tokens {
        terminate!();
    }
    let start = CUBE_POS * tokens;
    let mut shared = Shared::<[f32]>::new_slice(units);
    let mut mean = 0.0f32;
    for j in range_stepped(UNIT_POS as usize, tokens, units) {
        mean += f32::cast_from(p[start + j]) * f32::cast_from(grad[start + j]);
    }
    let mean = cube_sum(mean, &mut shared);
    for j in range_stepped(UNIT_POS as usize, tokens, units) {
        let grad = f32::cast_from(grad[start + j]) - mean;
        out[start + j] = F::cast_from(f32::cast_from(p[start + j]) * grad * scale);
    }
}

/// Sums of a token's scores, `[B, H, L, L]`, over the places that read each row, `[B, H, L, count]`: its
/// scores as query, or as key if `of_keys`. Row `n` is read at `offsets[starts[n]..starts[n + 1]]`; one
/// unit per sum.
#[cube(launch)]
fn place_sums_kernel<F: Float>(
    scores: &Tensor<F>,
    starts: &Tensor<i32>,
    offsets: &Tensor<i32>,
    out: &mut Tensor<F>,
    #[comptime] of_keys: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let tokens = scores.shape(3);
    let count = out.shape(3);
    let row = ABSOLUTE_POS % count;
    let line = ABSOLUTE_POS / count;
    let token = line % tokens;
    let mut sum = 0.0f32;
    for k in usize::cast_from(starts[row])..usize::cast_from(starts[row + 1]) {
        let offset = usize::cast_from(offsets[k]);
        // The partner's number, with `L - 1` added so that none is negative.
        if of_keys {
            let partner = token + offset;
            if partner >= tokens - 1 && partner < 2 * tokens - 1 {
                let query = line - token + partner - (tokens - 1);
                sum += f32::cast_from(scores[query * tokens + token]);
            }
        } else {
            let partner = token + 2 * (tokens - 1) - offset;
            if partner >= tokens - 1 && partner < 2 * tokens - 1 {
                sum += f32::cast_from(scores[line * tokens + partner - (tokens - 1)]);
            }
        }
    }
    out[ABSOLUTE_POS] = F::cast_from(sum);
}

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
        Some((rate, key)) => Value(drop_out(p.0, &Dropout { rate, key })),
        None => p,
    }
}

/// Saved are the operands but for the mask, and the probabilities before dropout.
pub(super) fn forward(
    op: &DisentangledAttention,
    x: Operands<CubeBackend>,
    save: bool,
) -> Fused<CubeBackend> {
    let layout = &op.0;
    let mut saved = x.keep(save, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let (operands, terms, mask) = arguments(x);
    let [q, k, v] = operands.map(|x| split::<CubeBackend>(Value(x), layout.heads));
    let [keys, queries] = terms.map(|term| rows(&term, layout.heads).map(|rows| rows.swap(2, 3)));
    let c2p = keys.map(|rows| q.clone().matmul(rows));
    let p2c = queries.map(|rows| k.clone().matmul(rows));
    let p = softmax(q.matmul(k.swap(2, 3)), [c2p, p2c], mask, layout);
    if save {
        saved.tensors.push(Some(p.clone()));
    }
    Fused { out: join(dropped(Value(p), layout).matmul(v)).0, saved }
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
    let mask = mask.map(|mask| into_contiguous(mask).into_tensor_arg());
    let (sizes, units) = row_sizes(&out, shape.num_elements() / tokens, tokens);
    if let Some((count, dim)) = sizes {
        softmax_kernel::launch(
            &out.client,
            count,
            dim,
            content.into_tensor_arg(),
            c2p.into(),
            p2c.into(),
            mask.into(),
            offsets.into_tensor_arg(),
            out.clone().into_tensor_arg(),
            layout.scale as f32,
            units,
            dtype_to_storage_type(out.dtype),
        );
    }
    out
}

fn softmax_gradient(p: CubeTensor, grad: Device, scale: f64) -> Device {
    let (p, grad) = (into_contiguous(p), into_contiguous(grad.0));
    let out = empty_like(&p);
    let (shape, tokens) = (p.shape(), p.shape()[3]);
    let (sizes, units) = row_sizes(&out, shape.num_elements() / tokens, tokens);
    launch!(softmax_grad_kernel, sizes, out.dtype, [p, grad] => [out], scale as f32, units);
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
    let dtype = out.dtype;
    launch!(place_sums_kernel, sizes(&out, 1), dtype, [scores, starts, offsets] => [out], of_keys);
    Value(out)
}

pub(super) fn gradient(
    op: &DisentangledAttention,
    saved: Operands<CubeBackend>,
    grad: CubeTensor,
    needs_grad: &[bool],
) -> Operands<CubeBackend> {
    let layout = &op.0;
    let (operands, terms, probability) = arguments(saved);
    let probability = probability.expect("the forward pass saves them");
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
            of_terms.extend(of_rows(term, d_rows, needs_grad));
        } else {
            of_terms.extend([None, None, None]);
        }
    }
    let mut all = vec![d_q.map(|x| join(x).0), d_k.map(|x| join(x).0), d_v];
    all.extend(of_terms);
    all.into()
}

/// From the gradient of the rows of every sequence, `[B, rows, heads·d]`.
fn of_rows(
    term: &Term<CubeBackend>,
    d_rows: Device,
    needs_grad: &[bool],
) -> [Option<CubeTensor>; 3] {
    let [Some(shared), hidden, up] = term.clone() else { return [None, None, None] };
    let of_copies = |copies: usize| {
        let d_rows = d_rows.clone();
        if copies == 1 { d_rows.sum(0) } else { d_rows }
    };
    let d_shared = needs_grad[0].then(|| of_copies(shared.shape()[0]).0);
    let (Some(hidden), Some(up)) = (hidden, up) else { return [d_shared, None, None] };
    let d_low = of_copies(hidden.shape()[0]);
    let d_hidden =
        needs_grad[1].then(|| d_low.clone().matmul(Value::<CubeBackend>(up).swap(1, 2)).0);
    let d_up = needs_grad[2].then(|| Value::<CubeBackend>(hidden).swap(1, 2).matmul(d_low).0);
    [d_shared, d_hidden, d_up]
}
