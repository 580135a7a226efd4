//! The gate on a device, one unit per element.

use cubecl::prelude::*;

/// `1 / (1 + exp(-x))`; below the bound the exponential leaves the finite numbers on some devices.
#[cube]
fn logistic(x: f32) -> f32 {
    1.0f32 / (1.0f32 + (-x).min(87.0f32).exp())
}

#[cube(launch)]
pub(super) fn gated_silu_kernel<F: Float>(
    gate: &Tensor<F>,
    up: &Tensor<F>,
    out: &mut Tensor<F>,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let x = f32::cast_from(gate[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = F::cast_from(x * logistic(x) * f32::cast_from(up[ABSOLUTE_POS]));
}

#[cube(launch)]
pub(super) fn gated_silu_grad_kernel<F: Float>(
    gate: &Tensor<F>,
    up: &Tensor<F>,
    grad: &Tensor<F>,
    d_gate: &mut Tensor<F>,
    d_up: &mut Tensor<F>,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= grad.len() {
        terminate!();
    }
    let x = f32::cast_from(gate[ABSOLUTE_POS]);
    let grad = f32::cast_from(grad[ABSOLUTE_POS]);
    let s = logistic(x);
    let slope = s * (1.0f32 + x * (1.0f32 - s));
    d_gate[ABSOLUTE_POS] = F::cast_from(grad * f32::cast_from(up[ABSOLUTE_POS]) * slope);
    d_up[ABSOLUTE_POS] = F::cast_from(grad * x * s);
}
