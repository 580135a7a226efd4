//! The softmax on slices: one task per head, one pass over its scores.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use crate::ops::cpu::{Real, contiguous, max, run, sum, sum_pairs, wide};

/// Rows of scores handled together: 16 neighbours along a position row fill one cache line, and
/// 16 rows of scores stay in the first-level cache.
const ROWS: usize = 16;

pub(crate) fn forward<E: Real>(
    content: FlexTensor,
    c2p: Option<FlexTensor>,
    p2c: Option<FlexTensor>,
    mask: Option<FlexTensor>,
    scale: f64,
) -> FlexTensor {
    let mut content = contiguous(content);
    let (c2p, p2c, mask) = (c2p.map(contiguous), p2c.map(contiguous), mask.map(contiguous));
    let (heads, length) = heads_and_length(&content);
    if content.shape().num_elements() == 0 {
        return content;
    }
    let position = length * (2 * length - 1);
    let c2p = c2p.as_ref().map(|term| E::slice(term));
    let p2c = p2c.as_ref().map(|term| E::slice(term));
    let mask = mask.as_ref().map(|mask| E::slice(mask));
    let scale = E::of(scale);
    let tasks = E::slice_mut(&mut content).chunks_exact_mut(length * length).enumerate().collect();
    run(tasks, |(task, scores): (usize, &mut [E])| {
        let c2p = c2p.map(|term| &term[task * position..][..position]);
        let p2c = p2c.map(|term| &term[task * position..][..position]);
        let mask = mask.map(|mask| &mask[task / heads * length..][..length]);
        head_forward(scores, [c2p, p2c, mask], length, scale);
    });
    content
}

wide! {
    /// Probabilities of one head over its scores; the optional terms are `c2p`, `p2c` and the mask.
    fn head_forward<'a, E>(
        scores: &'a mut [E],
        terms: [Option<&'a [E]>; 3],
        length: usize,
        scale: E,
    ) {
        let [c2p, p2c, mask] = terms;
        for (block, rows) in scores.chunks_mut(ROWS * length).enumerate() {
            if let Some(p2c) = p2c {
                add_transposed(p2c, rows, block * ROWS, length);
            }
            for (k, row) in rows.chunks_exact_mut(length).enumerate() {
                if let Some(c2p) = c2p {
                    let start = place(block * ROWS + k, 0, length);
                    for (score, &term) in row.iter_mut().zip(&c2p[start..][..length]) {
                        *score += term;
                    }
                }
                softmax(row, mask, scale);
            }
        }
    }

    /// Turns the gradient of one head's probabilities into that of its scores, and copies it to the
    /// shifted places of the position terms.
    fn head_backward<'a, E>(
        grad: &'a mut [E],
        probability: &'a [E],
        terms: [Option<&'a mut [E]>; 2],
        length: usize,
        scale: E,
    ) {
        let [mut c2p, mut p2c] = terms;
        let blocks = grad.chunks_mut(ROWS * length).zip(probability.chunks(ROWS * length));
        for (block, (rows, probabilities)) in blocks.enumerate() {
            let first = block * ROWS;
            let pairs = rows.chunks_exact_mut(length).zip(probabilities.chunks_exact(length));
            for (k, (row, p)) in pairs.enumerate() {
                let mean = sum_pairs(row, p, |grad, p| grad * p);
                for (grad, &p) in row.iter_mut().zip(p) {
                    *grad = p * (*grad - mean) * scale;
                }
                if let Some(c2p) = &mut c2p {
                    let start = place(first + k, 0, length);
                    c2p[start..][..length].copy_from_slice(row);
                }
            }
            if let Some(p2c) = &mut p2c {
                copy_transposed(rows, p2c, first, length);
            }
        }
    }
}

/// Heads per example, and the length.
fn heads_and_length(scores: &FlexTensor) -> (usize, usize) {
    let shape = scores.shape();
    (shape[1], shape[3])
}

/// Place of column `(L-1-row) + other` of row `row` in one head's position scores.
///
/// Rows start at `row(2L-1)`; neighbours in `other` are neighbours in memory.
#[inline(always)]
fn place(row: usize, other: usize, length: usize) -> usize {
    row * (2 * length - 2) + length - 1 + other
}

/// `rows[k, j] += p2c[j, (L-1-j) + first + k]`, by square tiles.
#[inline(always)]
fn add_transposed<E: Real>(p2c: &[E], rows: &mut [E], first: usize, length: usize) {
    let count = rows.len() / length;
    for start in (0..length).step_by(ROWS) {
        let columns = ROWS.min(length - start);
        let mut tile = [[E::ZERO; ROWS]; ROWS];
        for j in 0..columns {
            let line = &p2c[place(start + j, first, length)..][..count];
            if let Ok(line) = <&[E; ROWS]>::try_from(line) {
                for k in 0..ROWS {
                    tile[k][j] = line[k];
                }
            } else {
                for (row, &term) in tile.iter_mut().zip(line) {
                    row[j] = term;
                }
            }
        }
        for (row, tile) in rows.chunks_exact_mut(length).zip(&tile) {
            for (score, &term) in row[start..start + columns].iter_mut().zip(tile) {
                *score += term;
            }
        }
    }
}

/// `p2c[j, (L-1-j) + first + k] = rows[k, j]`, by square tiles.
#[inline(always)]
fn copy_transposed<E: Real>(rows: &[E], p2c: &mut [E], first: usize, length: usize) {
    let count = rows.len() / length;
    for start in (0..length).step_by(ROWS) {
        let columns = ROWS.min(length - start);
        let mut tile = [[E::ZERO; ROWS]; ROWS];
        for (k, row) in rows.chunks_exact(length).enumerate() {
            let piece = &row[start..start + columns];
            if let Ok(piece) = <&[E; ROWS]>::try_from(piece) {
                for j in 0..ROWS {
                    tile[j][k] = piece[j];
                }
            } else {
                for (line, &term) in tile.iter_mut().zip(piece) {
                    line[k] = term;
                }
            }
        }
        for (j, line) in tile.iter().take(columns).enumerate() {
            let at = place(start + j, first, length);
            p2c[at..at + count].copy_from_slice(&line[..count]);
        }
    }
}

/// Softmax of `scale · row` over the keys whose mask is not 0, in place.
#[inline(always)]
fn softmax<E: Real>(row: &mut [E], mask: Option<&[E]>, scale: E) {
    let lowest = E::of(f64::NEG_INFINITY);
    let total = if let Some(mask) = mask {
        // Masked scores leave the row before the maximum is taken.
        for (score, &live) in row.iter_mut().zip(mask) {
            *score = if live == E::ZERO { lowest } else { *score * scale };
        }
        let top = max(row, lowest);
        if top == lowest {
            row.fill(E::ZERO);
            return;
        }
        for (score, &live) in row.iter_mut().zip(mask) {
            let weight = (*score - top).exp();
            *score = if live == E::ZERO { E::ZERO } else { weight };
        }
        sum(row)
    } else {
        for score in row.iter_mut() {
            *score = *score * scale;
        }
        let top = max(row, lowest);
        for score in row.iter_mut() {
            *score = (*score - top).exp();
        }
        sum(row)
    };
    let factor = E::ONE / total;
    for weight in row {
        *weight = *weight * factor;
    }
}

pub(crate) fn backward<E: Real>(
    probability: FlexTensor,
    grad: FlexTensor,
    scale: f64,
    wanted: [bool; 2],
) -> (FlexTensor, Option<FlexTensor>, Option<FlexTensor>) {
    let (probability, mut grad) = (contiguous(probability), contiguous(grad));
    let shape = grad.shape();
    let length = shape[3];
    let columns = (2 * length).saturating_sub(1);
    let position_shape = Shape::new([shape[0], shape[1], length, columns]);
    let mut terms =
        wanted.map(|wanted| wanted.then(|| vec![E::ZERO; position_shape.num_elements()]));
    if shape.num_elements() > 0 {
        let [c2p, p2c] = &mut terms;
        let tasks = E::slice_mut(&mut grad)
            .chunks_exact_mut(length * length)
            .zip(E::slice(&probability).chunks_exact(length * length))
            .zip(per_head(c2p.as_deref_mut(), length * columns))
            .zip(per_head(p2c.as_deref_mut(), length * columns))
            .collect();
        let scale = E::of(scale);
        run(tasks, |(((grad, probability), c2p), p2c): Task<'_, E>| {
            head_backward(grad, probability, [c2p, p2c], length, scale);
        });
    }
    let [c2p, p2c] =
        terms.map(|values| values.map(|values| E::tensor(values, position_shape.clone())));
    (grad, c2p, p2c)
}

/// Scores, probabilities and the two optional position terms of one head.
type Task<'a, E> = (((&'a mut [E], &'a [E]), Option<&'a mut [E]>), Option<&'a mut [E]>);

/// The pieces of an optional buffer, one per head; without a buffer, nothing for ever.
fn per_head<E: Real>(
    values: Option<&mut [E]>,
    size: usize,
) -> impl Iterator<Item = Option<&mut [E]>> {
    let absent = values.is_none();
    let pieces = values.unwrap_or_default().chunks_exact_mut(size).map(Some);
    pieces.chain(std::iter::repeat_with(|| None).take(if absent { usize::MAX } else { 0 }))
}
