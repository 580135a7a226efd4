//! Several draws of the weights in one batch.

use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
use lrvd_core::noise::NoiseKey;

use super::{DrawPer, Pass, Scheme};

/// Draws that a batch holds one after the other, each for the same sequences.
///
/// Draw `i` has the noise of a separate pass whose key is at step `step + first + i`; for antithetic
/// draws at step `step + (first + i) div 2`, negated (antithetic) where `first + i` is odd.
///
/// # Shapes
///
/// A model reads its input once, `[rows, ...]`. Activations keep these rows up to the first layer whose
/// adapter draws, and have `[count · rows, ...]` from there on, draw after draw: what does not depend on
/// the draw is computed once. Where two tensors meet of which only one has passed such a layer, the
/// model brings them together by [`Pass::repeated`] or [`Pass::aligned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSet {
    /// Number of the first draw.
    pub first: u32,
    /// How many there are, at least 1.
    pub count: usize,
    /// Sequences of one draw; without meaning for a single one.
    pub rows: usize,
    /// Whether draws come in pairs, `eps` and `−eps`: each has the distribution of a draw, and in the mean of a pair
    /// what is linear in the noise cancels.
    pub antithetic: bool,
}

impl DrawSet {
    /// A single draw under the key of its pass.
    pub const ONE: Self = Self { first: 0, count: 1, rows: 0, antithetic: false };
}

impl Default for DrawSet {
    fn default() -> Self {
        Self::ONE
    }
}

impl Pass {
    /// The same pass for several draws of the weights, each drawn once for all of its sequences.
    #[must_use]
    pub fn with_draws(self, draws: DrawSet) -> Self {
        Self { draws, ..self }
    }

    /// Whether layers can do what is asked: several draws are draws of weights for a batch.
    pub(crate) fn is_sound(&self) -> bool {
        self.draws == DrawSet::ONE || self.scheme == Scheme::Weights(DrawPer::Batch)
    }

    /// `noise` of every draw for layer `module`, one behind the other along the first axis.
    pub fn noise_of<const D: usize>(
        &self,
        module: u32,
        noise: impl Fn(NoiseKey) -> Tensor<D>,
    ) -> Tensor<D> {
        self.of_draws(module, |key, is_negated| {
            let eps = noise(key);
            if is_negated { eps.neg() } else { eps }
        })
    }

    /// `draw` by the key of every draw for layer `module`, and whether its noise is negated, one
    /// behind the other along the first axis.
    pub(crate) fn of_draws<const D: usize>(
        &self,
        module: u32,
        draw: impl Fn(NoiseKey, bool) -> Tensor<D>,
    ) -> Tensor<D> {
        let DrawSet { first, count, antithetic, .. } = self.draws;
        let key = self.noise.for_module(module);
        let one = |i: u32| {
            let number = first.wrapping_add(i);
            let (step, is_negated) =
                if antithetic { (number / 2, number % 2 == 1) } else { (number, false) };
            draw(key.at_step(key.step.wrapping_add(step)), is_negated)
        };
        if count == 1 {
            return one(0);
        }
        Tensor::cat((0..count as u32).map(one).collect(), 0)
    }

    /// `x` with `rows` along its first axis: as it is, or repeated for every draw.
    ///
    /// # Panics
    ///
    /// If `x` has neither as many rows nor those of one draw.
    #[must_use]
    pub fn repeated<const D: usize, K: Basic>(&self, x: Tensor<D, K>, rows: usize) -> Tensor<D, K> {
        let found = x.dims()[0];
        if found == rows {
            return x;
        }
        let DrawSet { count, rows: of_one, .. } = self.draws;
        assert!(
            found == of_one && rows == count * of_one,
            "{found} rows for {rows}, in a pass of {count} draws of {of_one} rows"
        );
        x.repeat_dim(0, count)
    }

    /// All of them with as many rows as the one that has most.
    #[must_use]
    pub fn aligned<const D: usize, const N: usize>(&self, all: [Tensor<D>; N]) -> [Tensor<D>; N] {
        let rows = all.iter().map(|x| x.dims()[0]).max().unwrap_or(0);
        all.map(|x| self.repeated(x, rows))
    }
}
