//! The KL on a device: one cube per rank, sums in `f32`. The formulas are those of the slices' version.

use burn::backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{FIT, KlLogUniform, LOG_VARIANCE, MEAN_EPSILON};
use crate::ops::cube::{cube_sum, empty_like, launch, row_sizes};
use crate::ops::op::{Fused, Operands};

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
    let total = cube_sum(total, &mut shared);
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
    let total = cube_sum(total, &mut shared);
    if UNIT_POS == 0 {
        d_log_variance[rank] = F::cast_from(select(given == clamped, total * grad, 0.0f32));
    }
}

/// The formula for a contiguous `mean`.
fn formula(mean: &CubeTensor, rank_axis: usize) -> FormulaLaunch {
    let (shape, [k1, k2, k3], [low, high]) = (mean.shape(), FIT, LOG_VARIANCE);
    let (width, columns) = (shape[1 - rank_axis] as u32, shape[1] as u32);
    let [rank_stride, stride] = if rank_axis == 0 { [columns, 1] } else { [1, columns] };
    let [k1, k2, k3, epsilon, low, high] = [k1, k2, k3, MEAN_EPSILON, low, high].map(|x| x as f32);
    FormulaLaunch::new(k1, k2, k3, epsilon, low, high, width, rank_stride, stride)
}

pub(super) fn forward(
    op: &KlLogUniform,
    x: Operands<CubeBackend>,
    save: bool,
) -> Fused<CubeBackend> {
    let saved = x.keep(save, &[0, 1]);
    let [mean, log_variance] = x.all().map(into_contiguous);
    let (out, shape) = (empty_like(&log_variance), mean.shape());
    let (sizes, units) = row_sizes(&out, shape[op.rank_axis], shape[1 - op.rank_axis]);
    let formula = formula(&mean, op.rank_axis);
    launch!(kl_kernel, sizes, out.dtype, [mean, log_variance] => [out], formula, units);
    Fused { out, saved }
}

/// Both gradients come from one reading of the means; both are nearly always needed.
pub(super) fn gradient(
    op: &KlLogUniform,
    saved: Operands<CubeBackend>,
    grad: CubeTensor,
    needs_grad: &[bool],
) -> Operands<CubeBackend> {
    let ([mean, log_variance], grad) = (saved.all().map(into_contiguous), into_contiguous(grad));
    let (d_mean, d_log_variance) = (empty_like(&mean), empty_like(&log_variance));
    let shape = mean.shape();
    let (sizes, units) = row_sizes(&mean, shape[op.rank_axis], shape[1 - op.rank_axis]);
    let formula = formula(&mean, op.rank_axis);
    launch!(kl_grad_kernel, sizes, d_mean.dtype,
        [mean, log_variance, grad] => [d_mean, d_log_variance], formula, units);
    Operands::needed([d_mean, d_log_variance], needs_grad)
}
