//! The KL on a device: one cube per rank, sums in `f32`. The formulas are those of the slices' version.

use cubecl::prelude::*;

use crate::ops::cube::cube_sum;

/// Constants of the formula, and where the entries of `mean` lie: entry `i` of rank `k` at
/// `k · rank_stride + i · stride`.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
pub(super) struct Formula {
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
pub(super) fn kl_kernel<F: Float>(
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
pub(super) fn kl_grad_kernel<F: Float>(
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
