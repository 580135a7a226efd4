//! A prediction: its examples, its draws, the passes that give the logits, and the answers made of them.

use std::ops::Range;

use burn::tensor::Tensor;
use lrvd_core::metrics::{
    argmax_rows, log_softmax, mean, mean_probability, sample_sd, uncertainty,
};
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use serde::{Deserialize, Serialize};

use super::config::{PART_SHIFT, check_seed};
use super::data::{Examples, Model, Subset};
use super::draw_policy::{DrawPolicy, undecided};
use super::order::{evaluation_batches, restore_order};
use crate::error::Error;
use crate::model::{check_scheme, members};
use crate::sampling::{DrawPer, DrawSet, Pass, Scheme};

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

/// Called after every pass with the number of answers in it (examples times draws). Once it returns `false` the prediction ends
/// with [`Error::Stopped`].
pub type PassWatch<'a> = Option<&'a dyn Fn(usize) -> bool>;

/// Tells `watch` that a pass gave `answers`.
pub(super) fn passed(watch: PassWatch<'_>, answers: usize) -> Result<(), Error> {
    match watch {
        Some(goes_on) if !goes_on(answers) => Err(Error::Stopped),
        _ => Ok(()),
    }
}

/// The pass of a draw in a batch.
type PassOfDraw<'a> = dyn Fn(usize, usize) -> Pass + 'a;

/// Examples to be predicted, and how.
pub struct Inputs<'a, I> {
    /// The examples.
    pub examples: &'a dyn Examples<Input = I>,
    /// Examples per batch, at least 1.
    pub batch_size: usize,
    /// Addresses the draws. Draws per batch also use the bits above [`MAX_SEED`](super::MAX_SEED), for the number of the batch.
    pub seed: u64,
    /// Kind of the draws.
    pub kind: PredictionDraws,
    /// How draws are made, and when fewer of them are enough.
    pub policy: DrawPolicy,
    /// Follows the passes.
    pub watch: PassWatch<'a>,
}

impl<I> Clone for Inputs<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Inputs<'_, I> {}

impl<'a, I> Inputs<'a, I> {
    /// `examples` in batches of 32, with weight draws of seed 0.
    pub fn new(examples: &'a dyn Examples<Input = I>) -> Self {
        let (kind, policy) = (PredictionDraws::Weights, DrawPolicy::default());
        Self { examples, batch_size: 32, seed: 0, kind, policy, watch: None }
    }

    /// Logits under one pass, one member or as many as the adapters hold side by side.
    pub fn logits<M: Model<Input = I>>(&self, model: &M, pass: &Pass) -> Result<Logits, Error> {
        self.ask(model, 0..1, &|_, _| *pass)
    }

    /// The posterior mean for 0 draws, else draws of the [kind](Self::kind).
    pub fn predict<M: Model<Input = I>>(&self, model: &M, draws: usize) -> Result<Logits, Error> {
        let outputs = Scheme::MomentMatched(CrossTerm::Exact);
        let scheme = match self.kind {
            PredictionDraws::Activation if check_scheme(model, outputs).is_ok() => outputs,
            _ => Scheme::Weights(DrawPer::Batch),
        };
        self.predict_by(scheme, model, draws)
    }

    /// The mean for 0 draws, else passes of `scheme`.
    pub fn predict_by<M: Model<Input = I>>(
        &self,
        scheme: Scheme,
        model: &M,
        draws: usize,
    ) -> Result<Logits, Error> {
        self.predict_with(model, draws, |key| Pass::sampled(scheme, key))
    }

    /// The mean for 0 draws, else the pass of each of as many keys. A key serves all batches or, unless weights are
    /// drawn once for all of them, one.
    ///
    /// A model that [holds draws](Model::HOLDS_DRAWS) answers several of them in one pass, and what comes
    /// before the first adapter that draws is computed once for all of them.
    pub fn predict_with<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        pass: impl Fn(NoiseKey) -> Pass,
    ) -> Result<Logits, Error> {
        if draws == 0 {
            return self.logits(model, &Pass::mean());
        }
        self.policy.check()?;
        let (seed, antithetic) = (DrawSeed(self.seed), self.policy.antithetic);
        let of_draw = |draw: usize, batch: usize| {
            // A pair shares the key of the first draw, and the pass says which one of all it is.
            let keyed = if antithetic { 0 } else { draw };
            let key = match self.kind {
                PredictionDraws::Weights => seed.key(keyed),
                PredictionDraws::Fresh | PredictionDraws::Activation => {
                    seed.key_in_batch(keyed, batch)
                }
            };
            let first = if antithetic { draw as u32 } else { 0 };
            pass(key).with_draws(DrawSet { first, antithetic, ..DrawSet::ONE })
        };
        if antithetic && !draws_weights(&of_draw(0, 0)) {
            let what = "`antithetic` is for weights that are drawn once a batch";
            return Err(Error::Argument(what.to_owned()));
        }
        if self.policy.cascade.is_none() && self.policy.tolerance.is_none() {
            return self.ask(model, 0..draws, &of_draw);
        }
        self.adaptive(model, draws, &of_draw)
    }

    /// Draws of the undecided examples until they are settled, `[draws, n, width]`.
    ///
    /// Members that were not drawn repeat those that were, equally often, so that every mean over
    /// the members is that of the draws that were made.
    fn adaptive<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        of_draw: &PassOfDraw<'_>,
    ) -> Result<Logits, Error> {
        let rejected = |why| Error::Argument(format!("`cascade` or `tolerance` {why}"));
        let classes = |logits: &Logits| match logits.width {
            0 | 1 if logits.rows > 0 => {
                Err(rejected("is for classifiers, and the answers are scores"))
            }
            width => Ok(width),
        };
        if members(model)? > 1 {
            return Err(rejected("is for one adapter, and the model holds several side by side"));
        }
        let (policy, n) = (&self.policy, self.examples.len());
        let mut open: Vec<usize> = (0..n).collect();
        let (mut width, mut means) = (0, Vec::new());
        if let Some(margin) = policy.cascade {
            let logits = self.logits(model, &Pass::mean())?;
            width = classes(&logits)?;
            let undecided = undecided(&logits, margin)?;
            open.retain(|&index| undecided[index]);
            means = logits.values;
        }
        let (mut of_example, mut done) = (vec![Vec::new(); n], 0);
        for stage in policy.stages(draws) {
            if open.is_empty() {
                break;
            }
            let part = Subset { of: self.examples, rows: open.clone() };
            let more = Inputs { examples: &part, ..*self }.ask(model, done..stage, of_draw)?;
            width = classes(&more)?;
            for (row, values) in more.values.chunks_exact(width).enumerate() {
                of_example[open[row % open.len()]].extend_from_slice(values);
            }
            done = stage;
            if stage < draws {
                let mut unsettled = Vec::with_capacity(open.len());
                for index in open {
                    if policy.unsettled(&of_example[index], width)? {
                        unsettled.push(index);
                    }
                }
                open = unsettled;
            }
        }
        let made: Vec<usize> =
            of_example.iter().map(|values| values.len() / width.max(1)).collect();
        let mut values = Vec::with_capacity(draws * n * width);
        for draw in 0..draws {
            for (index, own) in of_example.iter().enumerate() {
                let (from, row) = match made[index] {
                    0 => (&means, index),
                    made => (own, draw % made),
                };
                values.extend_from_slice(&from[row * width..][..width]);
            }
        }
        Ok(Logits { made: Some(made), ..Logits::new(values, n, width) })
    }

    /// `[draws · members, rows, width]`. Batches hold examples of like size, so that nothing is spent on
    /// shared padding.
    fn ask<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: Range<usize>,
        pass: &PassOfDraw<'_>,
    ) -> Result<Logits, Error> {
        let (n, sizes) = (self.examples.len(), self.examples.sizes());
        // A pass has every example once for each member, and about as many rows as other models' passes.
        let members = members(model)?.max(1);
        let batches = evaluation_batches(&sizes, self.batch_size.div_ceil(members))?;
        let (mut rows, mut width) = (vec![Vec::with_capacity(n); draws.len() * members], 0);
        for (number, indices) in batches.iter().enumerate() {
            let input = self.examples.input(indices)?;
            let tokens = indices.iter().map(|&i| sizes[i]).max().unwrap_or(0) * indices.len();
            let most = if M::HOLDS_DRAWS && members == 1 {
                self.policy.tokens_per_pass / tokens.max(1)
            } else {
                1
            };
            let mut first = draws.start;
            while first < draws.end {
                let left = draws.end - first;
                let count = left.div_ceil(left.div_ceil(most.max(1)));
                let (pass, count) = together(&|i| pass(first + i, number), count, indices.len());
                let logits: Tensor<2> = model.logits(&input, &pass);
                let copies = logits.dims()[0] / indices.len().max(1);
                if copies * indices.len() != logits.dims()[0]
                    || ![members, count * members].contains(&copies)
                {
                    return Err(Error::token_logits());
                }
                width = logits.dims()[1];
                let values: Vec<f64> = logits.into_data().iter::<f64>().collect();
                // Where no layer draws, one answer is that of every draw.
                let parts = values.chunks(indices.len() * width).cycle();
                let rows = rows[(first - draws.start) * members..][..count * members].iter_mut();
                for (rows, values) in rows.zip(parts) {
                    rows.extend(values.chunks(width).map(<[f64]>::to_vec));
                }
                first += count;
                passed(self.watch, indices.len() * count)?;
            }
        }
        let mut values = Vec::with_capacity(draws.len() * members * n * width);
        for rows in rows {
            values.extend(restore_order(&batches, rows)?.concat());
        }
        Ok(Logits::new(values, n, width))
    }
}

/// The passes of `count` draws in one where they differ in the number of the draw alone, else the first of
/// them.
fn together(pass: &dyn Fn(usize) -> Pass, count: usize, rows: usize) -> (Pass, usize) {
    let one = pass(0);
    let of_draw = |i: usize| {
        let next = |number: u32| number.wrapping_add(i as u32);
        if one.draws.antithetic {
            one.with_draws(DrawSet { first: next(one.draws.first), ..one.draws })
        } else {
            Pass { noise: one.noise.at_step(next(one.noise.step)), ..one }
        }
    };
    if count > 1 && draws_weights(&one) && (1..count).all(|i| pass(i) == of_draw(i)) {
        return (one.with_draws(DrawSet { count, rows, ..one.draws }), count);
    }
    (one, 1)
}

/// Whether a draw is one set of weights for the whole batch.
fn draws_weights(pass: &Pass) -> bool {
    pass.scheme == Scheme::Weights(DrawPer::Batch) && pass.dropout.is_none()
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
