//! Flipout: one weight draw, turned into another for every token by random signs.

use burn::tensor::Tensor;
use burn::tensor::module::linear;
use lrvd_core::noise::{NoiseKey, Stream};

use super::kind::{Deviations, LowRankAdapter};
use super::streams::AdapterStream;
use crate::ops::{dropout, standard_normal};

/// `t ⊙ r` with independent signs `r` in {−1, 1}, and the same for the gradient.
///
/// ```text
/// r[e] = 1  if uniform[e] >= 1/2,  else −1        uniform: `lrvd_core::noise::fill_uniform` of `key`
/// ```
///
/// Dropout at rate ½ gives `2t` or `0`; taking `t` off leaves `±t` without rounding, and the backward
/// pass recomputes the signs from the key instead of keeping them.
pub(super) fn flipped<const D: usize>(t: Tensor<D>, key: NoiseKey) -> Tensor<D> {
    dropout(t.clone(), 0.5, key) - t
}

/// The draw of one forward pass: deviations times noise, for both factors.
///
/// ```text
/// down(x) = x·A + ((x ⊙ r)·N_A) ⊙ q        N_A = σ_A ⊙ E_A
/// up(h)   = h·B + ((h ⊙ t)·N_B) ⊙ u        N_B = σ_B ⊙ E_B, if B is random
/// ```
///
/// `E` are the standard normals that a draw per batch uses; `r`, `q`, `t`, `u` are signs per token
/// and feature.
#[derive(Debug)]
pub(super) struct FlippedDraw {
    noise_a: Tensor<2>,
    noise_b: Option<Tensor<2>>,
    key: NoiseKey,
}

impl FlippedDraw {
    pub(super) fn new(
        adapter: &LowRankAdapter,
        deviations: Deviations,
        key: NoiseKey,
    ) -> FlippedDraw {
        let noise = |like: Tensor<2>, std: Tensor<2>, stream| {
            standard_normal(&like, like.dims(), key.on_stream(stream)) * std
        };
        let Deviations { a, b } = deviations;
        FlippedDraw {
            noise_a: noise(adapter.a.val(), a, Stream::WEIGHT_A),
            noise_b: b.map(|b| noise(adapter.b.val(), b, Stream::WEIGHT_B)),
            key,
        }
    }

    /// `[n, tokens, d_input]` to `[n, tokens, rank]`.
    pub(super) fn down(&self, adapter: &LowRankAdapter, x: Tensor<3>, use_index: u32) -> Tensor<3> {
        let streams = [AdapterStream::FLIP_A_INPUT, AdapterStream::FLIP_A_OUTPUT];
        let mean = linear(x.clone(), adapter.a.val(), None);
        mean + self.turned(x, &self.noise_a, streams, use_index)
    }

    /// `[n, tokens, rank]` to `[n, tokens, d_output]`.
    pub(super) fn up(&self, adapter: &LowRankAdapter, h: Tensor<3>, use_index: u32) -> Tensor<3> {
        let streams = [AdapterStream::FLIP_B_INPUT, AdapterStream::FLIP_B_OUTPUT];
        let mean = linear(h.clone(), adapter.b.val(), None);
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
