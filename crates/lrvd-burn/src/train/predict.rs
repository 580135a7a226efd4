//! Answers of a model, and the draws that a seed addresses.

use lrvd_core::metrics::{
    argmax_rows, log_softmax, mean, mean_probability, sample_sd, uncertainty,
};
use lrvd_core::noise::NoiseKey;
use serde::{Deserialize, Serialize};

use super::config::{PART_SHIFT, check_seed};
use crate::error::Error;
use crate::sampling::{DrawPer, Pass, Scheme};

/// Mixed into the run's seed for prediction, so that a draw never repeats a training step's noise.
const PREDICTION_SALT: u64 = 0x5052_4544_4943_5421;

/// Kind of the `k` draws of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PredictionDraws {
    /// Weights, by `k` keys that the seed fixes: the same `k` models answer every input.
    #[default]
    Weights,
    /// Weights, anew for every batch.
    Fresh,
    /// Outputs, token by token, as the authors' scripts for language models do. Where the noise of a
    /// method has no such distribution, as all but LRVD's and TFB's, weights are resampled for every batch; SWAG,
    /// whose draw is a set of factors, keeps them.
    Activation,
}

/// Addresses the fixed draws of a predictor: the `k` draws of a seed are a reproducible ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSeed(pub(super) u64);

impl DrawSeed {
    /// The draws of `seed`, at most [`MAX_SEED`](super::MAX_SEED).
    pub fn new(seed: u64) -> Result<Self, lrvd_core::Error> {
        check_seed(seed)?;
        Ok(Self(seed))
    }

    /// The key of draw number `draw`.
    pub fn key(self, draw: usize) -> NoiseKey {
        NoiseKey::new(self.0 ^ PREDICTION_SALT).at_step(draw as u32)
    }

    /// The key of draw number `draw` in batch number `batch`, for draws that differ between batches.
    pub(super) fn key_in_batch(self, draw: usize, batch: usize) -> NoiseKey {
        Self(self.0 ^ ((batch as u64 + 1) << PART_SHIFT)).key(draw)
    }

    /// The pass of draw number `draw`: one weight draw for every example.
    pub fn pass(self, draw: usize) -> Pass {
        Pass::sampled(Scheme::Weights(DrawPer::Batch), self.key(draw))
    }
}

/// Logits of several members on the same examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    /// `[members, rows, width]`, row-major.
    pub values: Vec<f64>,
    /// Number of examples.
    pub rows: usize,
    /// Classes, or 1 for scores.
    pub width: usize,
    /// Draws that were made for each example, 0 where the mean answered, if their number was
    /// [adaptive](super::DrawPolicy): the members repeat them.
    pub made: Option<Vec<usize>>,
}

impl Logits {
    /// Values `[members, rows, width]`, all of them computed.
    pub fn new(values: Vec<f64>, rows: usize, width: usize) -> Self {
        Self { values, rows, width, made: None }
    }

    /// Number of members: draws, or adapters that answer side by side.
    pub fn members(&self) -> usize {
        self.values.len() / (self.rows * self.width).max(1)
    }

    /// The first `members` members.
    #[must_use]
    pub fn first(&self, members: usize) -> Self {
        let n = members * self.rows * self.width;
        let values = self.values[..n.min(self.values.len())].to_vec();
        let least = |made: &Vec<usize>| made.iter().map(|&made| made.min(members)).collect();
        Self { made: self.made.as_ref().map(least), ..Self::new(values, self.rows, self.width) }
    }

    /// The answer to every example, as a classifier's: averaged probabilities and their uncertainty.
    pub fn classes(&self) -> Result<Vec<ClassAnswer>, Error> {
        let logs = log_softmax(&self.values, self.width)?;
        let probabilities = mean_probability(&logs, self.members(), self.width)?;
        let classes = argmax_rows(&probabilities, self.width)?;
        let split = uncertainty(&logs, self.members(), self.width)?;
        let rows = probabilities.chunks_exact(self.width).zip(classes).enumerate();
        let is_drawn = |i: usize| self.made.as_ref().is_none_or(|made| made[i] > 0);
        let answer = |(i, (row, class)): (usize, (&[f64], usize))| ClassAnswer {
            probabilities: row.to_vec(),
            class,
            entropy: split.predictive_entropy[i],
            mutual_information: is_drawn(i).then_some(split.mutual_information[i]),
        };
        Ok(rows.map(answer).collect())
    }

    /// The answer to every example, as a regressor's.
    pub fn scores(&self) -> Result<Vec<ScoreAnswer>, Error> {
        let answer = |i: usize| {
            let drawn: Vec<f64> =
                self.values.iter().skip(i).step_by(self.rows.max(1)).copied().collect();
            Ok(ScoreAnswer { score: mean(&drawn)?, deviation: sample_sd(&drawn).ok() })
        };
        (0..self.rows).map(answer).collect()
    }
}

/// A classifier's answer to one example.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassAnswer {
    /// Probabilities in label order, averaged over the draws.
    pub probabilities: Vec<f64>,
    /// The most probable class; ties go to the lowest.
    pub class: usize,
    /// Entropy of the probabilities, nats.
    pub entropy: f64,
    /// Mutual information between answer and weights, nats; 0 of a single member, `None` where a
    /// [`DrawPolicy`](super::DrawPolicy) answered at the mean.
    pub mutual_information: Option<f64>,
}

/// A regressor's answer to one example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreAnswer {
    /// The number, averaged over the draws.
    pub score: f64,
    /// Standard deviation over the draws; `None` below two draws.
    pub deviation: Option<f64>,
}
