//! Activation noise on a device.

use cubecl::prelude::*;

use crate::ops::standard_normal::kernel::{KernelKey, normals};

/// `sqrt(max(variance, 0) + epsilon)`.
#[cube]
fn std(variance: f32) -> f32 {
    (variance.max(0.0f32) + 1e-8f32).sqrt()
}

/// Slope of `noise · std(variance)`, 0 where the variance was clamped.
#[cube]
fn slope(variance: f32, noise: f32) -> f32 {
    select(variance < 0.0f32, 0.0f32, 0.5f32 * noise / std(variance))
}

/// `q[n] w[k] + t[n]` of a flat element.
#[cube]
fn rank_two<F: Float>(q: &Tensor<F>, w: &Tensor<F>, t: &Tensor<F>, element: usize) -> f32 {
    let width = w.len();
    let row = element / width;
    let column = element % width;
    f32::cast_from(q[row]) * f32::cast_from(w[column]) + f32::cast_from(t[row])
}

/// `mean + scale · noise · std`, or the slope times `x` if `of_gradient`; one unit per four elements.
#[cube(launch)]
pub(super) fn rank_two_kernel<F: Float>(
    x: &Tensor<F>,
    q: &Tensor<F>,
    w: &Tensor<F>,
    t: &Tensor<F>,
    out: &mut Tensor<F>,
    key: KernelKey,
    scale: f32,
    #[comptime] of_gradient: bool,
    #[define(F)] _dtype: ElemType,
) {
    let start = ABSOLUTE_POS * 4;
    if start >= out.len() {
        terminate!();
    }
    let mut noise = Array::<f32>::new(4usize);
    normals(&key, ABSOLUTE_POS as u32, &mut noise);
    #[unroll]
    for lane in 0..4usize {
        let element = start + lane;
        if element < out.len() {
            let variance = rank_two::<F>(q, w, t, element);
            let value = f32::cast_from(x[element]);
            if of_gradient {
                out[element] = F::cast_from(value * slope(variance, scale * noise[lane]));
            } else {
                out[element] = F::cast_from(value + scale * noise[lane] * std(variance));
            }
        }
    }
}

/// The same with a variance for every element.
#[cube(launch)]
pub(super) fn gaussian_kernel<F: Float>(
    x: &Tensor<F>,
    variance: &Tensor<F>,
    out: &mut Tensor<F>,
    key: KernelKey,
    scale: f32,
    #[comptime] of_gradient: bool,
    #[define(F)] _dtype: ElemType,
) {
    let start = ABSOLUTE_POS * 4;
    if start >= out.len() {
        terminate!();
    }
    let mut noise = Array::<f32>::new(4usize);
    normals(&key, ABSOLUTE_POS as u32, &mut noise);
    #[unroll]
    for lane in 0..4usize {
        let element = start + lane;
        if element < out.len() {
            let variance = f32::cast_from(variance[element]);
            let value = f32::cast_from(x[element]);
            if of_gradient {
                out[element] = F::cast_from(value * slope(variance, scale * noise[lane]));
            } else {
                out[element] = F::cast_from(value + scale * noise[lane] * std(variance));
            }
        }
    }
}
