//! Softmax of content and position scores on a device: one cube per row, sums in `f32`.
//!
//! Position scores stay as the products leave them, one column for every row of the table, and are read
//! at their places. What reads a place is summed by the place itself, in the order of the offsets, so
//! that no two units write to one number.

use cubecl::prelude::*;

use crate::ops::cube::{LOWEST, cube_max, cube_sum, exp_below};

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
pub(super) fn softmax_kernel<F: Float>(
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
pub(super) fn softmax_grad_kernel<F: Float>(
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
pub(super) fn place_sums_kernel<F: Float>(
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
