//! The KL on slices: one pass, in blocks of entries with their log-variances beside them.
//!
//! With `m = mean² + epsilon` and `r = m · exp(-log_variance) = exp(-a)` an entry needs one
//! logarithm, one exponential and two divisions:
//!
//! ```text
//! KL = k1 / (1 + exp(k2 + k3·a)) + ½·ln(1 + r),   σ(-a) = r / (1 + r)
//! ```

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::{FIT, KlLogUniform, LOG_VARIANCE, MEAN_EPSILON};
use crate::ops::cpu::{Real, contiguous, run, sum, sum_rows, wide};
use crate::ops::op::{Fused, Operands};

/// Entries evaluated at a time; a block holds whole rows of ranks if ranks lie along axis 1.
const BLOCK: usize = 512;
/// Blocks of a task.
const BLOCKS: usize = 8;

/// `1 + exp(k2 + k3·a)`.
#[inline(always)]
fn saturation<E: Real>(a: E) -> E {
    E::ONE + (E::of(FIT[1]) + E::of(FIT[2]) * a).exp()
}

/// KL of one entry; `inverse` is `exp(-log_variance)`.
#[inline(always)]
fn entry<E: Real>(mean: E, log_variance: E, inverse: E) -> E {
    let m = mean * mean + E::of(MEAN_EPSILON);
    let a = log_variance - m.ln();
    E::of(FIT[0]) / saturation(a) + E::of(0.5) * (m * inverse).ln_1p()
}

/// `KL'(a)` of one entry, and `m`.
#[inline(always)]
fn entry_slope<E: Real>(mean: E, log_variance: E, inverse: E) -> (E, E) {
    let m = mean * mean + E::of(MEAN_EPSILON);
    let a = log_variance - m.ln();
    let s = E::ONE / saturation(a);
    let r = m * inverse;
    let bell = s * (E::ONE - s);
    (-(E::of(FIT[0] * FIT[2]) * bell + E::of(0.5) * r / (E::ONE + r)), m)
}

wide! {
    /// KL of every entry of a block.
    fn block_forward<'a, E>(
        values: &'a mut [E],
        mean: &'a [E],
        log_variance: &'a [E],
        inverse: &'a [E],
    ) {
        let entries = values.iter_mut().zip(mean).zip(log_variance).zip(inverse);
        for (((value, &mean), &log_variance), &inverse) in entries {
            *value = entry(mean, log_variance, inverse);
        }
    }

    /// `KL'(a)` of every entry of a block, and the gradient of its mean; `factor` is `-2` times the
    /// incoming gradient of the entry's rank.
    fn block_backward<'a, E>(
        slopes: &'a mut [E],
        d_mean: &'a mut [E],
        mean: &'a [E],
        log_variance: &'a [E],
        inverse: &'a [E],
        factor: &'a [E],
    ) {
        let entries = slopes.iter_mut().zip(mean).zip(log_variance).zip(inverse);
        for ((((slope, &mean), &log_variance), &inverse), d_mean) in entries.zip(&mut *d_mean) {
            let (g, m) = entry_slope(mean, log_variance, inverse);
            *slope = g;
            *d_mean = g * mean / m;
        }
        for (d_mean, &factor) in d_mean.iter_mut().zip(factor) {
            *d_mean = *d_mean * factor;
        }
    }
}

/// How the entries of `mean` map to ranks, cut into tasks and blocks.
///
/// Along axis 0 a task is one rank's row; along axis 1 it is some blocks of whole rows of ranks.
struct Layout<E> {
    /// Clamped log-variances; along axis 1 repeated to the length of a block.
    log_variance: Vec<E>,
    rank: usize,
    width: usize,
    rank_axis: usize,
}

impl<E: Real> Layout<E> {
    fn new(log_variance: &[E], shape: &Shape, rank_axis: usize) -> Self {
        let rank = log_variance.len();
        let once: Vec<E> = log_variance.iter().map(|&l| clamp(l)).collect();
        let log_variance = if rank_axis == 0 { once } else { once.repeat((BLOCK / rank).max(1)) };
        Self { log_variance, rank, width: shape[1 - rank_axis], rank_axis }
    }

    /// Entries of a block.
    fn block(&self) -> usize {
        if self.rank_axis == 0 { BLOCK.min(self.width) } else { self.log_variance.len() }
    }

    /// Entries of a task.
    fn task(&self) -> usize {
        if self.rank_axis == 0 { self.width } else { self.block() * BLOCKS }
    }

    /// `ln variance` and `1 / variance` beside the entries of every block of `task`.
    fn beside(&self, task: usize) -> (Vec<E>, Vec<E>) {
        let log_variance = if self.rank_axis == 0 {
            vec![self.log_variance[task]; self.block()]
        } else {
            self.log_variance.clone()
        };
        let inverse = log_variance.iter().map(|&l| (-l).exp()).collect();
        (log_variance, inverse)
    }

    /// Adds a block's values to the totals of its task.
    fn add(&self, values: &[E], totals: &mut [f64]) {
        if self.rank_axis == 0 {
            totals[0] += sum(values).wide();
        } else {
            for row in values.chunks_exact(self.rank) {
                for (total, &value) in totals.iter_mut().zip(row) {
                    *total += value.wide();
                }
            }
        }
    }

    /// Empty totals of a task.
    fn totals(&self) -> Vec<f64> {
        vec![0.0; if self.rank_axis == 0 { 1 } else { self.rank }]
    }

    /// Totals per rank from those of the tasks, in order.
    fn collect(&self, parts: &[Vec<f64>]) -> Vec<f64> {
        if self.rank_axis == 0 {
            parts.iter().map(|part| part[0]).collect()
        } else {
            sum_rows(parts, self.rank)
        }
    }
}

fn clamp<E: Real>(log_variance: E) -> E {
    let (low, high) = (E::of(LOG_VARIANCE[0]), E::of(LOG_VARIANCE[1]));
    let raised = if log_variance < low { low } else { log_variance };
    if raised > high { high } else { raised }
}

pub(super) fn forward<E: Real>(op: &KlLogUniform, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[0, 1]);
    let [mean, log_variance] = x.all().map(contiguous);
    let layout = Layout::new(E::slice(&log_variance), &mean.shape(), op.rank_axis);
    let tasks = E::slice(&mean).chunks(layout.task()).enumerate().collect();
    let parts = run(tasks, |(task, mean): (usize, &[E])| {
        let (log_variance, inverse) = layout.beside(task);
        let mut values = vec![E::ZERO; layout.block()];
        let mut totals = layout.totals();
        for mean in mean.chunks(layout.block()) {
            block_forward(&mut values, mean, &log_variance, &inverse);
            layout.add(&values[..mean.len()], &mut totals);
        }
        totals
    });
    let totals = layout.collect(&parts).into_iter().map(E::of).collect();
    Fused { out: E::tensor(totals, log_variance.shape()), saved }
}

pub(super) fn gradient<E: Real>(
    op: &KlLogUniform,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let ([mean, log_variance], grad) = (saved.all().map(contiguous), contiguous(grad));
    let (shape, rank_axis) = (mean.shape(), op.rank_axis);
    let (log_variances, grads) = (E::slice(&log_variance), E::slice(&grad));
    let rank = log_variances.len();
    let layout = Layout::new(log_variances, &shape, rank_axis);
    let mut d_mean = vec![E::ZERO; shape.num_elements()];
    let tasks = E::slice(&mean)
        .chunks(layout.task())
        .zip(d_mean.chunks_mut(layout.task()))
        .enumerate()
        .collect();
    let parts = run(tasks, |(task, (mean, d_mean)): (usize, (&[E], &mut [E]))| {
        let (log_variance, inverse) = layout.beside(task);
        let factor: Vec<E> = if rank_axis == 0 { &grads[task..=task] } else { grads }
            .repeat(layout.block() / if rank_axis == 0 { 1 } else { rank })
            .iter()
            .map(|&grad| E::of(-2.0) * grad)
            .collect();
        let mut slopes = vec![E::ZERO; layout.block()];
        let mut totals = layout.totals();
        let blocks = mean.chunks(layout.block()).zip(d_mean.chunks_mut(layout.block()));
        for (mean, d_mean) in blocks {
            block_backward(&mut slopes, d_mean, mean, &log_variance, &inverse, &factor);
            layout.add(&slopes[..mean.len()], &mut totals);
        }
        totals
    });
    let d_log_variance = needs_grad[1].then(|| {
        let totals = layout.collect(&parts);
        let per_rank = totals.iter().zip(grads).zip(log_variances).map(|((&total, &grad), &l)| {
            if clamp(l) == l { E::of(total * grad.wide()) } else { E::ZERO }
        });
        E::tensor(per_rank.collect(), Shape::new([rank]))
    });
    Operands::some([needs_grad[0].then(|| E::tensor(d_mean, shape)), d_log_variance])
}
