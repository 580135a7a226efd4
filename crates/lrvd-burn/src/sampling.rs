//! Noise of one forward pass, and draws of a prediction.
//!
//! Every stochastic choice of a pass is an argument: a [`Pass`] says whether the adapters run at
//! their posterior mean or are sampled, by which scheme, and which counter-based stream feeds them.
//! Nothing reads a process-wide seed, so the same `Pass` gives the same output on every call, and
//! the backward pass can recompute the noise instead of storing it.

use std::fmt::{self, Display, Formatter};

use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
use lrvd_core::error::check_range;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream};
use serde::{Deserialize, Serialize};

/// Bits of a seed below the numbers of micro-batches and of prediction batches, which are mixed in above them.
pub(crate) const PART_SHIFT: u32 = 40;

/// Largest seed of a run or a prediction: numbers of parts and batches are mixed into the bits above it.
pub const MAX_SEED: u64 = (1 << PART_SHIFT) - 1;

/// Checks that a seed is at most [`MAX_SEED`].
pub fn check_seed(seed: u64) -> Result<(), lrvd_core::Error> {
    check_range("seed", seed, 0..=MAX_SEED)
}

/// Mixed into the seed of a prediction, so that a draw never repeats a training step's noise.
const PREDICTION_SALT: u64 = 0x5052_4544_4943_5421;

/// Draws of a prediction: a reproducible ensemble, whose smaller numbers of draws are the first ones of a larger.
///
/// # Examples
///
/// ```
/// use lrvd_burn::sampling::{Draws, Pass};
///
/// assert_eq!(Draws::default().passes()?, [Pass::mean()]);
/// let ten = Draws { count: 10, seed: 3 }.passes()?;
/// assert_eq!(ten[..4], Draws { count: 4, seed: 3 }.passes()?);
/// # Ok::<(), lrvd_burn::core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Draws {
    /// Number of draws; 0, the default, answers at the posterior mean.
    pub count: usize,
    /// Address of the draws, at most [`MAX_SEED`].
    pub seed: u64,
}

impl Draws {
    /// Key of draw number `draw`.
    pub fn key(self, draw: usize) -> NoiseKey {
        NoiseKey::new(self.seed ^ PREDICTION_SALT).at_step(draw as u32)
    }

    /// Key of draw number `draw` in batch number `batch`, for draws that differ between batches.
    pub(crate) fn key_in_batch(self, draw: usize, batch: usize) -> NoiseKey {
        let seed = self.seed ^ ((batch as u64 + 1) << PART_SHIFT);
        Self { seed, ..self }.key(draw)
    }

    /// One pass for each draw, with one weight draw for all examples; the mean for a `count` of 0.
    pub fn passes(self) -> Result<Vec<Pass>, lrvd_core::Error> {
        check_seed(self.seed)?;
        if self.count == 0 {
            return Ok(vec![Pass::mean()]);
        }
        let pass = |draw| Pass::sampled(Scheme::PerBatch, self.key(draw));
        Ok((0..self.count).map(pass).collect())
    }
}

/// Place of the posterior's noise in a pass.
///
/// Every adapter has every scheme. One without noise is at its mean; one of an [`UpdateOp`](crate::adapter::UpdateOp) that does not
/// draw by a scheme has a separate draw for each token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// No noise: the posterior mean.
    #[default]
    Mean,
    /// One draw of the weights, `A = mean_a + std·eps`, for each sequence of the batch: the exact ELBO integrand, with
    /// gradient noise that is independent across examples. The default in training.
    PerSequence,
    /// One draw of the weights for the whole batch. With a key that names the draw rather than the step this is
    /// a reproducible member of a Monte Carlo ensemble: the default in prediction.
    PerBatch,
    /// Flipout: the draw of [`Scheme::PerBatch`], turned into another one for every token by random
    /// signs. Each token has the posterior's distribution, and the noise of two tokens is uncorrelated.
    ///
    /// ```text
    /// h = x·A + ((x ⊙ r)·(σ_A ⊙ E_A)) ⊙ q,   y = x·W + c·(h·B + ((h ⊙ t)·(σ_B ⊙ E_B)) ⊙ u)
    /// ```
    ///
    /// `r`, `q`, `t`, `u` are ±1 per token and feature, `E` standard normal, one per module and
    /// forward. Reference: Wen et al. 2018, arXiv:1803.04386.
    PerToken,
    /// Outputs are drawn with the exact per-coordinate mean and variance ("local
    /// reparameterisation"); covariance across outputs and tokens is dropped.
    MomentMatched(CrossTerm),
    /// Rank activations are drawn first, then outputs given them: the exact joint distribution of one token.
    Nested,
}

impl Display for Scheme {
    /// The rest of a text that starts with "sampling".
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mean => "at the mean",
            Self::PerSequence => "per sequence",
            Self::PerBatch => "per batch",
            Self::PerToken => "per token",
            Self::MomentMatched(_) => "by matched moments",
            Self::Nested => "by nested draws",
        })
    }
}

impl Scheme {
    /// `true` if all sequences of a batch, and all their tokens, are answered by the same weights.
    #[must_use]
    pub fn shares_weights(self) -> bool {
        matches!(self, Self::Mean | Self::PerBatch)
    }

    /// `true` if the noise is one of weights, not of activations.
    #[must_use]
    pub fn draws_weights(self) -> bool {
        matches!(self, Self::PerSequence | Self::PerBatch | Self::PerToken)
    }
}

/// Randomness of one forward pass.
///
/// A pass may hold several draws of the weights, one after the other for the same sequences. Draw `i` has the noise of a
/// separate pass whose key is at step `step + first_draw + i`; of antithetic draws at step `step + (first_draw + i) div 2`,
/// negated where `first_draw + i` is odd.
///
/// # Shapes
///
/// A model reads its input once, `[rows, ...]`. Activations keep these rows up to the first layer whose
/// adapter draws, and have `[draws · rows, ...]` from there on, draw after draw: what does not depend on
/// the draw is computed once. Where two tensors meet of which only one has passed such a layer, the
/// model brings them together by [`Pass::repeated`] or [`Pass::aligned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Place of the adapters' noise.
    pub scheme: Scheme,
    /// Seed and step (training) or seed and draw (prediction) of the adapters' noise.
    pub noise: NoiseKey,
    /// Key of the dropout masks; `None` switches every dropout off.
    pub dropout: Option<NoiseKey>,
    /// `true` for dropout in the backbone as well as at the input of the adapters, as in training; `false` for the latter alone,
    /// Monte Carlo dropout at test time. Without effect if `dropout` is `None`.
    pub backbone_dropout: bool,
    /// Number of draws in the batch. Unless weights are drawn once a batch, those of another draw are further sequences, with
    /// separate noise.
    pub draws: usize,
    /// Sequences of one draw; without meaning for a single one.
    pub rows: usize,
    /// Number of the first draw.
    pub first_draw: u32,
    /// Draws of weights for a whole batch come in pairs, `eps` and `−eps`: each has the distribution of a draw, and in the mean
    /// of a pair what is linear in the noise cancels. Noise of sequences and tokens is not paired.
    pub antithetic: bool,
}

impl Pass {
    /// The posterior mean without dropout: the deterministic model.
    #[must_use]
    pub fn mean() -> Self {
        Self::sampled(Scheme::Mean, NoiseKey::new(0))
    }

    /// A pass sampled by `scheme` from the stream of `noise`, without dropout.
    #[must_use]
    pub fn sampled(scheme: Scheme, noise: NoiseKey) -> Self {
        Self {
            scheme,
            noise,
            dropout: None,
            backbone_dropout: true,
            draws: 1,
            rows: 0,
            first_draw: 0,
            antithetic: false,
        }
    }

    /// This pass with dropout everywhere, masks keyed by `key`.
    #[must_use]
    pub fn with_dropout(self, key: NoiseKey) -> Self {
        Self { dropout: Some(key), backbone_dropout: true, ..self }
    }

    /// This pass with dropout at the input of the adapters only, masks keyed by `key`.
    #[must_use]
    pub fn with_adapter_dropout(self, key: NoiseKey) -> Self {
        Self { dropout: Some(key), backbone_dropout: false, ..self }
    }

    /// Key of the dropout mask at the backbone site with identity `site`, if dropout is on there.
    #[must_use]
    pub fn dropout_key(&self, site: u32) -> Option<NoiseKey> {
        self.adapter_dropout_key(site).filter(|_| self.backbone_dropout)
    }

    /// Key of the dropout mask of the adapter of layer `module`, if dropout is on.
    #[must_use]
    pub fn adapter_dropout_key(&self, module: u32) -> Option<NoiseKey> {
        self.dropout.map(|key| key.for_module(module).on_stream(Stream::DROPOUT))
    }

    /// This pass for several draws of the weights, each drawn once for all of its `rows` sequences.
    #[must_use]
    pub fn with_draws(self, draws: usize, rows: usize) -> Self {
        Self { draws, rows, ..self }
    }

    /// `true` if the noise is that of one draw under the key as it is.
    #[must_use]
    pub fn is_single_draw(&self) -> bool {
        self.draws == 1 && self.first_draw == 0 && !self.antithetic
    }

    /// The pass of an adapter: noise of sequences and tokens is drawn once, for all sequences.
    pub(crate) fn of_layer(&self) -> Self {
        if self.scheme == Scheme::PerBatch {
            return *self;
        }
        let noise = self.noise.at_step(self.noise.step.wrapping_add(self.first_draw));
        Self { noise, draws: 1, first_draw: 0, antithetic: false, ..*self }
    }

    /// This pass for `count` sequences of its batch alone, from number `first` on. Noise of single sequences or activations has
    /// another seed for each `first`, so that parts of a batch share none of it; weights that are drawn once a batch stay
    /// those of the whole.
    #[must_use]
    pub fn for_rows(self, first: usize, count: usize) -> Self {
        let apart = |key: NoiseKey| NoiseKey { seed: key.seed ^ part_seed(first), ..key };
        Self {
            noise: if self.scheme.shares_weights() { self.noise } else { apart(self.noise) },
            dropout: self.dropout.map(apart),
            rows: if self.draws == 1 { self.rows } else { count },
            ..self
        }
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
        let key = self.noise.for_module(module);
        let one = |i: u32| {
            let number = self.first_draw.wrapping_add(i);
            let (step, is_negated) =
                if self.antithetic { (number / 2, number % 2 == 1) } else { (number, false) };
            draw(key.at_step(key.step.wrapping_add(step)), is_negated)
        };
        if self.draws == 1 {
            return one(0);
        }
        Tensor::cat((0..self.draws as u32).map(one).collect(), 0)
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
        let Self { draws, rows: of_one, .. } = *self;
        assert!(
            found == of_one && rows == draws * of_one,
            "{found} rows for {rows}, in a pass of {draws} draws of {of_one} rows"
        );
        x.repeat_dim(0, draws)
    }

    /// All of them with as many rows as the one that has most.
    #[must_use]
    pub fn aligned<const D: usize, const N: usize>(&self, all: [Tensor<D>; N]) -> [Tensor<D>; N] {
        let rows = all.iter().map(|x| x.dims()[0]).max().unwrap_or(0);
        all.map(|x| self.repeated(x, rows))
    }
}

/// 0 for the first sequence; distinct numbers for others (the increment of Weyl's sequence in `SplitMix64`).
const fn part_seed(first: usize) -> u64 {
    (first as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_keep_their_mask_when_the_backbone_goes_without() {
        let key = NoiseKey::new(3).at_step(2);
        let [off, all] = [Pass::mean(), Pass::mean().with_dropout(key)];
        let adapters = all.with_adapter_dropout(key);
        assert_eq!((off.dropout_key(9), off.adapter_dropout_key(9)), (None, None));
        assert_eq!(all.dropout_key(9), Some(key.for_module(9).on_stream(Stream::DROPOUT)));
        assert_eq!(all.adapter_dropout_key(9), all.dropout_key(9));
        assert_eq!(adapters.dropout_key(9), None);
        assert_eq!(adapters.adapter_dropout_key(9), all.dropout_key(9));
        assert_eq!(adapters.with_dropout(key), all);
    }
}
