//! The noise of one layer in one pass: its streams, its draws, and flipout's signs.

use burn::tensor::Tensor;
use burn::tensor::module::linear;
use lrvd_core::noise::{NoiseKey, Stream};

use crate::ops::{dropout, gaussian_draw, standard_normal};
use crate::sampling::{Pass, Scheme};

/// Use index of tokens.
pub(super) const TOKENS: u32 = 0;
/// Use index of rows that all sequences share.
pub(super) const SHARED: u32 = 1;

/// Draws of one layer in a pass.
#[derive(Clone, Copy)]
pub struct LayerNoise {
    pub(super) pass: Pass,
    /// Identity of the layer.
    pub(super) module: u32,
    /// Extent of a draw.
    pub scheme: Scheme,
    /// Number of examples, for a draw per sequence.
    pub(super) sequences: usize,
    /// Use of the layer, where each use has separate draws.
    pub(super) use_index: u32,
}

impl LayerNoise {
    /// The key of the layer's first draw.
    pub fn key(&self) -> NoiseKey {
        self.pass.noise.for_module(self.module)
    }

    /// Draws that each set of the batch holds: one for every sequence, or one.
    fn each(&self) -> usize {
        if self.scheme == Scheme::PerSequence { self.sequences } else { 1 }
    }

    /// Standard normals of every draw, `[draws, rows, columns]`: the sequences or the one draw of each set, set
    /// after set.
    pub fn normal<const K: usize>(
        &self,
        like: &Tensor<K>,
        [rows, columns]: [usize; 2],
        stream: u32,
    ) -> Tensor<3> {
        self.pass.noise_of(self.module, |key| {
            let key = key.on_stream(stream).with_use(self.use_index);
            standard_normal(like, [self.each(), rows, columns], key)
        })
    }

    /// `mean + std ⊙ normals` with the normals of [`LayerNoise::normal`].
    pub(super) fn drawn(&self, mean: &Tensor<2>, std: &Tensor<2>, stream: u32) -> Tensor<3> {
        self.pass.of_draws(self.module, |key, is_negated| {
            let std = if is_negated { std.clone().neg() } else { std.clone() };
            gaussian_draw(mean.clone(), std, self.each(), key.on_stream(stream))
        })
    }

    /// One entry for each row of the batch where it holds several draws, else `x` as it is.
    pub fn for_rows<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let Pass { draws, rows, .. } = self.pass;
        if draws == 1 { x } else { each_repeated(x, rows) }
    }
}

/// Standard deviations of A and of B, each broadcastable against its factor; `None` if B is not random.
pub(super) type Deviations = (Tensor<2>, Option<Tensor<2>>);

/// Every entry along the first axis `times` over, one entry after the other.
pub(super) fn each_repeated<const D: usize>(x: Tensor<D>, times: usize) -> Tensor<D> {
    let mut shape = x.dims();
    let [draws, size] = [shape[0], shape[1..].iter().product()];
    shape[0] *= times;
    x.reshape([draws, 1, size]).repeat_dim(1, times).reshape(shape)
}

/// `t ⊙ r` with independent signs `r` in {−1, 1}, and the same for the gradient.
///
/// ```text
/// r[e] = 1  if uniform[e] >= 1/2,  else −1        uniform: `lrvd_core::noise::fill_uniform` of `key`
/// ```
///
/// Dropout at rate ½ gives `2t` or `0`; taking `t` off leaves `±t` without rounding, and the backward
/// pass recomputes the signs from the key instead of keeping them.
fn flipped<const D: usize>(t: Tensor<D>, key: NoiseKey) -> Tensor<D> {
    dropout(t.clone(), 0.5, key) - t
}

/// Flipout: one weight draw, turned into another for every token by random signs. Deviations times noise, for both factors.
///
/// ```text
/// down(x) = x·A + ((x ⊙ r)·N_A) ⊙ q        N_A = σ_A ⊙ E_A
/// up(h)   = h·B + ((h ⊙ t)·N_B) ⊙ u        N_B = σ_B ⊙ E_B, if B is random
/// ```
///
/// `E` are the standard normals that a draw per batch uses; `r`, `q`, `t`, `u` are signs per token
/// and feature.
pub(super) struct FlippedDraw {
    a: Tensor<2>,
    b: Tensor<2>,
    noise_a: Tensor<2>,
    noise_b: Option<Tensor<2>>,
    key: NoiseKey,
}

impl FlippedDraw {
    /// A draw of the factors with means `[a, b]` and the given standard deviations.
    pub(super) fn new([a, b]: [Tensor<2>; 2], (std_a, std_b): Deviations, key: NoiseKey) -> Self {
        let noise = |like: Tensor<2>, std: Tensor<2>, stream| {
            standard_normal(&like, like.dims(), key.on_stream(stream)) * std
        };
        Self {
            noise_a: noise(a.clone(), std_a, Stream::WEIGHT_A),
            noise_b: std_b.map(|std| noise(b.clone(), std, Stream::WEIGHT_B)),
            a,
            b,
            key,
        }
    }

    /// `[n, tokens, d_input]` to `[n, tokens, rank]`.
    pub(super) fn down(&self, x: Tensor<3>, use_index: u32) -> Tensor<3> {
        let streams = [Stream::FLIP_A_INPUT, Stream::FLIP_A_OUTPUT];
        let mean = linear(x.clone(), self.a.clone(), None);
        mean + self.turned(x, &self.noise_a, streams, use_index)
    }

    /// `[n, tokens, rank]` to `[n, tokens, d_output]`.
    pub(super) fn up(&self, h: Tensor<3>, use_index: u32) -> Tensor<3> {
        let streams = [Stream::FLIP_B_INPUT, Stream::FLIP_B_OUTPUT];
        let mean = linear(h.clone(), self.b.clone(), None);
        match &self.noise_b {
            Some(noise) => mean + self.turned(h, noise, streams, use_index),
            None => mean,
        }
    }

    fn turned(
        &self,
        x: Tensor<3>,
        noise: &Tensor<2>,
        streams: [u32; 2],
        use_index: u32,
    ) -> Tensor<3> {
        let [input, output] = streams.map(|s| self.key.on_stream(s).with_use(use_index));
        flipped(linear(flipped(x, input), noise.clone(), None), output)
    }
}
