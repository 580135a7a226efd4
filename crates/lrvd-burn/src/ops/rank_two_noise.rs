//! Gaussian noise added to activations with the moments of the posterior.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;
use lrvd_core::posterior::EPS_VARIANCE;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::standard_normal::StandardNormal;
use super::value::Value;

/// Source of a noise and its factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The stream of the standard-normal numbers.
    pub key: NoiseKey,
    /// The factor `c`.
    pub scale: f64,
}

/// `mean` plus Gaussian noise whose variance has rank two across tokens and channels.
///
/// # Formula
///
/// ```text
/// out[n,k] = mean[n,k] + c · E[n,k] · sqrt(max(V[n,k], 0) + 1e-8),   V[n,k] = q[n]·w[k] + t[n]
/// ```
///
/// `E` is element `n·d + k` of the standard-normal stream of the noise's key, a constant for gradients.
/// With `G` the gradient of `out` and `Γ = c · G ⊙ E / (2 sqrt(V + 1e-8))`, 0 where `V < 0`:
///
/// ```text
/// dmean = G,   dq = Γ w,   dw = Γᵀ q,   dt = Γ 1
/// ```
///
/// # Shapes
///
/// | Name              | Shape    | Meaning for the tied additive family, `docs/math/moments.md` |
/// |-------------------|----------|---------------------------------------------------------------|
/// | `mean`, *returns* | `[n, d]` | activations                                                |
/// | `q`               | `[n]`    | squared norm of each input                                 |
/// | `w`               | `[d]`    | `Σ_i var_i B[k,i]²`, plus the cross term if it is used |
/// | `t`               | `[n]`    | `Σ_i var_i S[n,i]²`                                        |
///
/// # Numerics
///
/// The noise is recomputed in the backward pass: saved are `q`, `w`, `t` and the key of the noise. Sums over rows
/// are taken in chunks that depend on the shape alone.
///
/// # Panics
///
/// If the shapes are not those of the table.
pub fn add_rank_two_noise(
    mean: Tensor<2>,
    q: Tensor<1>,
    w: Tensor<1>,
    t: Tensor<1>,
    noise: Noise,
) -> Tensor<2> {
    let [n, d] = mean.dims();
    assert_eq!(q.dims(), [n], "shape of `q`");
    assert_eq!(w.dims(), [d], "shape of `w`");
    assert_eq!(t.dims(), [n], "shape of `t`");
    let [q, w, t] = [q, w, t].map(Tensor::into_dispatch);
    op::fused(ActivationNoise(noise), Operands::of([mean.into_dispatch(), q, w, t]))
}

/// `mean` plus Gaussian noise of the given variance.
///
/// # Formula
///
/// ```text
/// out = mean + c · E ⊙ sqrt(max(variance, 0) + 1e-8)
/// dmean = G,   dvariance = c · G ⊙ E / (2 sqrt(variance + 1e-8)),  0 where variance < 0
/// ```
///
/// `E` as in [`add_rank_two_noise`]; all tensors are `[n, d]`. Saved for the backward pass: `variance`.
///
/// # Panics
///
/// If the shapes differ.
pub fn add_gaussian_noise(mean: Tensor<2>, variance: Tensor<2>, noise: Noise) -> Tensor<2> {
    assert_eq!(variance.dims(), mean.dims(), "shape of `variance`");
    op::fused(ActivationNoise(noise), Operands::of([mean, variance].map(Tensor::into_dispatch)))
}

/// Of the mean and what its variance is made of: `q`, `w` and `t`, or the variance itself.
#[derive(Clone, Debug)]
pub(super) struct ActivationNoise(pub(super) Noise);

impl FusedOp for ActivationNoise {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let ([mean, first], rest) = x.parts::<2, 2>();
        if mean.shape().num_elements() == 0 {
            return mean;
        }
        let mut variance = Value::<B>(first);
        if let [Some(w), Some(t)] = rest.map(|x| x.map(Value::<B>)) {
            let (n, d) = (variance.shape()[0], w.shape()[0]);
            variance = variance.reshape([n, 1]) * w.reshape([1, d]) + t.reshape([n, 1]);
        }
        let normal = StandardNormal { shape: mean.shape(), key: self.0.key };
        let normal = normal.composite(Operands::<B>::of([mean.clone()]));
        // The root's own floor holds where ε is below the format's numbers.
        let std = (variance.at_least(0.0) + EPS_VARIANCE).sqrt();
        let std = std.at_least(EPS_VARIANCE.sqrt());
        (Value(mean) + Value(normal) * self.0.scale * std).0
    }

    op::forms!(cpu, cube);
}

#[cfg(feature = "flex")]
pub(super) mod cpu {
    #![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

    use super::{ActivationNoise, EPS_VARIANCE};
    use crate::ops::cpu::prelude::*;

    /// `sqrt(max(variance, 0) + epsilon)`.
    #[inline(always)]
    fn std(variance: f32) -> f32 {
        let floored = if variance < 0.0 { 0.0 } else { variance };
        (floored + EPS_VARIANCE as f32).sqrt()
    }

    wide! {
        fn rank_two<'a>(variance: &'a mut [f32], q: f32, w: &'a [f32], t: f32) {
            for (variance, &w) in variance.iter_mut().zip(w) {
                *variance = q * w + t;
            }
        }

        fn add<'a>(out: &'a mut [f32], noise: &'a [f32], variance: &'a [f32], scale: f32) {
            for ((out, &noise), &variance) in out.iter_mut().zip(noise).zip(variance) {
                *out += scale * noise * std(variance);
            }
        }

        /// `grad` becomes the gradient of the variance: 0 where it was clamped.
        fn slope<'a>(grad: &'a mut [f32], noise: &'a [f32], variance: &'a [f32], scale: f32) {
            for ((grad, &noise), &variance) in grad.iter_mut().zip(noise).zip(variance) {
                let slope = scale * noise * 0.5 / std(variance);
                *grad *= if variance < 0.0 { 0.0 } else { slope };
            }
        }

        /// Adds `gamma ⊙ q` to `d_w` and returns the row's `d_q` and `d_t`.
        fn sums<'a>(gamma: &'a [f32], q: f32, w: &'a [f32], d_w: &'a mut [f32]) -> [f32; 2] {
            for (d_w, &gamma) in d_w.iter_mut().zip(gamma) {
                *d_w += gamma * q;
            }
            [sum_pairs(gamma, w, |gamma, w| gamma * w), sum(gamma)]
        }
    }

    /// `x` with `f` of its elements, their noise, their variances and the scale of the noise, by chunks of rows.
    fn walk(
        op: &ActivationNoise,
        x: FlexTensor,
        moments: &[FlexTensor],
        f: fn(&mut [f32], &[f32], &[f32], f32),
    ) -> FlexTensor {
        let width = x.shape()[1];
        let moments: Vec<_> = moments.iter().map(slice).collect();
        in_place(x, rows_per_task(width) * width, |first, x| {
            let mut noise = vec![0.0; x.len()];
            fill_normal(op.0.key, first, &mut noise);
            let mut of_rows = Vec::new();
            let variance = match moments[..] {
                [q, w, t] => {
                    of_rows.resize(x.len(), 0.0);
                    for (i, row) in of_rows.chunks_exact_mut(width).enumerate() {
                        let row_number = first / width + i;
                        rank_two(row, q[row_number], w, t[row_number]);
                    }
                    &of_rows
                }
                _ => &moments[0][first..][..x.len()],
            };
            f(x, &noise, variance, op.0.scale as f32);
        })
    }

    /// The moments of the variance in order of rows.
    fn moments(x: Vec<Option<FlexTensor>>) -> Vec<FlexTensor> {
        x.into_iter().flatten().map(contiguous).collect()
    }

    pub(crate) fn forward(op: &ActivationNoise, mut x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let moments = moments(x.tensors.split_off(1));
        let [mean] = x.all();
        let out = walk(op, mean, &moments, add);
        let saved = if save { moments.into_iter().map(Some).collect() } else { Vec::new() };
        Fused { out, saved: saved.into() }
    }

    /// The gradient of the mean is that of the output.
    pub(crate) fn gradient(op: &ActivationNoise, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let mut gradients = vec![Some(grad.clone())];
        if needs_grad[1..].contains(&true) {
            let moments = moments(saved.tensors);
            let gamma = walk(op, grad, &moments, slope);
            match &moments[..] {
                [q, w, _] => gradients.extend(moment_gradients(&gamma, q, w, &needs_grad[1..])),
                _ => gradients.push(Some(gamma)),
            }
        }
        gradients.into()
    }

    /// Gradients of `q`, `w` and `t`, where needed, from that of the variance.
    fn moment_gradients(
        gamma: &FlexTensor,
        q: &FlexTensor,
        w: &FlexTensor,
        needs_grad: &[bool],
    ) -> [Option<FlexTensor>; 3] {
        let (q, w) = (slice(q), slice(w));
        let (n, width, rows) = (q.len(), w.len(), rows_per_task(w.len()));
        let (mut d_q, mut d_t) = (vec![0.0; n], vec![0.0; n]);
        let tasks = slice(gamma)
            .chunks(rows * width)
            .zip(q.chunks(rows))
            .zip(d_q.chunks_mut(rows).zip(d_t.chunks_mut(rows)))
            .collect();
        let parts = run(tasks, |((gamma, q), (d_q, d_t))| {
            let mut d_w = if needs_grad[1] { vec![0.0; width] } else { Vec::new() };
            for (k, gamma) in gamma.chunks_exact(width).enumerate() {
                [d_q[k], d_t[k]] = sums(gamma, q[k], w, &mut d_w);
            }
            d_w
        });
        [
            needs_grad[0].then(|| tensor(d_q, [n])),
            needs_grad[1].then(|| tensor(sum_rows(&parts, width), [width])),
            needs_grad[2].then(|| tensor(d_t, [n])),
        ]
    }
}

/// The backward pass writes `Γ` once and leaves its sums to Burn's reductions, whose order is fixed.
#[cfg(feature = "cube")]
mod cube {
    use burn::backend::cubecl::dtype_to_storage_type;

    use super::ActivationNoise;
    use crate::ops::cube::prelude::*;
    use crate::ops::standard_normal::cube::{KernelKey, kernel_key, normals};

    /// `sqrt(max(variance, 0) + epsilon)`.
    #[cube]
    fn std(variance: f32) -> f32 {
        (variance.max(0.0f32) + 1e-8f32).sqrt()
    }

    /// `value + noise · std`, or `value` times its slope, 0 where the variance was clamped, if `of_gradient`.
    #[cube]
    fn noisy(value: f32, variance: f32, noise: f32, #[comptime] of_gradient: bool) -> f32 {
        if of_gradient {
            value * select(variance < 0.0f32, 0.0f32, 0.5f32 * noise / std(variance))
        } else {
            value + noise * std(variance)
        }
    }

    /// The variance of a flat element: `q[n] w[k]` with `w`, or itself.
    #[cube]
    fn product_of<F: Float>(q: &Tensor<F>, w: ComptimeOption<&Tensor<F>>, element: usize) -> f32 {
        #[comptime]
        match w {
            ComptimeOption::Some(w) => {
                f32::cast_from(q[element / w.len()]) * f32::cast_from(w[element % w.len()])
            }
            ComptimeOption::None => f32::cast_from(q[element]),
        }
    }

    /// The summand of its variance, `t[n]` or 0.
    #[cube]
    fn sum_of<F: Float>(t: ComptimeOption<&Tensor<F>>, width: usize, element: usize) -> f32 {
        #[comptime]
        match t {
            ComptimeOption::Some(t) => f32::cast_from(t[element / width]),
            ComptimeOption::None => 0.0f32.runtime(),
        }
    }

    /// `mean + scale · noise · std`, or the slope times `x` if `of_gradient`; one unit per four elements. `q` is the variance
    /// of every element where there is no `w` and no `t`.
    #[cube(launch)]
    fn noise_kernel<F: Float>(
        x: &Tensor<F>,
        q: &Tensor<F>,
        w: ComptimeOption<&Tensor<F>>,
        t: ComptimeOption<&Tensor<F>>,
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
        let width = out.shape(1);
        let mut noise = Array::<f32>::new(4usize);
        normals(&key, ABSOLUTE_POS as u32, &mut noise);
        #[unroll]
        for lane in 0..4usize {
            let element = start + lane;
            if element < out.len() {
                let variance = product_of::<F>(q, w, element) + sum_of::<F>(t, width, element);
                let value = f32::cast_from(x[element]);
                out[element] =
                    F::cast_from(noisy(value, variance, scale * noise[lane], of_gradient));
            }
        }
    }

    /// The output for `x = mean`, or the gradient of the variance for `x` = gradient.
    fn walk(
        op: &ActivationNoise,
        x: CubeTensor,
        moments: Operands<Cube>,
        of_gradient: bool,
    ) -> CubeTensor {
        let ([q], [w, t]) = moments.parts();
        let [x, q] = [x, q].map(into_contiguous);
        let [w, t] = [w, t].map(|x| x.map(|x| into_contiguous(x).into_tensor_arg()));
        let out = empty(&x, x.shape());
        if let Some((count, dim)) = sizes(&out, 4) {
            noise_kernel::launch(
                &out.client,
                count,
                dim,
                x.into_tensor_arg(),
                q.into_tensor_arg(),
                w.into(),
                t.into(),
                out.clone().into_tensor_arg(),
                kernel_key(op.0.key),
                op.0.scale as f32,
                of_gradient,
                dtype_to_storage_type(out.dtype),
            );
        }
        out
    }

    pub(crate) fn forward(op: &ActivationNoise, mut x: Operands<Cube>, save: bool) -> Fused<Cube> {
        let moments: Operands<Cube> = x.tensors.split_off(1).into();
        let saved = if save { moments.clone() } else { Operands::of([]) };
        let [mean] = x.all();
        Fused { out: walk(op, mean, moments, false), saved }
    }

    /// The gradient of the mean is that of the output.
    pub(crate) fn gradient(op: &ActivationNoise, x: Upstream<'_, Cube>) -> Operands<Cube> {
        let Upstream { saved: moments, grad, needs_grad } = x;
        if !needs_grad[1..].contains(&true) {
            return Operands::of([grad]);
        }
        let gamma = Value::<Cube>(walk(op, grad.clone(), moments.clone(), true));
        let ([q], [w]) = moments.parts();
        let Some(w) = w else { return Operands::of([grad, gamma.0]) };
        let [q, w] = [q, w].map(Value::<Cube>);
        let (n, d) = (q.shape()[0], w.shape()[0]);
        let over_channels = |v: Value<Cube>| v.sum(1).reshape([n]).0;
        Operands::some([
            Some(grad),
            needs_grad[1].then(|| over_channels(gamma.clone() * w.reshape([1, d]))),
            needs_grad[2].then(|| (gamma.clone() * q.reshape([n, 1])).sum(0).reshape([d]).0),
            needs_grad[3].then(|| over_channels(gamma)),
        ])
    }
}
