//! Root-mean-square normalisation on a device: one cube per row, statistics in `f32`.

use cubecl::prelude::*;

use crate::ops::cube::cube_sum;

/// `1 / sqrt(mean(x²) + eps)` of the row that begins at `start`.
#[cube]
fn reciprocal_root<F: Float>(
    x: &Tensor<F>,
    start: usize,
    width: usize,
    eps: f32,
    shared: &mut Shared<[f32]>,
    #[comptime] units: usize,
) -> f32 {
    let mut squares = 0.0f32;
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let value = f32::cast_from(x[start + k]);
        squares += value * value;
    }
    1.0f32 / (cube_sum(squares, shared) / f32::cast_from(width) + eps).sqrt()
}

#[cube(launch)]
pub(super) fn rms_norm_kernel<F: Float>(
    x: &Tensor<F>,
    gamma: &Tensor<F>,
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
    let r = reciprocal_root::<F>(x, start, width, eps, &mut shared, units);
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let normal = f32::cast_from(x[start + k]) * r;
        out[start + k] = F::cast_from(normal * f32::cast_from(gamma[k]));
    }
}

/// `r · (g - normal · mean(g · normal))` with `g = grad · gamma`.
#[cube(launch)]
pub(super) fn rms_norm_grad_kernel<F: Float>(
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
    let r = reciprocal_root::<F>(x, start, width, eps, &mut shared, units);
    let mut along = 0.0f32;
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let g = f32::cast_from(grad[start + k]) * f32::cast_from(gamma[k]);
        along += g * (f32::cast_from(x[start + k]) * r);
    }
    let along = cube_sum(along, &mut shared) / f32::cast_from(width);
    for k in range_stepped(UNIT_POS as usize, width, units) {
        let g = f32::cast_from(grad[start + k]) * f32::cast_from(gamma[k]);
        let normal = f32::cast_from(x[start + k]) * r;
        out[start + k] = F::cast_from(r * (g - normal * along));
    }
}
