//! The answers of a saved classifier to new texts, with their uncertainty.

use std::io::BufRead;
use std::path::Path;

use anyhow::anyhow;
use burn::tensor::DType;
use lrvd_burn::train::{ClassAnswer, ScoreAnswer};

use super::load::SavedClassifier;
use super::rows::{self, Row, TextColumns};
use crate::backbone::TextReader;
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::data::table::{Format, Table};
use crate::data::{Label, Texts};
use crate::error::{Kind, Result};

/// Batches in which texts of like length are looked for.
const WINDOW: usize = 32;
/// Logits that such a window may have.
const KEPT_LOGITS: usize = 1 << 23;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub text: String,
    /// Second text of a pair, or the passage that a question is about.
    pub pair: Option<String>,
    /// Choices of a question; none of a text.
    pub choices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    Class {
        /// Probabilities in label order, averaged over the draws.
        probabilities: Vec<f64>,
        /// The most probable class; ties go to the lowest.
        class: usize,
        /// Entropy of the probabilities, nats.
        entropy: f64,
        /// Mutual information between answer and weights, nats; `None` without draws.
        mutual_information: Option<f64>,
        /// Draws that the answer is averaged over; 0 at the mean.
        draws: usize,
    },
    Score {
        score: f64,
        /// Standard deviation over the draws; `None` below two draws.
        deviation: Option<f64>,
    },
}

/// Inputs one by one, so that a long table needs little memory.
pub type Inputs = Box<dyn Iterator<Item = Result<Input>>>;

pub fn read_inputs(file: &Path, format: Format, columns: TextColumns) -> Result<Inputs> {
    let columns = TextColumns { label: None, ..columns };
    Ok(inputs(rows::open(file, format, &columns)?, columns))
}

/// The inputs in a stream of one JSON object a line, which errors call `name`.
pub fn stream_inputs(reader: Box<dyn BufRead>, name: &Path, columns: TextColumns) -> Inputs {
    inputs(Table::objects(reader, name), TextColumns { label: None, ..columns })
}

fn inputs(table: Table, columns: TextColumns) -> Inputs {
    Box::new(table.map(move |row| {
        let Row { text, pair, choices, .. } = Row::of(&row?, &columns)?;
        Ok(Input { text, pair, choices })
    }))
}

impl SavedClassifier {
    /// Answers `inputs` at the posterior mean (`draws = 0`) or averaged over draws, which `seed`
    /// addresses and which are of the kind that the classifier was evaluated with: by default a draw
    /// from a posterior is the same model for every input and every call, and one of dropout drops the
    /// same places of every batch.
    ///
    /// `first` is the number of inputs before these, for errors.
    pub fn predict(
        &self,
        inputs: &[Input],
        draws: usize,
        seed: u64,
        first: usize,
    ) -> Result<Vec<Prediction>> {
        let reader = self.info.reader(&self.backbone)?;
        let examples = self.encode(&reader, inputs, first)?;
        let logits = self.logits(&self.batches(&reader, &examples), draws, seed)?;
        if self.info.goal.is_regression() {
            let score =
                |a: ScoreAnswer| Prediction::Score { score: a.score, deviation: a.deviation };
            return Ok(logits.scores()?.into_iter().map(score).collect());
        }
        // What the draws disagree about is theirs, whatever the temperature.
        let information: Vec<Option<f64>> =
            logits.classes()?.into_iter().map(|answer| answer.mutual_information).collect();
        let logits = self.calibrated(logits, draws)?;
        let made = |row: usize| logits.made.as_ref().map_or(draws, |made| made[row]);
        let answer = |(row, a): (usize, ClassAnswer)| Prediction::Class {
            probabilities: a.probabilities,
            class: a.class,
            entropy: a.entropy,
            mutual_information: information[row].filter(|_| made(row) > 0),
            draws: made(row),
        };
        Ok(logits.classes()?.into_iter().enumerate().map(answer).collect())
    }

    /// How many inputs [`predict`](Self::predict) should get at once, where there are many: enough to find texts of like length
    /// for every batch. One batch, in the order given, where what is drawn for an answer depends on its batch.
    pub fn window(&self, draws: usize) -> usize {
        let batch = self.info.batch_size;
        if !self.is_batch_free(draws) {
            return batch;
        }
        // Every draw's logits are kept until the answers are taken from them.
        let most = KEPT_LOGITS / (draws.max(1) * self.info.goal.n_labels().max(1));
        (WINDOW * batch).min(most).max(batch)
    }

    pub(super) fn mean_logits(&self, inputs: &[Input]) -> Result<Vec<f64>> {
        let reader = self.info.reader(&self.backbone)?;
        let examples = self.encode(&reader, inputs, 0)?;
        Ok(self.logits(&self.batches(&reader, &examples), 0, 0)?.values)
    }

    fn batches<'a>(
        &'a self,
        reader: &TextReader<'_>,
        examples: &'a [TokenisedExample],
    ) -> TokenExamples<'a> {
        TokenExamples {
            examples,
            pad_id: reader.pad_id(),
            labels: self.info.goal.n_labels(),
            device: &self.device,
            dtype: DType::F32,
        }
    }

    fn encode(
        &self,
        reader: &TextReader<'_>,
        inputs: &[Input],
        first: usize,
    ) -> Result<Vec<TokenisedExample>> {
        let kind = |pair: bool| if pair { "a pair (`text` and `pair`)" } else { "a single text" };
        let encode = |(i, input): (usize, &Input)| {
            let pair = input.pair.is_some();
            if let Some(wanted) = self.info.pairs.filter(|wanted| *wanted != pair) {
                let (found, wanted) = (kind(pair), kind(wanted));
                let number = first + i + 1;
                return Err(Kind::Input.mark(anyhow!(
                    "input {number} is {found}, the classifier was trained on {wanted}"
                )));
            }
            let (found, most) = (input.choices.len(), self.info.goal.n_labels());
            let wanted = match self.info.has_choices() {
                true if (2..=most).contains(&found) => None,
                true => Some(format!("questions with 2 to {most}")),
                false if found == 0 => None,
                false => Some("texts without choices".to_owned()),
            };
            if let Some(wanted) = wanted {
                let number = first + i + 1;
                return Err(Kind::Input.mark(anyhow!(
                    "input {number} has {found} choices, the classifier was trained on {wanted}"
                )));
            }
            // Without a target: the label is not read in prediction.
            let Input { text, pair, choices } = input;
            let texts = Texts { text, pair: pair.as_deref(), choices };
            Ok(reader.encode(texts, Label::Class(0))?.0)
        };
        inputs.iter().enumerate().map(encode).collect()
    }
}
