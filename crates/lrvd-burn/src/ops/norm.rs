//! Normalisation over the last axis.

use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

/// Layer normalisation of the last axis, with gain, and with a shift if there is a `beta`.
///
/// # Formula
///
/// ```text
/// out = (x - mean) · r · gamma + beta,   r = 1 / sqrt(variance + eps)
/// ```
///
/// `mean` and the biased `variance` are those of each row.
///
/// # Shapes
///
/// | Name            | Shape      |
/// |-----------------|------------|
/// | `x`, *returns*  | `[..., d]` |
/// | `gamma`, `beta` | `[d]`      |
///
/// # Numerics
///
/// Two passes per row, the second over centred values. The backward pass saves `x` and `gamma` and
/// computes the statistics again; gradients of `gamma` and `beta` cost nothing while both are frozen.
///
/// # Panics
///
/// If `gamma` or `beta` does not have `d` entries.
///
/// # References
///
/// Ba, Kiros, Hinton 2016, arXiv:1607.06450.
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    eps: f64,
) -> Tensor<D> {
    norm(x, gamma, beta, Norm { eps, centred: true })
}

/// Root-mean-square normalisation of the last axis, with gain.
///
/// # Formula
///
/// ```text
/// out = x · r · gamma,   r = 1 / sqrt(mean(x²) + eps)
/// ```
///
/// Shapes, numerics and panics are those of [`layer_norm`].
///
/// # References
///
/// Zhang, Sennrich 2019, arXiv:1910.07467.
pub fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, eps: f64) -> Tensor<D> {
    norm(x, gamma, None, Norm { eps, centred: false })
}

fn norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    op: Norm,
) -> Tensor<D> {
    let width = x.dims()[D - 1];
    assert_eq!(gamma.dims(), [width], "shape of `gamma`");
    if let Some(beta) = &beta {
        assert_eq!(beta.dims(), [width], "shape of `beta`");
    }
    let [gamma, beta] = [Some(gamma), beta].map(|x| x.map(Tensor::into_dispatch));
    op::fused(op, Operands::some([Some(x.into_dispatch()), gamma, beta]))
}

/// Of `x`, `gamma` and an optional `beta`.
#[derive(Clone, Debug)]
struct Norm {
    eps: f64,
    /// `true` if the mean of a row is subtracted from it.
    centred: bool,
}

impl FusedOp for Norm {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let ([x, gamma], [beta]) = x.parts();
        let mut x = Value::<B>(x);
        let rank = x.shape().len();
        if x.shape().contains(&0) {
            return x.0;
        }
        if self.centred {
            x = x.clone() - x.mean(rank - 1);
        }
        let r = (x.clone().square().mean(rank - 1) + self.eps).sqrt().recip();
        let out = x * r * as_row(gamma, rank);
        match beta {
            Some(beta) => (out + as_row(beta, rank)).0,
            None => out.0,
        }
    }

    op::forms!(cpu);
}

#[cfg(feature = "flex")]
mod cpu {
    #![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

    use super::Norm;
    use crate::ops::cpu::prelude::*;

    /// The number subtracted from a row, and the reciprocal of its root mean square after that.
    #[inline(always)]
    fn statistics(row: &[f32], eps: f32, centred: bool) -> (f32, f32) {
        let count = row.len() as f32;
        let mean = if centred { sum(row) / count } else { 0.0 };
        let variance = sum_pairs(row, row, |x, _| (x - mean) * (x - mean)) / count;
        (mean, 1.0 / (variance + eps).sqrt())
    }

    wide! {
        /// Normalises whole rows.
        fn rows_forward<'a>(
            out: &'a mut [f32],
            x: &'a [f32],
            gamma: &'a [f32],
            beta: Option<&'a [f32]>,
            eps: f32,
            centred: bool,
        ) {
            let width = gamma.len();
            for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                let (mean, r) = statistics(x, eps, centred);
                for ((out, &x), &gamma) in out.iter_mut().zip(x).zip(gamma) {
                    *out = (x - mean) * r * gamma;
                }
                for (out, &beta) in out.iter_mut().zip(beta.unwrap_or_default()) {
                    *out += beta;
                }
            }
        }

        /// `grad` becomes the gradient of `x`; an empty part is not needed.
        fn rows_backward<'a>(
            grad: &'a mut [f32],
            x: &'a [f32],
            gamma: &'a [f32],
            eps: f32,
            centred: bool,
            parts: &'a mut [Vec<f32>; 2],
        ) {
            let (width, [d_gamma, d_beta]) = (gamma.len(), parts);
            let count = width as f32;
            for (grad, x) in grad.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                let (mean, r) = statistics(x, eps, centred);
                for ((d_gamma, &grad), &x) in d_gamma.iter_mut().zip(&*grad).zip(x) {
                    *d_gamma += grad * (x - mean) * r;
                }
                for (d_beta, &grad) in d_beta.iter_mut().zip(&*grad) {
                    *d_beta += grad;
                }
                for (grad, &gamma) in grad.iter_mut().zip(gamma) {
                    *grad *= gamma;
                }
                let across = if centred { sum(grad) / count } else { 0.0 };
                let along = sum_pairs(grad, x, |grad, x| grad * (x - mean)) * r * r / count;
                for (grad, &x) in grad.iter_mut().zip(x) {
                    *grad = r * (*grad - across - (x - mean) * along);
                }
            }
        }
    }

    pub(crate) fn forward(op: &Norm, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[0, 1]);
        let ([x, gamma], [beta]) = x.parts();
        let ([x, gamma], beta) = ([x, gamma].map(contiguous), beta.map(contiguous));
        let (gamma, beta, eps) = (slice(&gamma), beta.as_ref().map(slice), op.eps as f32);
        let mut out = vec![0.0; x.shape().num_elements()];
        let size = rows_per_task(gamma.len()) * gamma.len();
        let tasks = out.chunks_mut(size).zip(slice(&x).chunks(size)).collect();
        run(tasks, |(out, x)| rows_forward(out, x, gamma, beta, eps, op.centred));
        Fused { out: tensor(out, x.shape()), saved }
    }

    pub(crate) fn gradient(op: &Norm, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let ([x, gamma], mut grad) = (saved.all().map(contiguous), contiguous(grad));
        let gain = slice(&gamma);
        let (width, size) = (gain.len(), rows_per_task(gain.len()) * gain.len());
        let tasks = slice_mut(&mut grad).chunks_mut(size).zip(slice(&x).chunks(size));
        let parts = run(tasks.collect(), |(grad, x): (&mut [f32], &[f32])| {
            let mut part = [needs_grad[1], needs_grad[2]]
                .map(|needs_grad| if needs_grad { vec![0.0; width] } else { Vec::new() });
            rows_backward(grad, x, gain, op.eps as f32, op.centred, &mut part);
            part
        });
        let (gamma_parts, beta_parts): (Vec<_>, Vec<_>) = parts.into_iter().map(Into::into).unzip();
        let vector = |parts: &[Vec<f32>]| tensor(sum_rows(parts, width), [width]);
        Operands::some([
            needs_grad[0].then_some(grad),
            needs_grad[1].then(|| vector(&gamma_parts)),
            needs_grad[2].then(|| vector(&beta_parts)),
        ])
    }
}
