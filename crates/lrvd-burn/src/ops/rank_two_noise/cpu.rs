//! Activation noise on slices, by chunks of rows.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::Flex;
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::{GaussianNoise, Noise, RankTwoNoise, VARIANCE_EPSILON};
use crate::ops::cpu::{Real, TASK, contiguous, rows_per_task, run, sum, sum_pairs, sum_rows, wide};
use crate::ops::op::{Fused, Operands};

/// `sqrt(max(variance, 0) + epsilon)`.
#[inline(always)]
fn std<E: Real>(variance: E) -> E {
    let floored = if variance < E::ZERO { E::ZERO } else { variance };
    (floored + E::of(VARIANCE_EPSILON)).sqrt()
}

/// Slope of `noise · std(variance)`, 0 where the variance was clamped.
#[inline(always)]
fn slope<E: Real>(variance: E, noise: E) -> E {
    let slope = noise * E::of(0.5) / std(variance);
    if variance < E::ZERO { E::ZERO } else { slope }
}

wide! {
    /// Adds the noise of one row.
    fn add_row<'a, E>(out: &'a mut [E], noise: &'a [E], w: &'a [E], of_row: [E; 3]) {
        let [q, t, scale] = of_row;
        for ((out, &noise), &w) in out.iter_mut().zip(noise).zip(w) {
            *out += scale * noise * std(q * w + t);
        }
    }

    /// Turns the noise of one row into `Γ`, adds to `d_w` and returns the row's `d_q` and `d_t`.
    fn slope_row<'a, E>(
        gamma: &'a mut [E],
        grad: &'a [E],
        w: &'a [E],
        d_w: &'a mut [E],
        of_row: [E; 3],
    ) -> [E; 2] {
        let [q, t, scale] = of_row;
        for ((gamma, &grad), &w) in gamma.iter_mut().zip(grad).zip(w) {
            *gamma = grad * slope(q * w + t, scale * *gamma);
        }
        for (d_w, &gamma) in d_w.iter_mut().zip(&*gamma) {
            *d_w += gamma * q;
        }
        [sum_pairs(gamma, w, |gamma, w| gamma * w), sum(gamma)]
    }
}

pub(super) fn rank_two<E: Real>(op: &RankTwoNoise, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[1, 2, 3]);
    let [mean, q, w, t] = x.all();
    Fused { out: add_rank_two::<E>(mean, [q, w, t], op.0), saved }
}

/// `mean` with the noise, written over it when no other tensor shares it.
pub(in crate::ops) fn add_rank_two<E: Real>(
    mean: FlexTensor,
    moments: [FlexTensor; 3],
    Noise { key, scale }: Noise,
) -> FlexTensor {
    let (mut mean, moments) = (contiguous(mean), moments.map(contiguous));
    let [q, w, t] = moments.each_ref().map(E::slice);
    let (width, scale) = (w.len(), E::of(scale));
    let rows = rows_per_task(width);
    let tasks = E::slice_mut(&mut mean).chunks_mut(rows * width).enumerate().collect();
    run(tasks, |(task, out): (usize, &mut [E])| {
        let mut noise = vec![E::ZERO; out.len()];
        E::fill_normal(key, (task * rows * width) as u64, &mut noise);
        let lines = out.chunks_exact_mut(width).zip(noise.chunks_exact(width));
        for (k, (out, noise)) in lines.enumerate() {
            let row = task * rows + k;
            add_row(out, noise, w, [q[row], t[row], scale]);
        }
    });
    mean
}

/// Number of a chunk of rows, its gradient of the output, and its places in `d_q` and `d_t`.
type Task<'a, E> = (usize, ((&'a [E], &'a mut [E]), &'a mut [E]));

/// The gradient of the mean is that of the output.
pub(super) fn rank_two_gradient<E: Real>(
    op: &RankTwoNoise,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let needed = [needs_grad[1], needs_grad[2], needs_grad[3]];
    let [d_q, d_w, d_t] = if needed.contains(&true) {
        moment_gradients::<E>(saved.all(), grad.clone(), op.0, needed)
    } else {
        [None, None, None]
    };
    Operands::some([Some(grad), d_q, d_w, d_t])
}

/// Gradients of `q`, `w` and `t`, where needed.
pub(in crate::ops) fn moment_gradients<E: Real>(
    moments: [FlexTensor; 3],
    grad: FlexTensor,
    Noise { key, scale }: Noise,
    needs_grad: [bool; 3],
) -> [Option<FlexTensor>; 3] {
    let (moments, grad, scale) = (moments.map(contiguous), contiguous(grad), E::of(scale));
    let [q, w, t] = moments.each_ref().map(E::slice);
    let (n, width) = (q.len(), w.len());
    let (mut d_q, mut d_t) = (vec![E::ZERO; n], vec![E::ZERO; n]);
    let rows = rows_per_task(width);
    let tasks = E::slice(&grad)
        .chunks(rows * width)
        .zip(d_q.chunks_mut(rows))
        .zip(d_t.chunks_mut(rows))
        .enumerate()
        .collect();
    let parts = run(tasks, |(task, ((grad, d_q), d_t)): Task<'_, E>| {
        let mut gamma = vec![E::ZERO; grad.len()];
        let mut d_w = if needs_grad[1] { vec![E::ZERO; width] } else { Vec::new() };
        E::fill_normal(key, (task * rows * width) as u64, &mut gamma);
        let lines = gamma.chunks_exact_mut(width).zip(grad.chunks_exact(width));
        for (k, (gamma, grad)) in lines.enumerate() {
            let row = task * rows + k;
            let of_row = [q[row], t[row], scale];
            [d_q[k], d_t[k]] = slope_row(gamma, grad, w, &mut d_w, of_row);
        }
        d_w
    });
    [
        needs_grad[0].then(|| E::tensor(d_q, Shape::new([n]))),
        needs_grad[1].then(|| E::tensor(sum_rows(&parts, width), Shape::new([width]))),
        needs_grad[2].then(|| E::tensor(d_t, Shape::new([n]))),
    ]
}

pub(super) fn gaussian<E: Real>(op: &GaussianNoise, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[1]);
    let [mean, variance] = x.all();
    let out =
        combine(mean, variance, op.0, |mean: E, variance, noise| mean + noise * std(variance));
    Fused { out, saved }
}

/// The gradient of the mean is that of the output.
pub(super) fn gaussian_gradient<E: Real>(
    op: &GaussianNoise,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let [variance] = saved.all();
    let slope_of = |grad: E, variance, noise| grad * slope(variance, noise);
    let d_variance = needs_grad[1].then(|| combine(grad.clone(), variance, op.0, slope_of));
    Operands::some([Some(grad), d_variance])
}

/// `f(x, variance, noise)` elementwise, written over `x` when no other tensor shares it.
fn combine<E: Real>(
    x: FlexTensor,
    variance: FlexTensor,
    noise: Noise,
    f: impl Fn(E, E, E) -> E + Sync + Send,
) -> FlexTensor {
    let Noise { key, scale } = noise;
    let scale = E::of(scale);
    let (mut x, variance) = (contiguous(x), contiguous(variance));
    let variance = E::slice(&variance).chunks(TASK);
    let tasks = E::slice_mut(&mut x).chunks_mut(TASK).zip(variance).enumerate().collect();
    run(tasks, |(task, (x, variance)): (usize, (&mut [E], &[E]))| {
        let mut noise = vec![E::ZERO; x.len()];
        E::fill_normal(key, (task * TASK) as u64, &mut noise);
        for ((x, &variance), &noise) in x.iter_mut().zip(variance).zip(&noise) {
            *x = f(*x, variance, scale * noise);
        }
    });
    x
}
