//! Softmax over the rows of one head's scores.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use super::real::{Real, max, sum, sum_pairs};
use super::wide::wide;

wide! {
    /// Softmax of `scale · row` over the keys whose mask is not 0, row by row; row `i` sees the first
    /// `seen + i` keys, or all without a number.
    pub(crate) fn softmax_rows<'a, E>(
        scores: &'a mut [E],
        keys: usize,
        mask: Option<&'a [E]>,
        seen: Option<usize>,
        scale: E,
    ) {
        for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
            softmax(row, mask, seen.map_or(keys, |seen| seen + i), scale);
        }
    }

    /// Turns the gradient of the probabilities `p` into that of the scores before their scale.
    pub(crate) fn softmax_gradient_rows<'a, E>(
        grad: &'a mut [E],
        p: &'a [E],
        keys: usize,
        scale: E,
    ) {
        for (row, p) in grad.chunks_exact_mut(keys).zip(p.chunks_exact(keys)) {
            let mean = sum_pairs(row, p, |grad, p| grad * p);
            for (grad, &p) in row.iter_mut().zip(p) {
                *grad = p * (*grad - mean) * scale;
            }
        }
    }
}

/// Probabilities of the first `seen` keys that are not masked, 0 elsewhere.
#[inline(always)]
fn softmax<E: Real>(row: &mut [E], mask: Option<&[E]>, seen: usize, scale: E) {
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
    row[seen..].fill(lowest);
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
