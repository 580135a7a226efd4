//! Softmax over the rows of one head's scores.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use super::places::Places;
use crate::ops::cpu::{Real, max, sum, sum_pairs, wide};

/// Rows handled together, so that what their columns read stays in the first cache.
const ROWS: usize = 16;

/// Scores of every token with the position rows, `[L, count]`, and where they are read.
pub(super) struct Scores<'a> {
    pub(super) values: Vec<f32>,
    pub(super) places: &'a Places,
}

impl Scores<'_> {
    /// Scores of token `r`.
    #[inline(always)]
    fn row(&self, r: usize) -> &[f32] {
        &self.values[r * self.places.count()..][..self.places.count()]
    }
}

/// Turns the content scores of one head, `[L, L]`, into probabilities; `c2p` is read by query, `p2c` by key.
pub(super) fn masked_softmax(
    scores: &mut [f32],
    c2p: Option<&Scores<'_>>,
    p2c: Option<&Scores<'_>>,
    mask: Option<&[f32]>,
    scale: f32,
) {
    let tokens = scores.len().isqrt();
    for (block, rows) in scores.chunks_mut(ROWS * tokens).enumerate() {
        let first = block * ROWS;
        if let Some(p2c) = p2c {
            let count = rows.len() / tokens;
            for j in 0..tokens {
                let row = p2c.row(j);
                for (k, &place) in p2c.places.of(j, tokens, first, count).iter().enumerate() {
                    rows[k * tokens + j] += row[place as usize];
                }
            }
        }
        if let Some(c2p) = c2p {
            for (k, scores) in rows.chunks_exact_mut(tokens).enumerate() {
                let row = c2p.row(first + k);
                let places = c2p.places.of(first + k, tokens, 0, tokens);
                for (score, &place) in scores.iter_mut().zip(places) {
                    *score += row[place as usize];
                }
            }
        }
    }
    softmax_rows(scores, mask, tokens, scale);
}

wide! {
    /// Softmax of `scale · row` over the keys whose mask is not 0, row by row.
    fn softmax_rows<'a, E>(
        scores: &'a mut [E],
        mask: Option<&'a [E]>,
        tokens: usize,
        scale: E,
    ) {
        for row in scores.chunks_exact_mut(tokens) {
            softmax(row, mask, scale);
        }
    }

    /// Turns the gradient of probabilities `p` into that of the scores before their scale.
    fn gradient_rows<'a, E>(grad: &'a mut [E], p: &'a [E], tokens: usize, scale: E) {
        for (row, p) in grad.chunks_exact_mut(tokens).zip(p.chunks_exact(tokens)) {
            let mean = sum_pairs(row, p, |grad, p| grad * p);
            for (grad, &p) in row.iter_mut().zip(p) {
                *grad = p * (*grad - mean) * scale;
            }
        }
    }
}

/// Turns the gradient of the probabilities `p`, `[L, L]`, into that of the scores before their scale.
pub(super) fn softmax_gradient(grad: &mut [f32], p: &[f32], tokens: usize, scale: f32) {
    gradient_rows(grad, p, tokens, scale);
}

#[inline(always)]
fn softmax<E: Real>(row: &mut [E], mask: Option<&[E]>, scale: E) {
    let lowest = E::of(f64::NEG_INFINITY);
    for score in row.iter_mut() {
        *score = *score * scale;
    }
    if let Some(mask) = mask {
        // Masked scores leave the row before the maximum is taken.
        for (score, &live) in row.iter_mut().zip(mask) {
            *score = if live == E::ZERO { lowest } else { *score };
        }
    }
    let top = max(row, lowest);
    if top == lowest {
        row.fill(E::ZERO);
        return;
    }
    for score in row.iter_mut() {
        let weight = (*score - top).exp();
        *score = if *score == lowest { E::ZERO } else { weight };
    }
    let factor = E::ONE / sum(row);
    for weight in row {
        *weight = *weight * factor;
    }
}
