//! An adapted linear layer with the noise of its update.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::{AdaptedLinear, LowRank, operands};
use crate::ops::op::{self, FusedOp, LrvdBackend, Operands};
use crate::ops::rank_two_noise::{Noise, RankTwoNoise};
use crate::ops::row_energy::RowEnergy;
use crate::ops::value::Value;

/// Which moments the noise of an update has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputNoise {
    /// The stream of the standard-normal numbers.
    pub noise: Noise,
    /// Whether B is random beside A.
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
/// Those of [`adapted_linear()`](fn@super::adapted_linear) with one group; `variance` is `[rank]`.
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
    /// `Σ_i v_i B_ik² + κ Σ_i v_i²`, `[d_output]`.
    fn weighted_squares<B: LrvdBackend>(&self, b: Value<B>, v: Value<B>) -> Value<B> {
        let [_, rank, columns] = [0, 1, 2].map(|axis| b.shape()[axis]);
        let squares = b.reshape([rank, columns]).square();
        let w = (squares * v.clone().reshape([rank, 1])).sum(0).reshape([columns]);
        if self.0.both { w + v.square().sum(0) * self.0.cross } else { w }
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
        let OutputNoise { noise, both, .. } = self.0;
        let ([x, weight, a, b, variance], [bias]) = operands.parts();
        let [down, up] = [a.clone(), b.clone()].map(Some);
        let layer = Operands::some([Some(x.clone()), Some(weight), bias, down, up]);
        let mean = B::fused(AdaptedLinear { scale: noise.scale }, layer);
        let q = B::fused(RowEnergy, Operands::some([Some(rows::<B>(x.clone())), None]));
        let w = self.weighted_squares::<B>(Value(b), Value(variance.clone()));
        let t = if both {
            let s = Value::<B>(x).matmul(Value(a));
            B::fused(RowEnergy, Operands::of([rows::<B>(s.0), variance]))
        } else {
            (Value::<B>(q.clone()) * 0.0).0
        };
        let shape = mean.shape();
        let out = B::fused(RankTwoNoise(noise), Operands::of([rows::<B>(mean), q, w.0, t]));
        Value::<B>(out).reshape(shape).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let form = op::Form { forward: cpu::forward, gradient: Some(cpu::gradient) };
        (dtype == burn::tensor::DType::F32).then_some(form)
    }
}

/// The gradients of the noise's moments enter the backward products as what these add to: no tensor
/// of the size of `x` is written for them alone.
#[cfg(feature = "flex")]
mod cpu {
    use burn::backend::{Flex, TensorMetadata};
    use burn_flex::FlexTensor;

    use super::super::cpu::{layer, layer_gradients};
    use super::{MomentMatched, OutputNoise, rows};
    use crate::ops::op::{Fused, Operands};
    use crate::ops::rank_two_noise::cpu::{add_rank_two, moment_gradients};
    use crate::ops::row_energy::cpu::{energy, energy_gradient};
    use crate::ops::value::Value;

    fn value(tensor: FlexTensor) -> Value<Flex> {
        Value(tensor)
    }

    /// Saved are `x`, `weight`, `a`, `b`, `c·S`, `variance`, `q`, `w` and `t`.
    pub(super) fn forward(op: &MomentMatched, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let OutputNoise { noise, both, .. } = op.0;
        let mut saved = x.keep(save, &[0, 1, 2, 3]);
        let ([x, weight, a, b, variance], [bias]) = x.parts();
        let operands = [Some(x.clone()), Some(weight), bias, Some(a), Some(b.clone())];
        let (mean, hidden) = layer(Operands::some(operands), noise.scale);
        let hidden = hidden.expect("the layer has factors");
        let q = energy::<f32>(rows::<Flex>(x), None);
        let w = op.weighted_squares::<Flex>(Value(b), Value(variance.clone())).0;
        let t = if both {
            let energy = energy::<f32>(rows::<Flex>(hidden.clone()), Some(variance.clone()));
            value(energy) * noise.scale.powi(-2)
        } else {
            value(q.clone()) * 0.0
        };
        let moments = [q, w, t.0];
        if save {
            saved.tensors.extend([hidden, variance].map(Some));
            saved.tensors.extend(moments.clone().map(Some));
        }
        let shape = mean.shape();
        let out = add_rank_two::<f32>(rows::<Flex>(mean), moments, noise);
        Fused { out: value(out).reshape(shape).0, saved }
    }

    pub(super) fn gradient(
        op: &MomentMatched,
        saved: Operands<Flex>,
        grad: FlexTensor,
        needed: &[bool],
    ) -> Operands<Flex> {
        let OutputNoise { noise, both, cross } = op.0;
        let scale = noise.scale;
        let [x, weight, a, b, hidden, variance, q, w, t] = saved.all();
        let [_, rank, columns] = [0, 1, 2].map(|axis| b.shape()[axis]);
        let upstream = rows::<Flex>(grad.clone());
        let [d_q, d_w, d_t] =
            moment_gradients::<f32>([q, w, t], upstream, noise, [needed[0], true, both]);
        let shaped = |d: FlexTensor, like: &FlexTensor| value(d).reshape(like.shape());
        let d_x = d_q.and_then(|d_q| {
            let [d_x, _] =
                energy_gradient::<f32>(rows::<Flex>(x.clone()), None, d_q, [true, false]);
            d_x.map(|d_x| shaped(d_x, &x).0)
        });
        let (d_hidden, of_rows) = match d_t {
            Some(d_t) => {
                let [d_hidden, of_rows] = energy_gradient::<f32>(
                    rows::<Flex>(hidden.clone()),
                    Some(variance.clone()),
                    (value(d_t) * scale.powi(-2)).0,
                    [true, true],
                );
                (d_hidden.map(|d| (shaped(d, &hidden) * scale).0), of_rows)
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
