//! Activation noise on a device.
//!
//! The backward pass writes `Γ` once and leaves its sums to Burn's reductions, whose order is fixed.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{GaussianNoise, Noise, RankTwoNoise};
use crate::ops::cube::{empty_like, launch, sizes};
use crate::ops::op::{Fused, Operands};
use crate::ops::standard_normal::cube::{KernelKey, kernel_key, normals};
use crate::ops::value::Value;

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

/// `value + noise · std`, or `value` times the slope if `of_gradient`.
#[cube]
fn noisy(value: f32, variance: f32, noise: f32, #[comptime] of_gradient: bool) -> f32 {
    if of_gradient { value * slope(variance, noise) } else { value + noise * std(variance) }
}

/// `q[n] w[k] + t[n]` of a flat element.
#[cube]
fn variance_of<F: Float>(q: &Tensor<F>, w: &Tensor<F>, t: &Tensor<F>, element: usize) -> f32 {
    let width = w.len();
    let row = element / width;
    let column = element % width;
    f32::cast_from(q[row]) * f32::cast_from(w[column]) + f32::cast_from(t[row])
}

/// `mean + scale · noise · std`, or the slope times `x` if `of_gradient`; one unit per four elements.
#[cube(launch)]
fn rank_two_kernel<F: Float>(
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
            let variance = variance_of::<F>(q, w, t, element);
            let value = f32::cast_from(x[element]);
            out[element] = F::cast_from(noisy(value, variance, scale * noise[lane], of_gradient));
        }
    }
}

/// The same with a variance for every element.
#[cube(launch)]
fn gaussian_kernel<F: Float>(
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
            out[element] = F::cast_from(noisy(value, variance, scale * noise[lane], of_gradient));
        }
    }
}

/// The output for `x = mean`, or `Γ` for `x` = gradient.
fn with_moments(
    x: CubeTensor,
    moments: [CubeTensor; 3],
    noise: Noise,
    of_gradient: bool,
) -> CubeTensor {
    let x = into_contiguous(x);
    let [q, w, t] = moments.map(into_contiguous);
    let out = empty_like(&x);
    launch!(rank_two_kernel, sizes(&out, 4), out.dtype, [x, q, w, t] => [out],
        kernel_key(noise.key), noise.scale as f32, of_gradient);
    out
}

pub(super) fn rank_two(
    op: &RankTwoNoise,
    x: Operands<CubeBackend>,
    save: bool,
) -> Fused<CubeBackend> {
    let saved = x.keep(save, &[1, 2, 3]);
    let [mean, q, w, t] = x.all();
    Fused { out: with_moments(mean, [q, w, t], op.0, false), saved }
}

/// The gradient of the mean is that of the output.
pub(super) fn rank_two_gradient(
    op: &RankTwoNoise,
    saved: Operands<CubeBackend>,
    grad: CubeTensor,
    needs_grad: &[bool],
) -> Operands<CubeBackend> {
    if !needs_grad[1..].contains(&true) {
        return Operands::of([grad]);
    }
    let [q, w, t] = saved.all();
    let gamma = with_moments(grad.clone(), [q.clone(), w.clone(), t], op.0, true);
    let [gamma, q, w] = [gamma, q, w].map(Value::<CubeBackend>);
    let (n, d) = (q.shape()[0], w.shape()[0]);
    let over_channels = |v: Value<CubeBackend>| v.sum(1).reshape([n]).0;
    Operands::some([
        Some(grad),
        needs_grad[1].then(|| over_channels(gamma.clone() * w.reshape([1, d]))),
        needs_grad[2].then(|| (gamma.clone() * q.reshape([n, 1])).sum(0).reshape([d]).0),
        needs_grad[3].then(|| over_channels(gamma)),
    ])
}

/// The output for `x = mean`, or the gradient of the variance for `x` = gradient.
fn with_variance(
    x: CubeTensor,
    variance: CubeTensor,
    noise: Noise,
    of_gradient: bool,
) -> CubeTensor {
    let [x, variance] = [x, variance].map(into_contiguous);
    let out = empty_like(&x);
    launch!(gaussian_kernel, sizes(&out, 4), out.dtype, [x, variance] => [out],
        kernel_key(noise.key), noise.scale as f32, of_gradient);
    out
}

pub(super) fn gaussian(
    op: &GaussianNoise,
    x: Operands<CubeBackend>,
    save: bool,
) -> Fused<CubeBackend> {
    let saved = x.keep(save, &[1]);
    let [mean, variance] = x.all();
    Fused { out: with_variance(mean, variance, op.0, false), saved }
}

/// The gradient of the mean is that of the output.
pub(super) fn gaussian_gradient(
    op: &GaussianNoise,
    saved: Operands<CubeBackend>,
    grad: CubeTensor,
    needs_grad: &[bool],
) -> Operands<CubeBackend> {
    let [variance] = saved.all();
    let d_variance = needs_grad[1].then(|| with_variance(grad.clone(), variance, op.0, true));
    Operands::some([Some(grad), d_variance])
}
