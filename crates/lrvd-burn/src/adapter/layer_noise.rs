//! The noise of one layer in one pass.

use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;

use crate::ops::{gaussian_draw, standard_normal};
use crate::sampling::{DrawPer, DrawSet, Pass};

/// What a layer draws from.
#[derive(Clone, Copy)]
pub(super) struct LayerNoise<'a> {
    pub(super) pass: &'a Pass,
    /// Identity of the layer.
    pub(super) module: u32,
    /// What shares a draw.
    pub(super) per: DrawPer,
    /// Number of examples, for a draw per sequence.
    pub(super) sequences: usize,
}

impl LayerNoise<'_> {
    /// The key of the layer's first draw.
    pub(super) fn key(&self) -> NoiseKey {
        self.pass.noise.for_module(self.module)
    }

    /// Draws that each set of the batch holds: one for every sequence, or one.
    fn each(&self) -> usize {
        if self.per == DrawPer::Sequence { self.sequences } else { 1 }
    }

    /// Standard normals of every draw, `[draws, ...shape]`: the sequences or the one draw of each set, set
    /// after set.
    pub(super) fn normal<const K: usize>(
        &self,
        like: &Tensor<K>,
        [rows, columns]: [usize; 2],
        stream: u32,
    ) -> Tensor<3> {
        self.pass.noise_of(self.module, |key| {
            standard_normal(like, [self.each(), rows, columns], key.on_stream(stream))
        })
    }

    /// `mean + std ⊙ normals` with the same normals.
    pub(super) fn drawn(&self, mean: &Tensor<2>, std: &Tensor<2>, stream: u32) -> Tensor<3> {
        self.pass.of_draws(self.module, |key, is_negated| {
            let std = if is_negated { std.clone().neg() } else { std.clone() };
            gaussian_draw(mean.clone(), std, self.each(), key.on_stream(stream))
        })
    }

    /// `x`, `[1, ...]`, once for each draw that the batch holds.
    pub(super) fn for_sets(&self, x: Tensor<3>) -> Tensor<3> {
        let DrawSet { count, .. } = self.pass.draws;
        if count == 1 { x } else { x.repeat_dim(0, count) }
    }

    /// One entry for each row of the batch where it holds several draws, else `x` as it is.
    pub(super) fn for_rows<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let DrawSet { count, rows, .. } = self.pass.draws;
        if count == 1 { x } else { each_repeated(x, rows) }
    }
}

/// Every entry along the first axis `times` over, one entry after the other.
pub(super) fn each_repeated<const D: usize>(x: Tensor<D>, times: usize) -> Tensor<D> {
    let mut shape = x.dims();
    let [draws, size] = [shape[0], shape[1..].iter().product()];
    shape[0] *= times;
    x.reshape([draws, 1, size]).repeat_dim(1, times).reshape(shape)
}
