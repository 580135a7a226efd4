//! An adapted linear layer with the noise of its update.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::adapted_linear::{AdaptedLinear, LowRank, operands};
use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::rank_two_noise::{ActivationNoise, Noise};
use super::row_energy::RowEnergy;
use super::value::Value;

/// Noise of an update and the moments that it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputNoise {
    /// The stream of the standard-normal numbers.
    pub noise: Noise,
    /// `true` if B is random beside A.
    pub both: bool,
    /// Weight of the product of both variances: 1, or 0 to leave it out.
    pub cross: f64,
}

/// [`adapted_linear()`](fn@super::adapted_linear) with the output noise of a rank-tied posterior.
///
/// # Formula
///
/// ```text
/// y = x·W + bias + c·S·B + c·E ⊙ sqrt(V + 1e-8),   S = x·A,   V[n,k] = q[n]·w[k] + t[n]
/// q = ‖x_n‖²,   w[k] = Σ_i v_i B_ik² + κ Σ_i v_i²,   t = Σ_i v_i S_ni²
/// ```
///
/// without `κ` and `t` where A alone is random. `E` and its gradient as in
/// [`add_rank_two_noise`](crate::ops::add_rank_two_noise).
///
/// # Shapes
///
/// As in [`adapted_linear()`](fn@super::adapted_linear) with one group; `variance` is `[rank]`.
///
/// # Panics
///
/// If shapes do not fit, the rank or `c` is 0, or the noise has another scale than the update.
pub fn moment_matched_linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    low: LowRank,
    variance: Tensor<1>,
    noise: OutputNoise,
) -> Tensor<3> {
    let ([groups, _, rank], scale) = (low.a.dims(), low.scale);
    assert!(groups == 1 && rank > 0, "one pair of factors, of a rank above 0");
    assert_eq!(variance.dims(), [rank], "shape of `variance`");
    assert!(scale != 0.0 && scale == noise.noise.scale, "one scale other than 0");
    let mut x = operands(x, weight, bias, Some(low));
    let bias = x.tensors.remove(2);
    x.tensors.extend([Some(variance.into_dispatch()), bias]);
    op::fused(MomentMatched(noise), x)
}

/// Of `x`, `weight`, `a`, `b`, `variance` and, if there is one, `bias`.
#[derive(Clone, Debug)]
struct MomentMatched(OutputNoise);

impl MomentMatched {
    /// `q`, `w` and `t`, the last from `s = factor · S`.
    fn moments<B: LrvdBackend>(
        &self,
        [x, b, variance]: [FloatTensor<B>; 3],
        s: impl FnOnce() -> FloatTensor<B>,
        factor: f64,
    ) -> [FloatTensor<B>; 3] {
        let energy = |x, weight| B::fused(RowEnergy, Operands::some([Some(rows::<B>(x)), weight]));
        let q = energy(x, None);
        let (b, v) = (Value::<B>(b), Value::<B>(variance.clone()));
        let (rank, columns) = (b.shape()[1], b.shape()[2]);
        let squares = b.reshape([rank, columns]).square();
        let mut w = (squares * v.clone().reshape([rank, 1])).sum(0).reshape([columns]);
        if !self.0.both {
            return [q.clone(), w.0, (Value::<B>(q) * 0.0).0];
        }
        w = w + v.square().sum(0) * self.0.cross;
        let t = Value::<B>(energy(s(), Some(variance)));
        [q, w.0, (t * factor.powi(-2)).0]
    }

    fn add_noise<B: LrvdBackend>(
        &self,
        mean: FloatTensor<B>,
        [q, w, t]: [FloatTensor<B>; 3],
    ) -> FloatTensor<B> {
        let (op, shape) = (ActivationNoise(self.0.noise), mean.shape());
        Value::<B>(B::fused(op, Operands::of([rows::<B>(mean), q, w, t]))).reshape(shape).0
    }
}

/// `[n, tokens, features]` as `[n · tokens, features]`.
fn rows<B: LrvdBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let shape = x.shape().to_vec();
    Value::<B>(x).reshape([shape[..shape.len() - 1].iter().product(), shape[shape.len() - 1]]).0
}

impl FusedOp for MomentMatched {
    /// The operators that it joins.
    fn composite<B: LrvdBackend>(&self, operands: Operands<B>) -> FloatTensor<B> {
        let ([x, weight, a, b, variance], [bias]) = operands.parts();
        let [down, up] = [a.clone(), b.clone()].map(Some);
        let layer = Operands::some([Some(x.clone()), Some(weight), bias, down, up]);
        let mean = B::fused(AdaptedLinear { scale: self.0.noise.scale, packed: None }, layer);
        let s = || Value::<B>(x.clone()).matmul(Value(a)).0;
        let moments = self.moments::<B>([x.clone(), b, variance], s, 1.0);
        self.add_noise::<B>(mean, moments)
    }

    op::forms!(cpu);
}

/// The gradients of the noise's moments enter the backward products as what these add to: no tensor
/// of the size of `x` is written for them alone.
#[cfg(feature = "flex")]
mod cpu {
    use super::{ActivationNoise, MomentMatched, OutputNoise, RowEnergy, rows};
    use crate::ops::adapted_linear::cpu::{layer, layer_gradients};
    use crate::ops::cpu::prelude::*;
    use crate::ops::value::Value;
    use crate::ops::{rank_two_noise, row_energy};

    fn value(tensor: FlexTensor) -> Value<Flex> {
        Value(tensor)
    }

    fn energy_gradient(
        x: FlexTensor,
        weight: Option<FlexTensor>,
        grad: FlexTensor,
    ) -> Operands<Flex> {
        let needs_grad = &[true, weight.is_some()];
        let saved = Operands::some([Some(x), weight]);
        row_energy::cpu::gradient(&RowEnergy, Upstream { saved, grad, needs_grad })
    }

    /// Saved are `x`, `weight`, `a`, `b`, `c·S`, `variance`, `q`, `w` and `t`.
    pub(crate) fn forward(op: &MomentMatched, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let mut saved = x.keep(save, &[0, 1, 2, 3]);
        let ([x, weight, a, b, variance], [bias]) = x.parts();
        let operands = [Some(x.clone()), Some(weight), bias, Some(a), Some(b.clone())];
        let scale = op.0.noise.scale;
        let (mean, hidden) = layer(Operands::some(operands), scale);
        let hidden = hidden.expect("the layer has factors");
        let moments = op.moments::<Flex>([x, b, variance.clone()], || hidden.clone(), scale);
        if save {
            saved.tensors.extend([hidden, variance].map(Some));
            saved.tensors.extend(moments.clone().map(Some));
        }
        Fused { out: op.add_noise::<Flex>(mean, moments), saved }
    }

    pub(crate) fn gradient(op: &MomentMatched, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad: needed } = x;
        let OutputNoise { noise, both, cross } = op.0;
        let scale = noise.scale;
        let [x, weight, a, b, hidden, variance, q, w, t] = saved.all();
        let [_, rank, columns] = b.shape().dims();
        let of_noise = Upstream {
            saved: Operands::of([q, w, t]),
            grad: rows::<Flex>(grad.clone()),
            needs_grad: &[false, needed[0], true, both],
        };
        let of_noise = rank_two_noise::cpu::gradient(&ActivationNoise(noise), of_noise);
        let ([_], [d_q, d_w, d_t]) = of_noise.parts();
        let shaped = |d: FlexTensor, like: &FlexTensor| value(d).reshape(like.shape());
        let d_x = d_q.map(|d_q| {
            let ([d_x], []) = energy_gradient(rows::<Flex>(x.clone()), None, d_q).parts();
            shaped(d_x, &x).0
        });
        let (d_hidden, of_rows) = match d_t {
            Some(d_t) => {
                let d_t = (value(d_t) * scale.powi(-2)).0;
                let (h, v) = (rows::<Flex>(hidden.clone()), variance.clone());
                let ([d_hidden], [of_rows]) = energy_gradient(h, Some(v), d_t).parts();
                (Some((shaped(d_hidden, &hidden) * scale).0), of_rows)
            }
            None => (None, None),
        };
        let layer = Operands::of([x, weight, a, b.clone(), hidden]);
        let of_layer = [0, 1, 5, 2, 3].map(|place: usize| needed[place]);
        let [d_x, d_weight, d_bias, d_a, mut d_b] =
            layer_gradients(layer, grad, scale, &of_layer, [d_x, d_hidden]);
        let d_variance = d_w.map(|d_w| {
            let [d_w, v, b] = [d_w, variance, b].map(value);
            let turned = b.clone() * d_w.clone().reshape([1, 1, columns]);
            let mut d_v = (turned.clone() * b).sum(2).reshape([rank]);
            if both {
                d_v = d_v + v.clone() * d_w.sum(0) * (2.0 * cross);
            }
            if let Some(of_rows) = of_rows {
                d_v = d_v + value(of_rows);
            }
            let rows = (v * 2.0).reshape([1, rank, 1]);
            d_b = d_b.take().map(|d_b| (value(d_b) + turned * rows).0);
            d_v.0
        });
        let d_variance = d_variance.filter(|_| needed[4]);
        Operands::some([d_x, d_weight, d_a, d_b, d_variance, d_bias])
    }
}
