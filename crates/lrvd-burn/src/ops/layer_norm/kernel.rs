//! Layer normalisation on a device: one cube per row, statistics in `f32`.

use cubecl::prelude::*;

use crate::ops::cube::cube_sum;

/// Mean and reciprocal standard deviation of the row that begins at `start`, in two passes.
#[cube]
fn statistics<F: Float>(
    x: &Tensor<F>,
    start: usize,
    width: usize,
    eps: f32,
    shared: &mut Shared<[f32]>,
    #[comptime] units: usize,
) -> (f32, f32) {
    let mut sum = 0.0f32;
    for k in range_stepped(UNIT_POS as usize, width, units) {
        sum += f32::cast_from(x[start + k]);
    }
    let mean = cube_sum(sum, shared) / f32::cast_from(width);
    let mut squares = 0.0f32;
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let centred = f32::cast_from(x[start + k]) - mean;
        squares += centred * centred;
    }
    let variance = cube_sum(squares, shared) / f32::cast_from(width);
    (mean, 1.0f32 / (variance + eps).sqrt())
}

#[cube(launch)]
pub(super) fn layer_norm_kernel<F: Float>(
    x: &Tensor<F>,
    gamma: &Tensor<F>,
    beta: &Tensor<F>,
    out: &mut Tensor<F>,
    eps: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = gamma.len();
    if CUBE_POS >= out.len() / width {
        terminate!();
    }
    let start = CUBE_POS * width;
    let mut shared = Shared::<[f32]>::new_slice(units);
    let (mean, r) = statistics::<F>(x, start, width, eps, &mut shared, units);
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let normal = (f32::cast_from(x[start + k]) - mean) * r;
        let value = normal * f32::cast_from(gamma[k]) + f32::cast_from(beta[k]);
        out[start + k] = F::cast_from(value);
    }
}

/// `r · (g - mean(g) - normal · mean(g · normal))` with `g = grad · gamma`.
#[cube(launch)]
pub(super) fn layer_norm_grad_kernel<F: Float>(
    x: &Tensor<F>,
    gamma: &Tensor<F>,
    grad: &Tensor<F>,
    out: &mut Tensor<F>,
    eps: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = gamma.len();
    if CUBE_POS >= out.len() / width {
        terminate!();
    }
    let start = CUBE_POS * width;
    let mut shared = Shared::<[f32]>::new_slice(units);
    let (mean, r) = statistics::<F>(x, start, width, eps, &mut shared, units);
    let mut sum = 0.0f32;
    let mut along = 0.0f32;
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let g = f32::cast_from(grad[start + k]) * f32::cast_from(gamma[k]);
        sum += g;
        along += g * ((f32::cast_from(x[start + k]) - mean) * r);
    }
    let sum = cube_sum(sum, &mut shared) / f32::cast_from(width);
    let along = cube_sum(along, &mut shared) / f32::cast_from(width);
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let g = f32::cast_from(grad[start + k]) * f32::cast_from(gamma[k]);
        let normal = (f32::cast_from(x[start + k]) - mean) * r;
        out[start + k] = F::cast_from(r * (g - sum - normal * along));
    }
}
