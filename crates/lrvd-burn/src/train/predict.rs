//! A prediction: its examples, its draws, the passes that give the logits, and the answers made of them.

use std::ops::{Range, RangeInclusive};

use burn::tensor::Tensor;
use lrvd_core::error::check_range;
use lrvd_core::metrics::{
    argmax_rows, log_softmax, mean, mean_probability, sample_sd, softmax, uncertainty,
};
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use serde::{Deserialize, Serialize};

use super::config::{PART_SHIFT, check_seed};
use super::data::{Examples, Model, Subset};
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

/// Fewest draws after which the standard error of their mean is used.
const FEWEST: usize = 4;

/// How much is spent on a prediction with `k` draws. By default every example gets all of them, independent of each other.
///
/// `cascade` and `tolerance` are for classifiers (a score has no margin) and change answers:
///
/// *Cascade.* An example is *decided* where its two largest probabilities at the posterior mean differ by
/// `cascade` or more. Its answer is the one at the mean: it has no mutual information, and its
/// probabilities are more certain than those of the draws by what the posterior would have taken off. The
/// class is another one only where the draws would close a gap of `cascade` or more between two
/// probabilities: never, if they move each of them by less than half of it. At 1 nothing is decided.
///
/// *Tolerance.* After `m` draws, `m` any divisor of `k` from 4 on (and even for antithetic ones), an
/// example is *settled* where the standard error of its leading class's mean probability is `tolerance` or
/// less:
///
/// ```text
/// s² = Σ_j (p_j − mean p)² / (m − 1),     settled if s / sqrt(m) ≤ tolerance
/// ```
///
/// `p_j` are the draws, or the means of antithetic pairs. The probability is thus that of
/// infinitely many draws up to about twice the tolerance; a little more where few draws happened to agree,
/// since the rule stops on just that. A `k` that is prime stops nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DrawPolicy {
    /// Bounds the memory of a pass that holds several draws: examples of a batch × size of the longest ×
    /// draws; 8192 by default. A larger batch goes through draw by draw. Changes no answer.
    pub tokens_per_pass: usize,
    /// Draws come in pairs of opposite noise, `eps` and `−eps`: each has the distribution of a draw, and what is
    /// linear in the noise cancels. With an odd number the last draw has no partner.
    pub antithetic: bool,
    /// Margin from which an example is answered at the mean, 0 to 1.
    pub cascade: Option<f64>,
    /// Standard error from which no further draws are made, 1e-6 to 0.5.
    pub tolerance: Option<f64>,
}

impl Default for DrawPolicy {
    fn default() -> Self {
        // About 0.3 GB of activations for a base model and 0.1 GB for the shipped one.
        Self { tokens_per_pass: 8192, antithetic: false, cascade: None, tolerance: None }
    }
}

impl DrawPolicy {
    /// Margins of a cascade.
    pub const CASCADE: RangeInclusive<f64> = 0.0..=1.0;
    /// Standard errors that settle an example.
    pub const TOLERANCE: RangeInclusive<f64> = 1e-6..=0.5;

    /// Checks every range.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        let within = |name, value: Option<f64>, allowed: RangeInclusive<f64>| {
            value.map_or(Ok(()), |value| check_range(name, value, *allowed.start(), *allowed.end()))
        };
        within("cascade", self.cascade, Self::CASCADE)?;
        within("tolerance", self.tolerance, Self::TOLERANCE)
    }

    /// The first setting that has no meaning without draws, if one is set.
    pub fn needs_draws(&self) -> Option<&'static str> {
        let all = [
            (self.antithetic, "antithetic"),
            (self.cascade.is_some(), "cascade"),
            (self.tolerance.is_some(), "tolerance"),
        ];
        all.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
    }

    /// Numbers of draws after which examples may be settled, then `draws` itself.
    fn stages(&self, draws: usize) -> Vec<usize> {
        let may_stop = |m: &usize| {
            self.tolerance.is_some()
                && draws.is_multiple_of(*m)
                && (!self.antithetic || m.is_multiple_of(2))
        };
        (FEWEST..draws).filter(may_stop).chain([draws]).collect()
    }

    /// Whether the draws of an example, `[draws, width]`, leave its leading class uncertain.
    fn unsettled(&self, draws: &[f64], width: usize) -> Result<bool, Error> {
        let Some(tolerance) = self.tolerance else { return Ok(true) };
        let probabilities = softmax(draws, width)?;
        let mut leading = (f64::NEG_INFINITY, Vec::new());
        for class in 0..width {
            let values: Vec<f64> =
                probabilities.iter().skip(class).step_by(width).copied().collect();
            let level = mean(&values)?;
            if level > leading.0 {
                leading = (level, values);
            }
        }
        let independent: Vec<f64> = if self.antithetic {
            leading.1.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect()
        } else {
            leading.1
        };
        Ok(sample_sd(&independent)? / (independent.len() as f64).sqrt() > tolerance)
    }
}

/// Whether the two largest probabilities of each example differ by less than `margin`.
fn undecided(logits: &Prediction, margin: f64) -> Result<Vec<bool>, Error> {
    let probabilities = softmax(&logits.values, logits.width)?;
    let gap = |row: &[f64]| {
        let mut sorted = row.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted[0] - sorted[1]
    };
    Ok(probabilities.chunks_exact(logits.width).map(|row| gap(row) < margin).collect())
}

/// Called after every pass with the number of answers in it (examples times draws). Once it returns `false` the prediction ends
/// with [`Error::Stopped`].
pub type PassWatch<'a> = Option<&'a dyn Fn(usize) -> bool>;

/// Tells `watch` that a pass gave `answers`.
pub fn report_progress(watch: PassWatch<'_>, answers: usize) -> Result<(), Error> {
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
    pub fn logits<M: Model<Input = I>>(&self, model: &M, pass: &Pass) -> Result<Prediction, Error> {
        self.ask(model, 0..1, &|_, _| *pass)
    }

    /// The posterior mean for 0 draws, else draws of the [kind](Self::kind).
    pub fn predict<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
    ) -> Result<Prediction, Error> {
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
    ) -> Result<Prediction, Error> {
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
    ) -> Result<Prediction, Error> {
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
            let expected = "off unless weights are drawn once a batch";
            return Err(Error::argument("antithetic", expected, "on"));
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
    ) -> Result<Prediction, Error> {
        let rejected = |why| Error::other(format!("`cascade` or `tolerance` {why}"));
        let classes = |logits: &Prediction| match logits.width {
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
        let made = of_example.iter().map(|values| values.len() / width.max(1)).collect();
        let mut values = Vec::with_capacity(draws * n * width);
        for draw in 0..draws {
            for (index, own) in of_example.iter().enumerate() {
                let own = if own.is_empty() { &means[index * width..][..width] } else { own };
                values.extend_from_slice(&own[draw * width % own.len()..][..width]);
            }
        }
        Ok(Prediction { draws_per_example: Some(made), ..Prediction::new(values, n, width) })
    }

    /// `[draws · members, rows, width]`. Batches hold examples of like size, so that nothing is spent on
    /// shared padding.
    fn ask<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: Range<usize>,
        pass: &PassOfDraw<'_>,
    ) -> Result<Prediction, Error> {
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
                let (pass, count) = batch_draws(&|i| pass(first + i, number), count, indices.len());
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
                report_progress(self.watch, indices.len() * count)?;
            }
        }
        let mut values = Vec::with_capacity(draws.len() * members * n * width);
        for rows in rows {
            values.extend(restore_order(&batches, rows)?.concat());
        }
        Ok(Prediction::new(values, n, width))
    }
}

/// The passes of `count` draws in one where they differ in the number of the draw alone, else the first of
/// them.
fn batch_draws(pass: &dyn Fn(usize) -> Pass, count: usize, rows: usize) -> (Pass, usize) {
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
pub struct Prediction {
    /// `[members, rows, width]`, row-major.
    pub values: Vec<f64>,
    /// Number of examples.
    pub rows: usize,
    /// Classes, or 1 for scores.
    pub width: usize,
    /// Draws of each example, 0 where the mean answered, if their number was
    /// [adaptive](super::DrawPolicy): the members repeat them.
    pub draws_per_example: Option<Vec<usize>>,
}

impl Prediction {
    /// Values `[members, rows, width]`, all of them computed.
    pub fn new(values: Vec<f64>, rows: usize, width: usize) -> Self {
        Self { values, rows, width, draws_per_example: None }
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
        Self {
            draws_per_example: self.draws_per_example.as_ref().map(least),
            ..Self::new(values, self.rows, self.width)
        }
    }

    /// The answer to every example, as a classifier's: averaged probabilities and their uncertainty.
    pub fn classes(&self) -> Result<Vec<ClassAnswer>, Error> {
        let logs = log_softmax(&self.values, self.width)?;
        let probabilities = mean_probability(&logs, self.members(), self.width)?;
        let classes = argmax_rows(&probabilities, self.width)?;
        let split = uncertainty(&logs, self.members(), self.width)?;
        let rows = probabilities.chunks_exact(self.width).zip(classes).enumerate();
        let is_drawn = |i: usize| self.draws_per_example.as_ref().is_none_or(|made| made[i] > 0);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_and_stages() {
        let policy = DrawPolicy { cascade: Some(0.0), tolerance: Some(0.5), ..Default::default() };
        policy.check().unwrap();
        for (wrong, name) in [
            (DrawPolicy { cascade: Some(f64::NAN), ..policy }, "cascade"),
            (DrawPolicy { tolerance: Some(0.0), ..policy }, "tolerance"),
        ] {
            assert!(wrong.check().unwrap_err().to_string().contains(name));
        }
        assert_eq!(policy.stages(16), [4, 8, 16]);
        assert_eq!((policy.stages(10), policy.stages(7)), (vec![5, 10], vec![7]));
        assert_eq!(DrawPolicy { antithetic: true, ..policy }.stages(30), [6, 10, 30]);
        assert_eq!(DrawPolicy { tolerance: None, ..policy }.stages(16), [16]);
    }

    #[test]
    fn a_margin_decides_and_a_spread_settles() {
        let policy = DrawPolicy { tolerance: Some(0.05), ..Default::default() };
        // Probabilities 0.9, 0.1 and 0.7, 0.3: margins 0.8 and 0.4.
        let logits = |p: f64| [(p / (1.0 - p)).ln(), 0.0];
        let at_mean = Prediction::new([logits(0.9), logits(0.7)].concat(), 2, 2);
        assert_eq!(undecided(&at_mean, 0.5).unwrap(), [false, true]);
        // Four draws of 0.6 ± d have a standard deviation of d·sqrt(4/3), half of which is the error.
        for (d, unsettled) in [(0.08, false), (0.09, true)] {
            let draws: Vec<f64> = [d, -d, d, -d].iter().flat_map(|d| logits(0.6 + d)).collect();
            assert_eq!(policy.unsettled(&draws, 2).unwrap(), unsettled, "{d}");
            // In pairs they cancel.
            let paired = DrawPolicy { antithetic: true, ..policy };
            assert!(!paired.unsettled(&draws, 2).unwrap());
        }
    }
}
