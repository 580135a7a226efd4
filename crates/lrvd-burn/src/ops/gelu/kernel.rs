//! GELU on a device, with the formula of the CPU.

use cubecl::prelude::*;

/// `exp(-x²/2)` and the tail `Phi(-|x|)`; see the CPU's `normal_f32` for the polynomial.
#[cube]
fn tail(x: f32) -> (f32, f32) {
    let u = x.abs();
    // Below this the exponential leaves the normal numbers, and some devices with it the finite.
    let e = (-0.5f32 * (u * u)).max(-87.0f32).exp();
    let v = 0.34f32 * u;
    let t = 1.0f32 / (1.0f32 + v);
    let y = v * t;
    let p = -0.026_511_211f32;
    let p = p * y + 0.070_775_4f32;
    let p = p * y - 0.029_816_97f32;
    let p = p * y - 0.028_810_537f32;
    let p = p * y - 0.077_293_17f32;
    let p = p * y + 0.084_734_89f32;
    let p = p * y + 0.315_900_24f32;
    let p = p * y - 0.673_359_9f32;
    (e, e * (t * (0.5f32 + y * p)))
}

#[cube(launch)]
pub(super) fn gelu_kernel<F: Float>(
    x: &Tensor<F>,
    out: &mut Tensor<F>,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let value = f32::cast_from(x[ABSOLUTE_POS]);
    let (_, tail) = tail(value);
    let distribution = select(value > 0.0f32, 1.0f32 - tail, tail);
    out[ABSOLUTE_POS] = F::cast_from(value * distribution);
}

#[cube(launch)]
pub(super) fn gelu_grad_kernel<F: Float>(
    x: &Tensor<F>,
    grad: &Tensor<F>,
    out: &mut Tensor<F>,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let value = f32::cast_from(x[ABSOLUTE_POS]);
    let (e, tail) = tail(value);
    let distribution = select(value > 0.0f32, 1.0f32 - tail, tail);
    let slope = distribution + value * e * 0.398_942_3f32;
    out[ABSOLUTE_POS] = F::cast_from(f32::cast_from(grad[ABSOLUTE_POS]) * slope);
}
