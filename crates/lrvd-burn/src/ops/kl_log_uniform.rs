//! KL of the rank-tied posterior from the log-uniform prior.

use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use lrvd_core::kl::{K1, K2, K3};
use lrvd_core::posterior::{EPS_MEAN, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

/// KL divergence of a rank-tied Gaussian posterior from the log-uniform prior, summed per rank.
///
/// # Formula
///
/// ```text
/// out[k] = Σ_i KL(a[k,i]),   a[k,i] = clamp(log_variance[k], -20, 2) - ln(mean[k,i]² + 1e-8)
/// KL(a)  = k1·(1 - σ(k2 + k3·a)) + ½·ln(1 + exp(-a))
/// ```
///
/// `i` runs over the width. Gradients, with `g = KL'(a) = -(k1·k3·s·(1-s) + ½·σ(-a))` and
/// `s = σ(k2 + k3·a)`:
///
/// ```text
/// dlog_variance[k] = Σ_i g   (0 outside the clamp, passed at its ends)
/// dmean[k,i]       = -2·g·mean / (mean² + 1e-8)
/// ```
///
/// # Shapes
///
/// | Name           | Shape                                           | Unit        |
/// |----------------|-------------------------------------------------|-------------|
/// | `mean`         | `[rank, width]`, or `[width, rank]` for axis 1  | weight      |
/// | `log_variance` | `[rank]`                                        | ln(weight²) |
/// | *returns*      | `[rank]`                                        | nats        |
///
/// `rank_axis` is the axis of `mean` that counts ranks.
///
/// # Numerics
///
/// The definition in `f64` is that of `lrvd_core`. Sums over the width are taken in double precision
/// on the CPU, in an order that depends on the shape alone.
///
/// # Panics
///
/// If `rank_axis` is above 1 or `log_variance` does not have one entry per rank.
///
/// # References
///
/// Molchanov et al. 2017, arXiv:1701.05369; Doyle et al., arXiv:2506.22809.
pub fn kl_log_uniform(mean: Tensor<2>, rank_axis: usize, log_variance: Tensor<1>) -> Tensor<1> {
    assert!(rank_axis < 2, "`rank_axis` is {rank_axis}, `mean` has 2 axes");
    assert_eq!(log_variance.dims(), [mean.dims()[rank_axis]], "shape of `log_variance`");
    let operands = Operands::of([mean.into_dispatch(), log_variance.into_dispatch()]);
    op::fused(KlLogUniform { rank_axis }, operands)
}

#[derive(Clone, Debug)]
struct KlLogUniform {
    rank_axis: usize,
}

impl FusedOp for KlLogUniform {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [mean, log_variance] = x.all().map(Value::<B>);
        let rank = log_variance.shape()[0];
        if mean.shape().contains(&0) {
            return (log_variance * 0.0).0;
        }
        let log_variance = log_variance.clamp(LOG_VARIANCE_MIN, LOG_VARIANCE_MAX);
        let along = log_variance.reshape(if self.rank_axis == 0 { [rank, 1] } else { [1, rank] });
        let a = along - (mean.square() + EPS_MEAN).ln();
        let saturation = (-(a.clone() * K3 + K2)).logistic() * K1;
        let kl = saturation + a.neg_log_sigmoid() * 0.5;
        kl.sum(1 - self.rank_axis).reshape([rank]).0
    }

    op::forms!(cpu, cube);
}

/// One pass, in blocks of entries with their log-variances beside them.
///
/// With `m = mean² + epsilon` and `r = m · exp(-log_variance) = exp(-a)` an entry needs one
/// logarithm, one exponential and two divisions:
///
/// ```text
/// KL = k1 / (1 + exp(k2 + k3·a)) + ½·ln(1 + r),   σ(-a) = r / (1 + r)
/// ```
#[cfg(feature = "flex")]
mod cpu {
    #![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

    use super::{EPS_MEAN, K1, K2, K3, KlLogUniform, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN};
    use crate::ops::cpu::prelude::*;

    /// Entries evaluated at a time; a block holds whole rows of ranks if ranks lie along axis 1.
    const BLOCK: usize = 512;
    /// Blocks of a task.
    const BLOCKS: usize = 8;

    /// `1 + exp(k2 + k3·a)`.
    #[inline(always)]
    fn saturation(a: f32) -> f32 {
        1.0 + exp(K2 as f32 + K3 as f32 * a)
    }

    wide! {
        /// KL of every entry of a block; `inverse` is `exp(-log_variance)`.
        fn block_forward<'a>(
            values: &'a mut [f32],
            mean: &'a [f32],
            log_variance: &'a [f32],
            inverse: &'a [f32],
        ) {
            let entries = values.iter_mut().zip(mean).zip(log_variance).zip(inverse);
            for (((value, &mean), &log_variance), &inverse) in entries {
                let m = mean * mean + EPS_MEAN as f32;
                let a = log_variance - ln(m);
                *value = K1 as f32 / saturation(a) + 0.5 * ln_1p(m * inverse);
            }
        }

        /// `KL'(a)` of every entry of a block, and the gradient of its mean; `factor` is `-2` times the
        /// incoming gradient of the entry's rank.
        fn block_backward<'a>(
            slopes: &'a mut [f32],
            d_mean: &'a mut [f32],
            mean: &'a [f32],
            log_variance: &'a [f32],
            inverse: &'a [f32],
            factor: &'a [f32],
        ) {
            let entries = slopes.iter_mut().zip(mean).zip(log_variance).zip(inverse);
            for ((((slope, &mean), &log_variance), &inverse), d_mean) in entries.zip(&mut *d_mean) {
                let m = mean * mean + EPS_MEAN as f32;
                let s = 1.0 / saturation(log_variance - ln(m));
                let (r, bell) = (m * inverse, s * (1.0 - s));
                *slope = -((K1 * K3) as f32 * bell + 0.5 * r / (1.0 + r));
                *d_mean = *slope * mean / m;
            }
            for (d_mean, &factor) in d_mean.iter_mut().zip(factor) {
                *d_mean *= factor;
            }
        }
    }

    /// Ranks of the entries of `mean`, cut into tasks and blocks.
    ///
    /// Along axis 0 a task is one rank's row; along axis 1 it is some blocks of whole rows of ranks.
    struct Layout {
        rank: usize,
        width: usize,
        rank_axis: usize,
    }

    impl Layout {
        fn new(mean: &FlexTensor, rank_axis: usize) -> Self {
            let shape = mean.shape();
            Self { rank: shape[rank_axis], width: shape[1 - rank_axis], rank_axis }
        }

        /// Entries of a block.
        fn block(&self) -> usize {
            if self.rank_axis == 0 {
                BLOCK.min(self.width)
            } else {
                (BLOCK / self.rank).max(1) * self.rank
            }
        }

        /// Entries of a task.
        fn task(&self) -> usize {
            if self.rank_axis == 0 { self.width } else { self.block() * BLOCKS }
        }

        /// The numbers of the ranks beside the entries of every block of `task`, with `f` of each.
        fn beside(&self, of_ranks: &[f32], task: usize, f: impl Fn(f32) -> f32) -> Vec<f32> {
            if self.rank_axis == 0 {
                vec![f(of_ranks[task]); self.block()]
            } else {
                let once: Vec<f32> = of_ranks.iter().map(|&x| f(x)).collect();
                once.repeat(self.block() / self.rank)
            }
        }

        /// Adds a block's values to the totals of its task.
        fn add(&self, values: &[f32], totals: &mut [f64]) {
            if self.rank_axis == 0 {
                totals[0] += f64::from(sum(values));
            } else {
                for row in values.chunks_exact(self.rank) {
                    for (total, &value) in totals.iter_mut().zip(row) {
                        *total += f64::from(value);
                    }
                }
            }
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

    fn clamp(log_variance: f32) -> f32 {
        let (low, high) = (LOG_VARIANCE_MIN as f32, LOG_VARIANCE_MAX as f32);
        let raised = if log_variance < low { low } else { log_variance };
        if raised > high { high } else { raised }
    }

    pub(crate) fn forward(op: &KlLogUniform, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[0, 1]);
        let [mean, log_variance] = x.all().map(contiguous);
        let (layout, log_variances) = (Layout::new(&mean, op.rank_axis), slice(&log_variance));
        let tasks = slice(&mean).chunks(layout.task()).enumerate().collect();
        let parts = run(tasks, |(task, mean): (usize, &[f32])| {
            let log_variance = layout.beside(log_variances, task, clamp);
            let inverse: Vec<f32> = log_variance.iter().map(|&l| exp(-l)).collect();
            let mut values = vec![0.0; layout.block()];
            let mut totals = vec![0.0; if op.rank_axis == 0 { 1 } else { layout.rank }];
            for mean in mean.chunks(layout.block()) {
                block_forward(&mut values, mean, &log_variance, &inverse);
                layout.add(&values[..mean.len()], &mut totals);
            }
            totals
        });
        let totals = layout.collect(&parts).into_iter().map(|total| total as f32).collect();
        Fused { out: tensor(totals, log_variance.shape()), saved }
    }

    pub(crate) fn gradient(op: &KlLogUniform, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, .. } = x;
        let ([mean, log_variance], grad) = (saved.all().map(contiguous), contiguous(grad));
        let (shape, layout) = (mean.shape(), Layout::new(&mean, op.rank_axis));
        let (log_variances, grads) = (slice(&log_variance), slice(&grad));
        let mut d_mean = vec![0.0; shape.num_elements()];
        let tasks = slice(&mean)
            .chunks(layout.task())
            .zip(d_mean.chunks_mut(layout.task()))
            .enumerate()
            .collect();
        let parts = run(tasks, |(task, (mean, d_mean)): (usize, (&[f32], &mut [f32]))| {
            let log_variance = layout.beside(log_variances, task, clamp);
            let inverse: Vec<f32> = log_variance.iter().map(|&l| exp(-l)).collect();
            let factor = layout.beside(grads, task, |grad| -2.0 * grad);
            let mut slopes = vec![0.0; layout.block()];
            let mut totals = vec![0.0; if op.rank_axis == 0 { 1 } else { layout.rank }];
            let blocks = mean.chunks(layout.block()).zip(d_mean.chunks_mut(layout.block()));
            for (mean, d_mean) in blocks {
                block_backward(&mut slopes, d_mean, mean, &log_variance, &inverse, &factor);
                layout.add(&slopes[..mean.len()], &mut totals);
            }
            totals
        });
        let d_log_variance = layout.collect(&parts).into_iter().zip(grads).zip(log_variances);
        let d_log_variance =
            d_log_variance.map(
                |((total, &grad), &l)| {
                    if clamp(l) == l { (total * f64::from(grad)) as f32 } else { 0.0 }
                },
            );
        let d_log_variance = tensor(d_log_variance.collect(), log_variance.shape());
        Operands::of([tensor(d_mean, shape), d_log_variance])
    }
}

/// One cube per rank, sums in `f32`; the formulas are those of the CPU's form.
#[cfg(feature = "cube")]
mod cube {
    use super::{EPS_MEAN, K1, K2, K3, KlLogUniform, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN};
    use crate::ops::cube::prelude::*;

    /// Constants of the formula, and where the entries of `mean` lie: entry `i` of rank `k` at
    /// `k · rank_stride + i · stride`.
    #[derive(CubeLaunch, CubeType, Clone, Copy)]
    struct Formula {
        k1: f32,
        k2: f32,
        k3: f32,
        mean_epsilon: f32,
        low: f32,
        high: f32,
        width: u32,
        rank_stride: u32,
        stride: u32,
    }

    /// `ln(1 + r)`, by its series where the sum would lose `r`.
    #[cube]
    fn ln_1p(r: f32) -> f32 {
        let series = r * (1.0f32 - r * (0.5f32 - r * (0.333_333_34f32 - r * 0.25f32)));
        select(r < 0.01f32, series, (1.0f32 + r).ln())
    }

    /// `1 - σ(k2 + k3·a)` of `m = mean² + epsilon`.
    #[cube]
    fn unsaturated(m: f32, log_variance: f32, formula: &Formula) -> f32 {
        1.0f32 / (1.0f32 + (formula.k2 + formula.k3 * (log_variance - m.ln())).exp())
    }

    /// The log-variance within its bounds; what is no number stays none.
    #[cube]
    fn clamp(log_variance: f32, formula: &Formula) -> f32 {
        let raised = select(log_variance < formula.low, formula.low, log_variance);
        select(raised > formula.high, formula.high, raised)
    }

    #[cube(launch)]
    fn kl_kernel<F: Float>(
        mean: &Tensor<F>,
        log_variance: &Tensor<F>,
        out: &mut Tensor<F>,
        formula: Formula,
        #[comptime] units: usize,
        #[define(F)] _dtype: ElemType,
    ) {
        let rank = CUBE_POS;
        if rank >= out.len() {
            terminate!();
        }
        let mut shared = Shared::<[f32]>::new_slice(units);
        let clamped = clamp(f32::cast_from(log_variance[rank]), &formula);
        let inverse = (-clamped).exp();
        let mut total = 0.0f32;
        for i in range_stepped(UNIT_POS as usize, formula.width as usize, units) {
            let at = rank * formula.rank_stride as usize + i * formula.stride as usize;
            let value = f32::cast_from(mean[at]);
            let m = value * value + formula.mean_epsilon;
            let rest = unsaturated(m, clamped, &formula);
            total += formula.k1 * rest + 0.5f32 * ln_1p(m * inverse);
        }
        let total = cube_reduce(total, &mut shared, false);
        if UNIT_POS == 0 {
            out[rank] = F::cast_from(total);
        }
    }

    #[cube(launch)]
    fn kl_grad_kernel<F: Float>(
        mean: &Tensor<F>,
        log_variance: &Tensor<F>,
        grad: &Tensor<F>,
        d_mean: &mut Tensor<F>,
        d_log_variance: &mut Tensor<F>,
        formula: Formula,
        #[comptime] units: usize,
        #[define(F)] _dtype: ElemType,
    ) {
        let rank = CUBE_POS;
        if rank >= d_log_variance.len() {
            terminate!();
        }
        let mut shared = Shared::<[f32]>::new_slice(units);
        let given = f32::cast_from(log_variance[rank]);
        let clamped = clamp(given, &formula);
        let inverse = (-clamped).exp();
        let grad = f32::cast_from(grad[rank]);
        let mut total = 0.0f32;
        for i in range_stepped(UNIT_POS as usize, formula.width as usize, units) {
            let at = rank * formula.rank_stride as usize + i * formula.stride as usize;
            let value = f32::cast_from(mean[at]);
            let m = value * value + formula.mean_epsilon;
            let rest = unsaturated(m, clamped, &formula);
            let r = m * inverse;
            let bell = formula.k1 * formula.k3 * rest * (1.0f32 - rest);
            let slope = -(bell + 0.5f32 * r / (1.0f32 + r));
            total += slope;
            d_mean[at] = F::cast_from(-2.0f32 * grad * slope * value / m);
        }
        let total = cube_reduce(total, &mut shared, false);
        if UNIT_POS == 0 {
            d_log_variance[rank] = F::cast_from(select(given == clamped, total * grad, 0.0f32));
        }
    }

    /// The formula for a contiguous `mean`.
    fn formula(mean: &CubeTensor, rank_axis: usize) -> FormulaLaunch {
        let shape = mean.shape();
        let (width, columns) = (shape[1 - rank_axis] as u32, shape[1] as u32);
        let [rank_stride, stride] = if rank_axis == 0 { [columns, 1] } else { [1, columns] };
        let [k1, k2, k3, epsilon, low, high] =
            [K1, K2, K3, EPS_MEAN, LOG_VARIANCE_MIN, LOG_VARIANCE_MAX].map(|x| x as f32);
        FormulaLaunch::new(k1, k2, k3, epsilon, low, high, width, rank_stride, stride)
    }

    pub(crate) fn forward(op: &KlLogUniform, x: Operands<Cube>, save: bool) -> Fused<Cube> {
        let saved = x.keep(save, &[0, 1]);
        let [mean, log_variance] = x.all().map(into_contiguous);
        let (out, shape) = (empty(&log_variance, log_variance.shape()), mean.shape());
        let (sizes, units) = row_sizes(&out, shape[op.rank_axis], shape[1 - op.rank_axis]);
        let formula = formula(&mean, op.rank_axis);
        launch!(kl_kernel, sizes, out.dtype, [mean, log_variance] => [out], formula, units);
        Fused { out, saved }
    }

    /// Both gradients come from one reading of the means; both are nearly always needed.
    pub(crate) fn gradient(op: &KlLogUniform, x: Upstream<'_, Cube>) -> Operands<Cube> {
        let Upstream { saved, grad, .. } = x;
        let ([mean, log_variance], grad) =
            (saved.all().map(into_contiguous), into_contiguous(grad));
        let (d_mean, d_log_variance) =
            (empty(&mean, mean.shape()), empty(&log_variance, log_variance.shape()));
        let shape = mean.shape();
        let (sizes, units) = row_sizes(&mean, shape[op.rank_axis], shape[1 - op.rank_axis]);
        let formula = formula(&mean, op.rank_axis);
        launch!(kl_grad_kernel, sizes, d_mean.dtype,
            [mean, log_variance, grad] => [d_mean, d_log_variance], formula, units);
        Operands::of([d_mean, d_log_variance])
    }
}
