//! An adapted linear layer with the noise of its update in the same node of the graph.
//!
//! The gradients of the noise's moments enter the backward products as what these add to: no tensor
//! of the size of `x` is written for them alone.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::tensor::Tensor;

use super::{LowRank, check};
use crate::ops::backend::{LrvdBackend, Maybe};
use crate::ops::rank_two_noise::Noise;
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
    check(&x, &weight, bias.as_ref(), Some(&low));
    let [groups, _, rank] = low.a.dims();
    assert!(groups == 1 && rank > 0, "one pair of factors, of a rank above 0");
    assert_eq!(variance.dims(), [rank], "shape of `variance`");
    assert!(low.scale != 0.0 && low.scale == noise.noise.scale, "one scale other than 0");
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_moment_matched_linear(
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.map(Tensor::into_dispatch).into(),
        low.a.into_dispatch(),
        low.b.into_dispatch(),
        variance.into_dispatch(),
        noise,
    ))
}

/// `[n, tokens, features]` as `[n · tokens, features]`.
fn rows<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let shape = x.shape().to_vec();
    Value::<B>(x).reshape([shape[..shape.len() - 1].iter().product(), shape[shape.len() - 1]]).0
}

/// What the backward pass reads.
#[derive(Clone, Debug)]
pub(crate) struct Saved<B: LrvdBackend> {
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    has_bias: bool,
    a: FloatTensor<B>,
    b: FloatTensor<B>,
    /// `c·S`.
    hidden: FloatTensor<B>,
    variance: FloatTensor<B>,
    /// `q`, `w` and `t`.
    moments: [FloatTensor<B>; 3],
    noise: OutputNoise,
}

/// The output and what its gradient needs.
pub(crate) fn run<B: LrvdBackend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    [a, b, variance]: [FloatTensor<B>; 3],
    noise: OutputNoise,
) -> (FloatTensor<B>, Option<Saved<B>>) {
    let has_bias = bias.is_some();
    let scale = noise.noise.scale;
    let given = |t: &FloatTensor<B>| Maybe::Given(t.clone());
    let (mean, hidden) = B::fused_adapted_linear(
        x.clone(),
        weight.clone(),
        bias.into(),
        given(&a),
        given(&b),
        scale,
    );
    let Some(hidden) = hidden else { return (mean, None) };
    let q = Value::<B>(B::fused_row_energy(rows::<B>(x.clone()), Maybe::Absent));
    let v = Value::<B>(variance.clone());
    let mut w = weighted_squares(&b, v.clone());
    let t = if noise.both {
        w = w + v.square().sum(0) * noise.cross;
        let energy = B::fused_row_energy(rows::<B>(hidden.clone()), Maybe::Given(variance.clone()));
        Value(energy) * scale.powi(-2)
    } else {
        q.clone() * 0.0
    };
    let moments = [q.0, w.0, t.0];
    let [q, w, t] = moments.clone();
    let shape = mean.shape();
    let out = B::fused_rank_two_noise(rows::<B>(mean), q, w, t, noise.noise);
    let saved = Saved { x, weight, has_bias, a, b, hidden, variance, moments, noise };
    (Value::<B>(out).reshape(shape).0, Some(saved))
}

/// `Σ_i v_i B_ik²`, `[d_output]`.
fn weighted_squares<B: Backend>(b: &FloatTensor<B>, v: Value<B>) -> Value<B> {
    let [_, rank, columns] = [0, 1, 2].map(|axis| b.shape()[axis]);
    let squares = Value::<B>(b.clone()).reshape([rank, columns]).square();
    (squares * v.reshape([rank, 1])).sum(0).reshape([columns])
}

/// Gradients of `x`, `weight`, `bias`, `a`, `b` and `variance`.
pub(crate) fn gradients<B: LrvdBackend>(
    saved: Saved<B>,
    grad: FloatTensor<B>,
    needed: [bool; 6],
) -> [Option<FloatTensor<B>>; 6] {
    let Saved { x, weight, has_bias, a, b, hidden, variance, moments: [q, w, t], noise } = saved;
    let [_, rank, columns] = [0, 1, 2].map(|axis| b.shape()[axis]);
    let scale = noise.noise.scale;

    let upstream = rows::<B>(grad.clone());
    let (d_q, d_w, d_t) =
        B::fused_rank_two_noise_grad(q, w, t, upstream, noise.noise, [true, true, noise.both]);
    let d_q = d_q.filter(|_| needed[0]);
    let d_x = d_q.and_then(|d_q| {
        let x = rows::<B>(x.clone());
        B::fused_row_energy_grad(x, Maybe::Absent, d_q, [true, false]).0
    });
    let (d_hidden, of_rows) = match d_t {
        Some(d_t) => B::fused_row_energy_grad(
            rows::<B>(hidden.clone()),
            Maybe::Given(variance.clone()),
            (Value::<B>(d_t) * scale.powi(-2)).0,
            [true, true],
        ),
        None => (None, None),
    };
    let shaped = |d: Option<FloatTensor<B>>, like: &FloatTensor<B>| {
        Maybe::from(d.map(|d| Value::<B>(d).reshape(like.shape()).0))
    };
    let d_hidden = d_hidden.map(|d| (Value::<B>(d) * scale).0);
    let acc = (shaped(d_x, &x), shaped(d_hidden, &hidden));
    let needed_here = [needed[0], needed[1], needed[2] && has_bias, needed[3], needed[4]];
    let (d_x, d_weight, d_bias, d_a, mut d_b) = B::fused_adapted_linear_grad(
        x,
        weight,
        Maybe::Given(a),
        Maybe::Given(b.clone()),
        Maybe::Given(hidden),
        grad,
        scale,
        needed_here,
        acc.0,
        acc.1,
    );
    let mut d_variance = None;
    if let Some(d_w) = d_w {
        let (d_w, v) = (Value::<B>(d_w), Value::<B>(variance));
        let b = Value::<B>(b);
        let turned = b.clone() * d_w.clone().reshape([1, 1, columns]);
        let mut d_v = (turned.clone() * b).sum(2).reshape([rank]);
        if noise.both {
            d_v = d_v + v.clone() * d_w.sum(0) * (2.0 * noise.cross);
        }
        if let Some(of_rows) = of_rows {
            d_v = d_v + Value(of_rows);
        }
        d_variance = needed[5].then_some(d_v.0);
        d_b = d_b.map(|d_b| (Value::<B>(d_b) + turned * (v * 2.0).reshape([1, rank, 1])).0);
    }
    [d_x, d_weight, d_bias, d_a, d_b, d_variance]
}
