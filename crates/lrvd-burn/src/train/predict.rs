//! Prediction: examples, draws, the passes that give the logits, and the answers made of them.

use std::ops::RangeInclusive;

use burn::tensor::Tensor;
use lrvd_core::error::check_range;
use lrvd_core::metrics::{
    argmax_rows, log_softmax, mean, mean_probability, sample_sd, softmax, uncertainty,
};
use lrvd_core::noise::NoiseKey;
use serde::{Deserialize, Serialize};

use super::data::{Examples, Model, Subset};
use super::order::{evaluation_batches, restore_order};
use crate::error::Error;
use crate::model::members;
use crate::sampling::{Draws, Pass, Scheme};

/// Cost of a prediction with draws. By default every example gets all of them, independent of each other.
///
/// A *cascade* is for classifiers (a score has no margin) and changes answers: an example is *decided* where its two largest
/// probabilities at the posterior mean differ by `cascade` or more. Its answer is the one at the mean: it has no mutual
/// information, and its probabilities are more certain than those of the draws by what the posterior would have taken off. The
/// class is another one only where the draws would close a gap of `cascade` or more between two
/// probabilities: never, if they move each of them by less than half of it. At 1 nothing is decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
}

impl Default for DrawPolicy {
    fn default() -> Self {
        // About 0.3 GB of activations for a base model and 0.1 GB for the shipped one.
        Self { tokens_per_pass: 8192, antithetic: false, cascade: None }
    }
}

impl DrawPolicy {
    /// Margins of a cascade.
    pub const CASCADE: RangeInclusive<f64> = 0.0..=1.0;

    /// Checks every range.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        self.cascade.map_or(Ok(()), |margin| check_range("cascade", margin, Self::CASCADE))
    }

    /// The first setting that has no meaning without draws, if one is set.
    pub fn needs_draws(&self) -> Option<&'static str> {
        let all = [(self.antithetic, "antithetic"), (self.cascade.is_some(), "cascade")];
        all.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
    }
}

/// `true` for each example whose two largest probabilities differ by less than `margin`.
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
    /// Number and seed of the draws.
    pub draws: Draws,
    /// Place of their noise.
    pub scheme: Scheme,
    /// Draws are made anew for every batch. Their keys then use the bits of the seed above
    /// [`MAX_SEED`](crate::sampling::MAX_SEED), for the number of the batch.
    pub fresh: bool,
    /// Cost of the draws.
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
    /// `examples` in batches of 32, at the posterior mean.
    pub fn new(examples: &'a dyn Examples<Input = I>) -> Self {
        Self {
            examples,
            batch_size: 32,
            draws: Draws::default(),
            scheme: Scheme::PerBatch,
            fresh: false,
            policy: DrawPolicy::default(),
            watch: None,
        }
    }

    /// These inputs with `count` draws.
    #[must_use]
    pub fn drawn(self, count: usize) -> Self {
        Self { draws: Draws { count, ..self.draws }, ..self }
    }

    /// Logits under one pass, of one member or as many as the adapters hold side by side.
    pub fn logits<M: Model<Input = I>>(&self, model: &M, pass: &Pass) -> Result<Prediction, Error> {
        self.members(model, 1, &|_, _| *pass)
    }

    /// The posterior mean without draws, else passes of the [scheme](Self::scheme).
    pub fn predict<M: Model<Input = I>>(&self, model: &M) -> Result<Prediction, Error> {
        self.predict_by(self.scheme, model)
    }

    /// The mean without draws, else passes of `scheme`.
    pub fn predict_by<M: Model<Input = I>>(
        &self,
        scheme: Scheme,
        model: &M,
    ) -> Result<Prediction, Error> {
        self.predict_with(model, |key| Pass::sampled(scheme, key))
    }

    /// The mean without draws, else the pass of each draw's key. A key serves all batches or, unless weights are
    /// drawn once for all of them, one.
    ///
    /// A model that [holds draws](Model::HOLDS_DRAWS) answers several of them in one pass, and what comes
    /// before the first adapter that draws is computed once for all of them.
    pub fn predict_with<M: Model<Input = I>>(
        &self,
        model: &M,
        pass: impl Fn(NoiseKey) -> Pass,
    ) -> Result<Prediction, Error> {
        let Self { draws, policy, fresh, .. } = *self;
        if draws.count == 0 {
            return self.logits(model, &Pass::mean());
        }
        policy.check()?;
        let antithetic = policy.antithetic;
        let pass_of_draw = |draw: usize, batch: usize| {
            // A pair shares the key of the first draw, and the pass says which one of all it is.
            let keyed = if antithetic { 0 } else { draw };
            let key = if fresh { draws.key_in_batch(keyed, batch) } else { draws.key(keyed) };
            let first_draw = if antithetic { draw as u32 } else { 0 };
            Pass { first_draw, antithetic, ..pass(key) }
        };
        if antithetic && !draws_whole_batch(&pass_of_draw(0, 0)) {
            let expected = "off unless weights are drawn once a batch";
            return Err(Error::argument("antithetic", expected, "on"));
        }
        match policy.cascade {
            Some(margin) => self.cascade(model, margin, &pass_of_draw),
            None => self.members(model, draws.count, &pass_of_draw),
        }
    }

    /// The mean where it decides by `margin`, repeated for every draw, else the draws: `[draws, n, width]`.
    fn cascade<M: Model<Input = I>>(
        &self,
        model: &M,
        margin: f64,
        pass: &PassOfDraw<'_>,
    ) -> Result<Prediction, Error> {
        let rejected = |why: &str| Err(Error::other(format!("`cascade` {why}")));
        if members(model)? > 1 {
            return rejected("is for one adapter, and the model holds several side by side");
        }
        let at_mean = self.logits(model, &Pass::mean())?;
        let (width, n, draws) = (at_mean.width, at_mean.rows, self.draws.count);
        if width == 1 && n > 0 {
            return rejected("is for classifiers, and the answers are scores");
        }
        let undecided = undecided(&at_mean, margin)?;
        let rows: Vec<usize> = (0..n).filter(|&row| undecided[row]).collect();
        let part = Subset { of: self.examples, rows };
        let drawn = Inputs { examples: &part, ..*self }.members(model, draws, pass)?;
        let mut drawn = drawn.values.chunks_exact(width.max(1));
        let mut values = Vec::with_capacity(draws * n * width);
        for _ in 0..draws {
            let means = at_mean.values.chunks_exact(width.max(1));
            for (mean, is_drawn) in means.zip(&undecided) {
                values.extend_from_slice(if *is_drawn {
                    drawn.next().unwrap_or(mean)
                } else {
                    mean
                });
            }
        }
        let made = undecided.iter().map(|&is_drawn| if is_drawn { draws } else { 0 }).collect();
        Ok(Prediction { draws_per_example: Some(made), ..Prediction::new(values, n, width) })
    }

    /// `[draws · members, rows, width]`. Batches hold examples of like size, so that nothing is spent on
    /// shared padding.
    fn members<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        pass: &PassOfDraw<'_>,
    ) -> Result<Prediction, Error> {
        let n = self.examples.len();
        let sizes = self.examples.sizes();
        // A pass has every example once for each member, and about as many rows as other models' passes.
        let members = members(model)?.max(1);
        let batches = evaluation_batches(&sizes, self.batch_size.div_ceil(members))?;
        let mut rows = vec![Vec::with_capacity(n); draws * members];
        let mut width = 0;
        for (number, indices) in batches.iter().enumerate() {
            let input = self.examples.input(indices)?;
            let tokens = indices.iter().map(|&i| sizes[i]).max().unwrap_or(0) * indices.len();
            let most = if M::HOLDS_DRAWS && members == 1 {
                self.policy.tokens_per_pass / tokens.max(1)
            } else {
                1
            };
            let mut first = 0;
            while first < draws {
                let left = draws - first;
                let count = left.div_ceil(left.div_ceil(most.max(1)));
                let pass = batch_draws(&|i| pass(first + i, number), count, indices.len());
                let count = pass.draws;
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
                let rows = rows[first * members..][..count * members].iter_mut();
                for (rows, values) in rows.zip(parts) {
                    rows.extend(values.chunks(width).map(<[f64]>::to_vec));
                }
                first += count;
                report_progress(self.watch, indices.len() * count)?;
            }
        }
        let mut values = Vec::with_capacity(draws * members * n * width);
        for rows in rows {
            values.extend(restore_order(&batches, rows)?.concat());
        }
        Ok(Prediction::new(values, n, width))
    }
}

/// The pass of `count` draws where they differ in the number of the draw alone, else of the first of them.
fn batch_draws(pass: &dyn Fn(usize) -> Pass, count: usize, rows: usize) -> Pass {
    let first = pass(0);
    let of_draw = |i: usize| {
        let next = |number: u32| number.wrapping_add(i as u32);
        if first.antithetic {
            Pass { first_draw: next(first.first_draw), ..first }
        } else {
            Pass { noise: first.noise.at_step(next(first.noise.step)), ..first }
        }
    };
    let is_alike = draws_whole_batch(&first) && (1..count).all(|i| pass(i) == of_draw(i));
    if count > 1 && is_alike { first.with_draws(count, rows) } else { first }
}

/// `true` if a draw is one set of weights for the whole batch.
fn draws_whole_batch(pass: &Pass) -> bool {
    pass.scheme == Scheme::PerBatch && pass.dropout.is_none()
}

/// Prediction for some examples: the logits of every draw, or of every adapter that answers side by side.
///
/// # Shapes
///
/// `[members, rows, width]`; a width of 1 is that of scores.
///
/// # Examples
///
/// ```
/// use lrvd_burn::Prediction;
///
/// // Two draws for one row, which do not agree.
/// let prediction = Prediction::new(vec![2.0, 0.0, 0.0, 2.0], 1, 2);
/// let answers = prediction.classes()?;
/// assert!((answers[0].probabilities[0] - 0.5).abs() < 1e-12);
/// assert!(answers[0].mutual_information > Some(0.2));
/// # Ok::<(), lrvd_burn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// `[members, rows, width]`, row-major.
    pub values: Vec<f64>,
    /// Number of examples.
    pub rows: usize,
    /// Classes, or 1 for scores.
    pub width: usize,
    /// Draws of each example, 0 where a [cascade](DrawPolicy) answered at the mean, which the members then repeat; `None`
    /// without a cascade.
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
        let least = |draws: &Vec<usize>| draws.iter().map(|&made| made.min(members)).collect();
        Self {
            draws_per_example: self.draws_per_example.as_ref().map(least),
            ..Self::new(values, self.rows, self.width)
        }
    }

    /// Logits of the presence of every label, `[members, rows · width, 2]`: `z` and 0, whose softmax is `σ(z)` and `σ(−z)`. Each
    /// label of an example is an example then.
    #[must_use]
    pub fn per_label(&self) -> Self {
        let labels = |draws: &Vec<usize>| {
            draws.iter().flat_map(|&made| std::iter::repeat_n(made, self.width)).collect()
        };
        Self {
            draws_per_example: self.draws_per_example.as_ref().map(labels),
            ..Self::new(
                self.values.iter().flat_map(|&logit| [logit, 0.0]).collect(),
                self.rows * self.width,
                2,
            )
        }
    }

    /// The answer to every example, as a classifier's: averaged probabilities and their uncertainty.
    ///
    /// # Errors
    ///
    /// No classes, and logits that are not numbers.
    pub fn classes(&self) -> Result<Vec<ClassAnswer>, Error> {
        let logs = log_softmax(&self.values, self.width)?;
        let probabilities = mean_probability(&logs, self.members(), self.width)?;
        let classes = argmax_rows(&probabilities, self.width)?;
        let split = uncertainty(&logs, self.members(), self.width)?;
        let rows = probabilities.chunks_exact(self.width).zip(classes).enumerate();
        let is_drawn = |i: usize| self.draws_per_example.as_ref().is_none_or(|draws| draws[i] > 0);
        let answer = |(i, (row, class)): (usize, (&[f64], usize))| ClassAnswer {
            probabilities: row.to_vec(),
            class,
            entropy: split.predictive_entropy[i],
            mutual_information: is_drawn(i).then_some(split.mutual_information[i]),
        };
        Ok(rows.map(answer).collect())
    }

    /// The answer to every example, as a regressor's: mean and deviation over the members.
    ///
    /// # Errors
    ///
    /// Examples without a member.
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
    /// [`DrawPolicy`] answered at the mean.
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
    fn a_margin_is_a_difference_of_probabilities() {
        let policy = |margin| DrawPolicy { cascade: Some(margin), ..DrawPolicy::default() };
        assert!(policy(0.0).check().is_ok() && policy(1.0).check().is_ok());
        assert!(policy(f64::NAN).check().unwrap_err().to_string().contains("cascade"));
        // Probabilities 0.9, 0.1 and 0.7, 0.3: margins 0.8 and 0.4.
        let logits = |p: f64| [(p / (1.0 - p)).ln(), 0.0];
        let at_mean = Prediction::new([logits(0.9), logits(0.7)].concat(), 2, 2);
        assert_eq!(undecided(&at_mean, 0.5).unwrap(), [false, true]);
    }
}
