//! A language model's answers to the tokens that it should predict.

use burn::tensor::{Int, Tensor, activation};
use lrvd_core::metrics::{Binning, DEFAULT_BINS, ReliabilityDiagram, mean};

use super::data::{LabelledExamples, Model, Targets, TokenTargets};
use super::inputs::PassWatch;
use super::order::{evaluation_batches, restore_order};
use super::predict::DrawSeed;
use crate::error::Error;
use crate::host::values;
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
    /// Whether that is the expected one.
    pub correct: Vec<bool>,
    /// Entropy of the next token.
    pub entropy: Vec<f64>,
    /// Mutual information between the next token and the weights; 0 of a single model.
    pub mutual_information: Vec<f64>,
}

/// Those of one token.
struct Answer {
    log_probability: f64,
    confidence: f64,
    correct: bool,
    entropy: f64,
    mutual_information: f64,
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
        let (bins, binning) = (DEFAULT_BINS, Binning::Torchmetrics);
        ReliabilityDiagram::new(&self.confidence, &self.correct, bins, binning)
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
}

/// The answers of `model` to `examples`, whose targets are tokens: at the mean for 0 draws, else at the weight draws that
/// `seed` addresses, the same ones for every example.
///
/// Of a vocabulary only sums leave the device, so that nothing of its size is kept for all tokens. `watch` follows the passes,
/// one for each batch and draw.
pub fn token_answers<M: Model>(
    model: &M,
    examples: &dyn LabelledExamples<Input = M::Input>,
    batch_size: usize,
    seed: u64,
    draws: usize,
    watch: PassWatch<'_>,
) -> Result<TokenAnswers, Error> {
    let batches = evaluation_batches(&examples.sizes(), batch_size)?;
    let passes: Vec<Pass> = match draws {
        0 => vec![Pass::mean()],
        _ => {
            let seed = DrawSeed::new(seed)?;
            (0..draws).map(|draw| seed.pass(draw)).collect()
        }
    };
    let mut rows = Vec::with_capacity(examples.len());
    for indices in &batches {
        let batch = examples.batch(indices)?;
        let Targets::Tokens(TokenTargets { ids, per_row }) = &batch.targets else {
            let what = "token answers: the examples do not ask for tokens".to_owned();
            return Err(Error::Undefined(what));
        };
        let mut sum = Sum::new(ids);
        for pass in &passes {
            sum.add(model.logits(&batch.input, pass))?;
            watch.passed(indices.len())?;
        }
        let mut answers = sum.answers().into_iter();
        rows.extend(per_row.iter().map(|&n| answers.by_ref().take(n).collect::<Vec<Answer>>()));
    }
    let rows = restore_order(&batches, rows)?;
    let all: Vec<&Answer> = rows.iter().flatten().collect();
    let numbers = |of: fn(&Answer) -> f64| all.iter().map(|answer| of(answer)).collect();
    Ok(TokenAnswers {
        per_row: rows.iter().map(Vec::len).collect(),
        log_probability: numbers(|answer| answer.log_probability),
        confidence: numbers(|answer| answer.confidence),
        correct: all.iter().map(|answer| answer.correct).collect(),
        entropy: numbers(|answer| answer.entropy),
        mutual_information: numbers(|answer| answer.mutual_information),
    })
}

/// Sums over draws of one batch.
struct Sum<'a> {
    ids: &'a Tensor<1, Int>,
    /// Sum of probabilities, `[answers, vocabulary]`.
    probabilities: Option<Tensor<2>>,
    /// Entropies of every draw so far, summed.
    entropies: Vec<f64>,
    /// `ln p[y]` by draw.
    expected: Vec<Vec<f64>>,
}

impl<'a> Sum<'a> {
    fn new(ids: &'a Tensor<1, Int>) -> Self {
        let entropies = vec![0.0; ids.dims()[0]];
        Self { ids, probabilities: None, entropies, expected: Vec::new() }
    }

    /// Adds the logits of a pass, which may hold several draws or members.
    fn add(&mut self, logits: Tensor<2>) -> Result<(), Error> {
        let (answers, found) = (self.ids.dims()[0], logits.dims()[0]);
        if answers == 0 || !found.is_multiple_of(answers) {
            return Err(Error::Shape(format!(
                "the model gave {found} rows of logits for {answers} tokens"
            )));
        }
        for part in 0..found / answers {
            let logits = logits.clone().narrow(0, part * answers, answers).without_autodiff();
            let logs = activation::log_softmax(logits, 1);
            let expected = logs.clone().gather(1, self.ids.clone().unsqueeze_dim(1));
            let probabilities = logs.clone().exp();
            let entropy = values((probabilities.clone() * logs).sum_dim(1).neg());
            self.entropies.iter_mut().zip(entropy).for_each(|(sum, value)| *sum += value);
            self.expected.push(values(expected));
            self.probabilities = Some(match self.probabilities.take() {
                Some(sum) => sum + probabilities,
                None => probabilities,
            });
        }
        Ok(())
    }

    fn answers(self) -> Vec<Answer> {
        let (draws, Some(sum)) = (self.expected.len(), self.probabilities) else {
            return Vec::new();
        };
        let mean = sum.div_scalar(draws as f64);
        let (confidence, best) = mean.clone().max_dim_with_indices(1);
        let best: Tensor<1, Int> = best.squeeze_dim(1);
        let correct = best.equal(self.ids.clone()).into_data();
        let entropy = if draws == 1 {
            self.entropies.clone()
        } else {
            values((mean.clone() * mean.clamp_min(TINY).log()).sum_dim(1).neg())
        };
        let confidence = values(confidence);
        let of_token = |(i, correct): (usize, bool)| {
            let logs: Vec<f64> = self.expected.iter().map(|draw| draw[i]).collect();
            let of_draws = self.entropies[i] / draws as f64;
            Answer {
                log_probability: log_mean_exp(&logs),
                confidence: confidence[i].clamp(0.0, 1.0),
                correct,
                entropy: entropy[i],
                // Below 0 by rounding alone.
                mutual_information: (entropy[i] - of_draws).max(0.0),
            }
        };
        correct.iter::<bool>().enumerate().map(of_token).collect()
    }
}

/// `ln(1/n·Σ exp x)`.
fn log_mean_exp(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if logs.len() == 1 || !most.is_finite() {
        return most;
    }
    most + (logs.iter().map(|log| (log - most).exp()).sum::<f64>() / logs.len() as f64).ln()
}
