//! Causal attention on a device, without a matrix of scores.
//!
//! One cube per row of queries, or of keys for their gradients. Units first share out the partners of
//! the row, one score each, and then the channels of the result; between the two a block of weights
//! passes through shared memory. Sums have one order and `f32` numbers.

use cubecl::prelude::*;

use crate::ops::cube::{LOWEST, cube_max, cube_sum, exp_below};

/// Numbers that the backward pass keeps of a query: the largest score, the reciprocal of the sum, and
/// the mean of the probabilities' gradient.
pub(super) const STATISTICS: usize = 3;

/// A row of queries and where the keys it meets begin.
#[derive(CubeType, Clone, Copy)]
struct Row {
    /// First token of the example, over all examples.
    example: usize,
    token: usize,
    /// Place of the query.
    start: usize,
    /// Place of the example's first key, and distance to the next.
    keys: usize,
    stride: usize,
}

#[cube]
fn row_of<F: Float>(query: &Tensor<F>, key: &Tensor<F>, row: usize) -> Row {
    let tokens = query.shape(1);
    let heads = query.shape(2);
    let width = query.shape(3);
    let groups = key.shape(2);
    let line = row / heads;
    let group = (row % heads) / (heads / groups);
    let example = line / tokens * tokens;
    Row {
        example,
        token: line % tokens,
        start: row * width,
        keys: (example * groups + group) * width,
        stride: groups * width,
    }
}

/// `Σ_e a[a_start + e] · b[b_start + e]`.
#[cube]
fn dot<F: Float>(
    a: &Tensor<F>,
    a_start: usize,
    b: &Tensor<F>,
    b_start: usize,
    width: usize,
) -> f32 {
    let mut sum = 0.0f32;
    for e in 0..width {
        sum += f32::cast_from(a[a_start + e]) * f32::cast_from(b[b_start + e]);
    }
    sum
}

#[cube]
fn is_live<F: Float>(mask: &Tensor<F>, token: usize) -> bool {
    f32::cast_from(mask[token]) != 0.0f32
}

/// Adds to the unit's channels `Σ_u weights[u] · x[first + u · stride + channel]`, `u < count`.
#[cube]
fn add_block<F: Float>(
    sums: &mut Array<f32>,
    weights: &Shared<[f32]>,
    x: &Tensor<F>,
    first: usize,
    stride: usize,
    count: usize,
    width: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
) {
    #[unroll]
    for slot in 0..slots {
        let channel = slot * units + UNIT_POS as usize;
        if channel < width {
            for u in 0..count {
                sums[slot] += weights[u] * f32::cast_from(x[first + u * stride + channel]);
            }
        }
    }
}

/// Writes the unit's channels.
#[cube]
fn write<F: Float>(
    sums: &Array<f32>,
    out: &mut Tensor<F>,
    start: usize,
    width: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
) {
    #[unroll]
    for slot in 0..slots {
        let channel = slot * units + UNIT_POS as usize;
        if channel < width {
            out[start + channel] = F::cast_from(sums[slot]);
        }
    }
}

#[cube]
fn zeros(#[comptime] slots: usize) -> Array<f32> {
    let mut sums = Array::<f32>::new(slots);
    #[unroll]
    for slot in 0..slots {
        sums[slot] = 0.0f32;
    }
    sums
}

#[cube(launch)]
pub(super) fn attention_kernel<F: Float>(
    query: &Tensor<F>,
    key: &Tensor<F>,
    value: &Tensor<F>,
    mask: &Tensor<F>,
    out: &mut Tensor<F>,
    scale: f32,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = query.shape(3);
    if CUBE_POS >= out.len() / width {
        terminate!();
    }
    let row = row_of::<F>(query, key, CUBE_POS);
    let mut shared = Shared::<[f32]>::new_slice(units);
    // Every unit keeps the maximum and the sum of what it has seen.
    let mut top = LOWEST.runtime();
    let mut total = 0.0f32;
    for s in range_stepped(UNIT_POS as usize, row.token + 1, units) {
        if is_live::<F>(mask, row.example + s) {
            let score = scale * dot::<F>(query, row.start, key, row.keys + s * row.stride, width);
            let higher = top.max(score);
            total = total * exp_below(top - higher) + exp_below(score - higher);
            top = higher;
        }
    }
    let all = cube_max(top, &mut shared);
    let total = cube_sum(total * exp_below(top - all), &mut shared);
    let factor = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
    let mut sums = zeros(slots);
    for block in range_stepped(0, row.token + 1, units) {
        let s = block + UNIT_POS as usize;
        let mut weight = 0.0f32;
        if s <= row.token {
            if is_live::<F>(mask, row.example + s) {
                let score =
                    scale * dot::<F>(query, row.start, key, row.keys + s * row.stride, width);
                weight = exp_below(score - all) * factor;
            }
        }
        sync_cube();
        shared[UNIT_POS as usize] = weight;
        sync_cube();
        let rest = row.token + 1 - block;
        let count = select(rest < units, rest, units);
        let first = row.keys + block * row.stride;
        add_block::<F>(&mut sums, &shared, value, first, row.stride, count, width, units, slots);
    }
    write::<F>(&sums, out, row.start, width, units, slots);
}

/// Gradient of the queries, and the statistics of every query for the other gradients.
#[cube(launch)]
pub(super) fn query_grad_kernel<F: Float>(
    query: &Tensor<F>,
    key: &Tensor<F>,
    value: &Tensor<F>,
    mask: &Tensor<F>,
    grad: &Tensor<F>,
    out: &mut Tensor<F>,
    statistics: &mut Tensor<f32>,
    scale: f32,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = query.shape(3);
    if CUBE_POS >= out.len() / width {
        terminate!();
    }
    let row = row_of::<F>(query, key, CUBE_POS);
    let mut shared = Shared::<[f32]>::new_slice(units);
    let mut top = LOWEST.runtime();
    let mut total = 0.0f32;
    let mut mean = 0.0f32;
    for s in range_stepped(UNIT_POS as usize, row.token + 1, units) {
        if is_live::<F>(mask, row.example + s) {
            let at = row.keys + s * row.stride;
            let score = scale * dot::<F>(query, row.start, key, at, width);
            let d_p = dot::<F>(grad, row.start, value, at, width);
            let higher = top.max(score);
            let before = exp_below(top - higher);
            let weight = exp_below(score - higher);
            total = total * before + weight;
            mean = mean * before + weight * d_p;
            top = higher;
        }
    }
    let all = cube_max(top, &mut shared);
    let before = exp_below(top - all);
    let total = cube_sum(total * before, &mut shared);
    let factor = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
    let mean = cube_sum(mean * before, &mut shared) * factor;
    if UNIT_POS == 0 {
        statistics[CUBE_POS * 3] = all;
        statistics[CUBE_POS * 3 + 1] = factor;
        statistics[CUBE_POS * 3 + 2] = mean;
    }
    let mut sums = zeros(slots);
    for block in range_stepped(0, row.token + 1, units) {
        let s = block + UNIT_POS as usize;
        let mut weight = 0.0f32;
        if s <= row.token {
            if is_live::<F>(mask, row.example + s) {
                let at = row.keys + s * row.stride;
                let score = scale * dot::<F>(query, row.start, key, at, width);
                let d_p = dot::<F>(grad, row.start, value, at, width);
                weight = exp_below(score - all) * factor * (d_p - mean) * scale;
            }
        }
        sync_cube();
        shared[UNIT_POS as usize] = weight;
        sync_cube();
        let rest = row.token + 1 - block;
        let count = select(rest < units, rest, units);
        let first = row.keys + block * row.stride;
        add_block::<F>(&mut sums, &shared, key, first, row.stride, count, width, units, slots);
    }
    write::<F>(&sums, out, row.start, width, units, slots);
}

/// Gradients of keys and values: the cube of a key walks over the later queries of its heads.
#[cube(launch)]
pub(super) fn key_grad_kernel<F: Float>(
    query: &Tensor<F>,
    key: &Tensor<F>,
    value: &Tensor<F>,
    mask: &Tensor<F>,
    grad: &Tensor<F>,
    statistics: &Tensor<f32>,
    d_key: &mut Tensor<F>,
    d_value: &mut Tensor<F>,
    scale: f32,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(F)] _dtype: ElemType,
) {
    let tokens = query.shape(1);
    let heads = query.shape(2);
    let width = query.shape(3);
    let groups = key.shape(2);
    if CUBE_POS >= d_key.len() / width {
        terminate!();
    }
    let start = CUBE_POS * width;
    let line = CUBE_POS / groups;
    let token = line % tokens;
    let members = heads / groups;
    let mut weights = Shared::<[f32]>::new_slice(units);
    let mut scores = Shared::<[f32]>::new_slice(units);
    let mut of_key = zeros(slots);
    let mut of_value = zeros(slots);
    for member in 0..members {
        let head = CUBE_POS % groups * members + member;
        // Blocks of queries from the key's own token on.
        for block in range_stepped(token, tokens, units) {
            let t = block + UNIT_POS as usize;
            let mut weight = 0.0f32;
            let mut d_score = 0.0f32;
            if t < tokens {
                if is_live::<F>(mask, line) {
                    let row = (line - token + t) * heads + head;
                    let score = scale * dot::<F>(query, row * width, key, start, width);
                    let d_p = dot::<F>(grad, row * width, value, start, width);
                    weight = exp_below(score - statistics[row * 3]) * statistics[row * 3 + 1];
                    d_score = weight * (d_p - statistics[row * 3 + 2]) * scale;
                }
            }
            sync_cube();
            weights[UNIT_POS as usize] = weight;
            scores[UNIT_POS as usize] = d_score;
            sync_cube();
            let rest = tokens - block;
            let count = select(rest < units, rest, units);
            let first = ((line - token + block) * heads + head) * width;
            let stride = heads * width;
            add_block::<F>(
                &mut of_value,
                &weights,
                grad,
                first,
                stride,
                count,
                width,
                units,
                slots,
            );
            add_block::<F>(&mut of_key, &scores, query, first, stride, count, width, units, slots);
        }
    }
    write::<F>(&of_key, d_key, start, width, units, slots);
    write::<F>(&of_value, d_value, start, width, units, slots);
}
