//! The KL on slices: one pass, in blocks of entries with their log-variances beside them.
//!
//! With `m = mean² + epsilon` and `r = m · exp(-log_variance) = exp(-a)` an entry needs one
//! logarithm, one exponential and two divisions:
//!
//! ```text
//! KL = k1 / (1 + exp(k2 + k3·a)) + ½·ln(1 + r),   σ(-a) = r / (1 + r)
//! ```

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::{FIT, LOG_VARIANCE, MEAN_EPSILON};
use crate::ops::cpu::{Real, contiguous, run};

/// Entries evaluated at a time; a block holds whole rows of ranks if ranks lie along axis 1.
const BLOCK: usize = 512;
/// Blocks of a task.
const BLOCKS: usize = 8;

/// `1 + exp(k2 + k3·a)`.
#[inline]
fn saturation<E: Real>(a: E) -> E {
    E::ONE + (E::of(FIT[1]) + E::of(FIT[2]) * a).exp()
}

/// KL of one entry; `inverse` is `exp(-log_variance)`.
#[inline]
fn entry<E: Real>(mean: E, log_variance: E, inverse: E) -> E {
    let m = mean * mean + E::of(MEAN_EPSILON);
    let a = log_variance - m.ln();
    E::of(FIT[0]) / saturation(a) + E::of(0.5) * (m * inverse).ln_1p()
}

/// `KL'(a)` of one entry, and `m`.
#[inline]
fn entry_slope<E: Real>(mean: E, log_variance: E, inverse: E) -> (E, E) {
    let m = mean * mean + E::of(MEAN_EPSILON);
    let a = log_variance - m.ln();
    let s = E::ONE / saturation(a);
    let r = m * inverse;
    let bell = s * (E::ONE - s);
    (-(E::of(FIT[0] * FIT[2]) * bell + E::of(0.5) * r / (E::ONE + r)), m)
}

/// How the entries of `mean` map to ranks, cut into blocks.
struct Layout<E> {
    /// Clamped log-variance of each entry of the longest block; ranks along axis 1 repeat.
    log_variance: Vec<E>,
    /// `exp(-log_variance)`.
    inverse: Vec<E>,
    rank: usize,
    width: usize,
    rank_axis: usize,
}

impl<E: Real> Layout<E> {
    fn new(log_variance: &[E], shape: &Shape, rank_axis: usize) -> Self {
        let clamped = log_variance.iter().map(|&l| clamp(l));
        let rank = log_variance.len();
        let repeats = if rank_axis == 0 { 1 } else { (BLOCK / rank.max(1)).max(1) };
        let once: Vec<E> = clamped.collect();
        let log_variance = once.repeat(repeats);
        let inverse = log_variance.iter().map(|&l| (-l).exp()).collect();
        Self { log_variance, inverse, rank, width: shape[1 - rank_axis], rank_axis }
    }

    /// Entries of a block.
    fn block(&self) -> usize {
        if self.rank_axis == 0 { BLOCK } else { self.log_variance.len() }
    }

    /// Entries of a task: one rank's row along axis 0, some blocks along axis 1.
    fn task(&self) -> usize {
        if self.rank_axis == 0 { self.width } else { self.block() * BLOCKS }
    }

    /// Adds block sums to `sums`, the ranks' totals of a task.
    fn add(&self, values: &[E], sums: &mut [f64]) {
        if self.rank_axis == 0 {
            sums[0] += crate::ops::cpu::sum(values).wide();
        } else {
            for row in values.chunks_exact(self.rank) {
                for (sum, &value) in sums.iter_mut().zip(row) {
                    *sum += value.wide();
                }
            }
        }
    }

    /// Calls `f(k, log_variance, inverse)` with `k` over a block of `count` entries of `task`.
    #[inline]
    fn each(&self, task: usize, count: usize, mut f: impl FnMut(usize, E, E)) {
        if self.rank_axis == 0 {
            let (log_variance, inverse) = (self.log_variance[task], self.inverse[task]);
            for k in 0..count {
                f(k, log_variance, inverse);
            }
        } else {
            let (log_variance, inverse) = (&self.log_variance[..count], &self.inverse[..count]);
            for k in 0..count {
                f(k, log_variance[k], inverse[k]);
            }
        }
    }

    /// Totals per rank from those of the tasks, in order.
    fn collect(&self, parts: &[Vec<f64>]) -> Vec<f64> {
        if self.rank_axis == 0 {
            parts.iter().map(|part| part[0]).collect()
        } else {
            crate::ops::cpu::sum_rows(parts, self.rank)
        }
    }

    /// Empty totals of a task.
    fn totals(&self) -> Vec<f64> {
        vec![0.0; if self.rank_axis == 0 { 1 } else { self.rank }]
    }
}

fn clamp<E: Real>(log_variance: E) -> E {
    let (low, high) = (E::of(LOG_VARIANCE[0]), E::of(LOG_VARIANCE[1]));
    let raised = if log_variance < low { low } else { log_variance };
    if raised > high { high } else { raised }
}

pub(crate) fn forward<E: Real>(
    mean: FlexTensor,
    log_variance: FlexTensor,
    rank_axis: usize,
) -> FlexTensor {
    let (mean, log_variance) = (contiguous(mean), contiguous(log_variance));
    let shape = mean.shape();
    let rank = log_variance.shape()[0];
    if shape.num_elements() == 0 {
        return E::tensor(vec![E::ZERO; rank], Shape::new([rank]));
    }
    let layout = Layout::new(E::slice(&log_variance), &shape, rank_axis);
    let tasks = E::slice(&mean).chunks(layout.task()).enumerate().collect();
    let parts = run(tasks, |(task, mean): (usize, &[E])| {
        let mut values = vec![E::ZERO; layout.block()];
        let mut sums = layout.totals();
        for mean in mean.chunks(layout.block()) {
            let values = &mut values[..mean.len()];
            layout.each(task, mean.len(), |k, log_variance, inverse| {
                values[k] = entry(mean[k], log_variance, inverse);
            });
            layout.add(values, &mut sums);
        }
        sums
    });
    let totals = layout.collect(&parts).into_iter().map(E::of).collect();
    E::tensor(totals, Shape::new([rank]))
}

pub(crate) fn backward<E: Real>(
    mean: FlexTensor,
    log_variance: FlexTensor,
    grad: FlexTensor,
    rank_axis: usize,
    wanted: [bool; 2],
) -> (Option<FlexTensor>, Option<FlexTensor>) {
    let (mean, log_variance, grad) =
        (contiguous(mean), contiguous(log_variance), contiguous(grad));
    let shape = mean.shape();
    let (log_variances, grads) = (E::slice(&log_variance), E::slice(&grad));
    let rank = log_variances.len();
    if shape.num_elements() == 0 {
        let zeros = E::tensor(vec![E::ZERO; rank], Shape::new([rank]));
        return (wanted[0].then_some(mean), wanted[1].then_some(zeros));
    }
    let layout = Layout::new(log_variances, &shape, rank_axis);
    let mut d_mean = vec![E::ZERO; shape.num_elements()];
    let tasks = E::slice(&mean)
        .chunks(layout.task())
        .zip(d_mean.chunks_mut(layout.task()))
        .enumerate()
        .collect();
    // The ranks' incoming gradients beside the entries, as the log-variances are.
    let grad_of_block = if rank_axis == 0 { grads.to_vec() } else { grads.repeat(layout.block() / rank) };
    let parts = run(tasks, |(task, (mean, d_mean)): (usize, (&[E], &mut [E]))| {
        let mut slopes = vec![E::ZERO; layout.block()];
        let mut sums = layout.totals();
        let blocks = mean.chunks(layout.block()).zip(d_mean.chunks_mut(layout.block()));
        for (mean, d_mean) in blocks {
            let slopes = &mut slopes[..mean.len()];
            layout.each(task, mean.len(), |k, log_variance, inverse| {
                let (slope, m) = entry_slope(mean[k], log_variance, inverse);
                slopes[k] = slope;
                d_mean[k] = slope * (mean[k] + mean[k]) / m;
            });
            layout.add(slopes, &mut sums);
            if rank_axis == 0 {
                let factor = -grad_of_block[task];
                for d_mean in d_mean {
                    *d_mean = *d_mean * factor;
                }
            } else {
                for (d_mean, &grad) in d_mean.iter_mut().zip(&grad_of_block) {
                    *d_mean = -(*d_mean * grad);
                }
            }
        }
        sums
    });
    let d_log_variance = wanted[1].then(|| {
        let totals = layout.collect(&parts);
        let per_rank = totals.iter().zip(grads).zip(log_variances).map(|((&total, &grad), &l)| {
            if clamp(l) == l { E::of(total * grad.wide()) } else { E::ZERO }
        });
        E::tensor(per_rank.collect(), Shape::new([rank]))
    });
    (wanted[0].then(|| E::tensor(d_mean, shape)), d_log_variance)
}
