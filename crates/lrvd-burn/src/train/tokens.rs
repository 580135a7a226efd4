//! A language model's answers to the tokens that it should predict.

use std::ops::Range;

use burn::tensor::{Int, Tensor, activation};
use lrvd_core::metrics::{ReliabilityDiagram, mean};

use super::data::{Batch, Model, Targets};
use super::order::{evaluation_batches, restore_order};
use super::predict::{Inputs, PassWatch, report_progress};
use crate::error::Error;
use crate::parameters::values;
use crate::sampling::Pass;

/// Smallest probability whose logarithm is taken in an entropy; `p·ln p` of it is 0 in every float type.
const TINY: f64 = 1e-30;

/// Measures of every expected token, those of one row after those of another.
///
/// With draws the probabilities of the vocabulary are averaged, as a classifier's are:
///
/// ```text
/// p̄ = 1/k·Σ_d softmax(z_d)
/// log_probability    = ln p̄[y]
/// entropy            = H(p̄),   mutual_information = H(p̄) − 1/k·Σ_d H(softmax(z_d))       nats
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenAnswers {
    /// Number of tokens of each row.
    pub per_row: Vec<usize>,
    /// Logarithm of the expected token's probability.
    pub log_probability: Vec<f64>,
    /// Probability of the most likely token.
    pub confidence: Vec<f64>,
    /// `true` if that is the expected one.
    pub correct: Vec<bool>,
    /// Entropy of the next token.
    pub entropy: Vec<f64>,
    /// Mutual information between the next token and the weights; 0 of a single model.
    pub mutual_information: Vec<f64>,
}

impl TokenAnswers {
    /// Mean negative log-likelihood, nats per token; its exponential is the perplexity.
    pub fn nll(&self) -> Result<f64, lrvd_core::Error> {
        Ok(-mean(&self.log_probability)?)
    }

    /// Share of tokens whose most likely prediction is right.
    pub fn accuracy(&self) -> Result<f64, lrvd_core::Error> {
        mean(&self.correct.iter().map(|&right| f64::from(u8::from(right))).collect::<Vec<_>>())
    }

    /// Accuracy against the probability of the most likely token.
    pub fn reliability(&self) -> Result<ReliabilityDiagram, lrvd_core::Error> {
        ReliabilityDiagram::new(&self.confidence, &self.correct)
    }

    /// A loss for every row whose mean over rows is the mean over tokens:
    ///
    /// ```text
    /// loss_i = rows / tokens · Σ_{t of row i} −ln p[y_t]                  nats per token
    /// ```
    ///
    /// Tokens of a row are not independent, so errors of the mean are to be computed over rows.
    pub fn row_losses(&self) -> Vec<f64> {
        let (rows, tokens) = (self.per_row.len(), self.log_probability.len().max(1));
        let share = rows as f64 / tokens as f64;
        let mut rest = self.log_probability.as_slice();
        let row = |&n: &usize| {
            let (own, others) = rest.split_at(n.min(rest.len()));
            rest = others;
            -share * own.iter().sum::<f64>()
        };
        self.per_row.iter().map(row).collect()
    }

    /// Adds the answers to `batch`; a pass may hold several draws or members.
    fn add<M: Model>(
        &mut self,
        model: &M,
        batch: &Batch<M::Input>,
        passes: &[Pass],
        watch: PassWatch<'_>,
    ) -> Result<(), Error> {
        let Targets::Tokens { ids, per_row } = &batch.targets else {
            return Err(Error::Labels { expected: "tokens", found: "a label per row" });
        };
        let answers = ids.dims()[0];
        // Of all draws: the sum of probabilities, `[answers, vocabulary]`, that of entropies, and `ln p[y]` of each.
        let (mut sum, mut entropies, mut expected) =
            (None::<Tensor<2>>, vec![0.0; answers], Vec::new());
        for pass in passes {
            let logits = model.logits(&batch.input, pass);
            let found = logits.dims()[0];
            if answers == 0 || !found.is_multiple_of(answers) {
                let expected = format!("a multiple of {answers}, the number of tokens");
                return Err(lrvd_core::Error::length("logits", found, expected).into());
            }
            for logits in logits.without_autodiff().split(answers, 0) {
                let logs = activation::log_softmax(logits, 1);
                expected.push(values(logs.clone().gather(1, ids.clone().unsqueeze_dim(1))));
                let probabilities = logs.clone().exp();
                let entropy = values((probabilities.clone() * logs).sum_dim(1).neg());
                entropies.iter_mut().zip(entropy).for_each(|(sum, value)| *sum += value);
                sum = Some(match sum {
                    Some(sum) => sum + probabilities,
                    None => probabilities,
                });
            }
            report_progress(watch, per_row.len())?;
        }
        let Some(sum) = sum else { return Ok(()) };
        let draws = expected.len() as f64;
        let mean = sum.div_scalar(draws);
        let (confidence, best) = mean.clone().max_dim_with_indices(1);
        let best: Tensor<1, Int> = best.squeeze_dim(1);
        self.correct.extend(best.equal(ids.clone()).into_data().iter::<bool>());
        self.confidence.extend(values(confidence).into_iter().map(|p| p.clamp(0.0, 1.0)));
        let entropy = if expected.len() == 1 {
            entropies.clone()
        } else {
            values((mean.clone() * mean.clamp_min(TINY).log()).sum_dim(1).neg())
        };
        for (i, (entropy, of_draws)) in entropy.into_iter().zip(entropies).enumerate() {
            let logs: Vec<f64> = expected.iter().map(|draw| draw[i]).collect();
            self.log_probability.push(log_mean_exp(&logs));
            self.entropy.push(entropy);
            // Below 0 by rounding alone.
            self.mutual_information.push((entropy - of_draws / draws).max(0.0));
        }
        self.per_row.extend(per_row);
        Ok(())
    }
}

/// Answers of `model` to `inputs`, whose targets are tokens: at the mean without draws, else at the weight draws that
/// the seed addresses, the same ones for every example.
///
/// Of a vocabulary only sums leave the device, so that nothing of its size is kept for all tokens. One pass is made for each
/// batch and draw.
pub fn token_answers<M: Model>(
    model: &M,
    inputs: &Inputs<'_, M::Input>,
) -> Result<TokenAnswers, Error> {
    let Inputs { examples, batch_size, draws, watch, .. } = *inputs;
    let batches = evaluation_batches(&examples.sizes(), batch_size)?;
    let passes = draws.passes()?;
    let mut found = TokenAnswers::default();
    for indices in &batches {
        found.add(model, &examples.batch(indices)?, &passes, watch)?;
    }
    let end = |end: &mut usize, n: &usize| {
        *end += n;
        Some(*end - n..*end)
    };
    let rows = restore_order(&batches, found.per_row.iter().scan(0, end).collect())?;
    Ok(TokenAnswers {
        per_row: rows.iter().map(Range::len).collect(),
        log_probability: picked(&rows, &found.log_probability),
        confidence: picked(&rows, &found.confidence),
        correct: picked(&rows, &found.correct),
        entropy: picked(&rows, &found.entropy),
        mutual_information: picked(&rows, &found.mutual_information),
    })
}

fn picked<T: Copy>(rows: &[Range<usize>], values: &[T]) -> Vec<T> {
    rows.iter().flat_map(|row| &values[row.clone()]).copied().collect()
}

/// `ln(1/n·Σ exp x)`.
fn log_mean_exp(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if logs.len() == 1 || !most.is_finite() {
        return most;
    }
    most + (logs.iter().map(|log| (log - most).exp()).sum::<f64>() / logs.len() as f64).ln()
}
