//! Content and position scores of one head, and their softmax.

use super::places::Places;
use crate::ops::cpu::softmax_rows;

/// Rows handled together, so that what their columns read stays in the first cache.
const ROWS: usize = 16;

/// Scores of every token with the position rows, `[L, count]`, and where they are read.
pub(super) struct Scores<'a> {
    pub(super) values: Vec<f32>,
    pub(super) places: &'a Places,
}

impl Scores<'_> {
    /// Scores of token `r`.
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
    softmax_rows(scores, tokens, mask, None, scale);
}
