//! Answers of a model at its mean and at draws that a seed addresses.

use burn::tensor::Tensor;
use lrvd_core::metrics::{
    argmax_rows, log_softmax, mean, mean_probability, sample_sd, uncertainty,
};
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use serde::{Deserialize, Serialize};

use super::error::TrainError;
use super::examples::Examples;
use super::model::Model;
use super::order::{evaluation_batches, restore_order};
use crate::model::{check_scheme, members};
use crate::sampling::{DrawPer, Pass, Scheme};

/// Mixed into the run's seed for prediction, so that a draw never repeats a training step's noise.
const PREDICTION_SALT: u64 = 0x5052_4544_4943_5421;

/// What is drawn for a prediction with `k` draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PredictionDraws {
    /// Weights, by `k` keys that the seed fixes: the same `k` models answer every input.
    #[default]
    Weights,
    /// Weights, anew for every batch.
    Fresh,
    /// Outputs, token by token, as the authors' scripts for language models do. Where the noise of a
    /// method has no such law, as all but LRVD's and TFB's, weights are drawn anew for every batch; SWAG,
    /// whose draw is a set of factors, keeps them.
    Activation,
}

/// Addresses the fixed draws of a predictor: the `k` draws of a seed are a reproducible ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSeed(pub u64);

impl DrawSeed {
    /// The key of draw number `draw`.
    pub fn key(self, draw: usize) -> NoiseKey {
        NoiseKey::new(self.0 ^ PREDICTION_SALT).at_step(draw as u32)
    }

    /// The key of draw number `draw` in batch number `batch`, for draws that differ between batches.
    fn key_in_batch(self, draw: usize, batch: usize) -> NoiseKey {
        // Above every seed that a suite takes.
        Self(self.0 ^ ((batch as u64 + 1) << 40)).key(draw)
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
}

impl Logits {
    /// Number of members: draws, or adapters that answer side by side.
    pub fn members(&self) -> usize {
        self.values.len() / (self.rows * self.width).max(1)
    }

    /// The first `members` members.
    #[must_use]
    pub fn first(&self, members: usize) -> Self {
        let n = members * self.rows * self.width;
        Self { values: self.values[..n.min(self.values.len())].to_vec(), ..*self }
    }

    /// The answer to every example, as a classifier's: averaged probabilities and their uncertainty.
    ///
    /// # Errors
    ///
    /// [`TrainError::Metric`] for logits that are not finite or no example at all.
    pub fn classes(&self) -> Result<Vec<ClassAnswer>, TrainError> {
        let logs = log_softmax(&self.values, self.width)?;
        let probabilities = mean_probability(&logs, self.members(), self.width)?;
        let classes = argmax_rows(&probabilities, self.width)?;
        let split = uncertainty(&logs, self.members(), self.width)?;
        let rows = probabilities.chunks_exact(self.width).zip(classes).enumerate();
        let answer = |(i, (row, class)): (usize, (&[f64], usize))| ClassAnswer {
            probabilities: row.to_vec(),
            class,
            entropy: split.predictive_entropy[i],
            mutual_information: split.mutual_information[i],
        };
        Ok(rows.map(answer).collect())
    }

    /// The answer to every example, as a regressor's.
    ///
    /// # Errors
    ///
    /// [`TrainError::Metric`] without any member.
    pub fn scores(&self) -> Result<Vec<ScoreAnswer>, TrainError> {
        let answer = |i: usize| {
            let drawn: Vec<f64> =
                self.values.iter().skip(i).step_by(self.rows.max(1)).copied().collect();
            Ok(ScoreAnswer { score: mean(&drawn)?, deviation: sample_sd(&drawn).ok() })
        };
        (0..self.rows).map(answer).collect()
    }
}

/// What a classifier says of one example.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassAnswer {
    /// Probabilities in label order, averaged over the draws.
    pub probabilities: Vec<f64>,
    /// The most probable class; ties go to the lowest.
    pub class: usize,
    /// Entropy of the probabilities, nats.
    pub entropy: f64,
    /// Mutual information between answer and weights, nats; 0 of a single member.
    pub mutual_information: f64,
}

/// What a regressor says of one example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreAnswer {
    /// The number, averaged over the draws.
    pub score: f64,
    /// Standard deviation over the draws; `None` below two draws.
    pub deviation: Option<f64>,
}

/// Examples that a model is asked about, with the seed of its draws.
pub struct Inputs<'a, I> {
    /// The examples.
    pub examples: &'a dyn Examples<Input = I>,
    /// Examples per batch, at least 1.
    pub batch_size: usize,
    /// Addresses the draws.
    pub seed: u64,
    /// What a draw is.
    pub kind: PredictionDraws,
}

impl<I> Clone for Inputs<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Inputs<'_, I> {}

impl<'a, I> Inputs<'a, I> {
    /// `examples` in batches of 32, asked by weight draws of seed 0.
    pub fn new(examples: &'a dyn Examples<Input = I>) -> Self {
        Self { examples, batch_size: 32, seed: 0, kind: PredictionDraws::Weights }
    }

    /// Logits under one pass, one member or as many as the adapters hold side by side.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if the examples cannot be put into batches.
    pub fn logits<M: Model<Input = I>>(
        &self,
        model: &M,
        pass: &Pass,
    ) -> Result<Logits, TrainError> {
        self.by_batch(model, &|_| *pass)
    }

    /// Logits of one pass for each of `draws` keys. A key serves all batches or, unless weights are
    /// drawn once for all of them, one.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn drawn<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        pass: impl Fn(NoiseKey) -> Pass,
    ) -> Result<Logits, TrainError> {
        let seed = DrawSeed(self.seed);
        let mut all = Logits { values: Vec::new(), rows: self.examples.len(), width: 0 };
        for draw in 0..draws {
            let of_batch = |batch| match self.kind {
                PredictionDraws::Weights => pass(seed.key(draw)),
                PredictionDraws::Fresh | PredictionDraws::Activation => {
                    pass(seed.key_in_batch(draw, batch))
                }
            };
            let one = self.by_batch(model, &of_batch)?;
            all.width = one.width;
            all.values.extend(one.values);
        }
        Ok(all)
    }

    /// The posterior mean for 0 draws, else draws of the kind asked for.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn predict<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
    ) -> Result<Logits, TrainError> {
        let outputs = Scheme::MomentMatched(CrossTerm::Exact);
        let scheme = match self.kind {
            PredictionDraws::Activation if check_scheme(model, outputs).is_ok() => outputs,
            _ => Scheme::Weights(DrawPer::Batch),
        };
        self.predict_by(scheme, model, draws)
    }

    /// The mean for 0 draws, else passes of `scheme`.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn predict_by<M: Model<Input = I>>(
        &self,
        scheme: Scheme,
        model: &M,
        draws: usize,
    ) -> Result<Logits, TrainError> {
        self.predict_with(model, draws, |key| Pass::sampled(scheme, key))
    }

    /// The mean for 0 draws, else the pass of each key.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn predict_with<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        pass: impl Fn(NoiseKey) -> Pass,
    ) -> Result<Logits, TrainError> {
        if draws == 0 {
            return self.logits(model, &Pass::mean());
        }
        self.drawn(model, draws, pass)
    }

    /// Batches hold examples of like size, so that nothing is spent on shared padding.
    fn by_batch<M: Model<Input = I>>(
        &self,
        model: &M,
        pass: &dyn Fn(usize) -> Pass,
    ) -> Result<Logits, TrainError> {
        let n = self.examples.len();
        let sizes: Vec<usize> = (0..n).map(|index| self.examples.size(index)).collect();
        // A pass has every example once for each member, and about as many rows as other models' passes.
        let members = members(model)?.max(1);
        let batches = evaluation_batches(&sizes, self.batch_size.div_ceil(members))?;
        let (mut rows, mut width) = (vec![Vec::with_capacity(n); members], 0);
        for (number, indices) in batches.iter().enumerate() {
            let logits: Tensor<2> = model.logits(&self.examples.input(indices)?, &pass(number));
            width = logits.dims()[1];
            let values: Vec<f64> = logits.into_data().iter::<f64>().collect();
            for (rows, values) in rows.iter_mut().zip(values.chunks(indices.len() * width)) {
                rows.extend(values.chunks(width).map(<[f64]>::to_vec));
            }
        }
        let mut values = Vec::with_capacity(members * n * width);
        for rows in rows {
            values.extend(restore_order(&batches, rows)?.concat());
        }
        Ok(Logits { values, rows: n, width })
    }
}
