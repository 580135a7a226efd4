//! Metrics and predictions of a saved classifier, and the entropy above which it gives no answer.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use anyhow::{anyhow, bail};
use burn::tensor::DType;
use lrvd_burn::train::{ClassAnswer, ScoreAnswer};
use lrvd_core::metrics::{RiskCoverage, argmax_rows};

use super::info::{Abstention, ClassifierInfo};
use super::load::SavedClassifier;
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::data::table::{Format, Layout, Table};
use crate::data::{
    Example, Input, Label, PreparedTask, Split, TextColumns, TextReader, load, read_labelled,
};
use crate::error::{Kind, Result};
use crate::eval::{Scored, score_draws};
use crate::run::write_predictions;
use crate::task::{Goal, Task};
use crate::text::quoted;

/// Metrics and predictions at the posterior mean and, if asked for, at draws.
#[derive(Debug)]
pub struct Evaluation {
    /// By number of draws; 0 is the posterior mean.
    pub scored: BTreeMap<u32, Scored>,
    task: PreparedTask,
}

impl Evaluation {
    pub fn rows(&self) -> usize {
        self.task.validation.len()
    }

    /// Writes one line for every example: its label, probabilities by number of draws, entropy,
    /// mutual information.
    pub fn write_predictions(&self, path: &Path) -> Result<()> {
        write_predictions(&self.task, &self.scored, path)
    }
}

impl SavedClassifier {
    pub fn read_examples(&self, file: &Path, columns: &TextColumns) -> Result<Split> {
        if columns.has_choices() && !self.info.has_choices() {
            bail!(
                "columns of choices are for a classifier that was trained on questions with choices"
            );
        }
        read_labelled(file, columns, &self.info.goal)
    }

    /// The validation split of a benchmark task, whose classes must be the classifier's.
    pub fn read_task(&self, task: Task, data_dir: &Path) -> Result<Split> {
        let (expected, found) = (&self.info.goal.classes, task.goal().classes);
        if *expected != found {
            let name = |classes: &[String]| match classes {
                [] => "none (regression)".to_owned(),
                classes => quoted(classes),
            };
            let (expected, found) = (name(expected), name(&found));
            bail!("the classifier knows the labels {expected}, the data has {found}");
        }
        Ok(load(data_dir, task, None)?.validation)
    }

    /// The columns that the classifier was trained on, or the usual ones: `text` and `label`, and `pair`
    /// where it was trained on pairs.
    pub fn columns(&self) -> TextColumns {
        let pair = (self.info.pairs == Some(true)).then(|| "pair".to_owned());
        let usual = || TextColumns { pair, ..TextColumns::default() };
        self.info.columns.clone().unwrap_or_else(usual)
    }

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
            if let Some(expected) = self.info.pairs.filter(|expected| *expected != pair) {
                let (found, expected) = (kind(pair), kind(expected));
                let number = first + i + 1;
                return Err(Kind::Input.mark(anyhow!(
                    "input {number} is {found}, the classifier was trained on {expected}"
                )));
            }
            let (found, most) = (input.choices.len(), self.info.goal.n_labels());
            let expected = match self.info.has_choices() {
                true if (2..=most).contains(&found) => None,
                true => Some(format!("questions with 2 to {most}")),
                false if found == 0 => None,
                false => Some("texts without choices".to_owned()),
            };
            if let Some(expected) = expected {
                let number = first + i + 1;
                return Err(Kind::Input.mark(anyhow!(
                    "input {number} has {found} choices, the classifier was trained on {expected}"
                )));
            }
            // Without a target: the label is not read in prediction.
            Ok(reader.encode(input, Label::Class(0))?.0)
        };
        inputs.iter().enumerate().map(encode).collect()
    }

    /// Checks that no file of `labelled` trained or chose this model.
    ///
    /// Files are compared by SHA-256, so copies of single rows are not noticed. Validation rows of a run with
    /// `checkpoint = "last"` pass: nothing was chosen by them.
    pub fn check_unseen(&self, labelled: &Split) -> Result<()> {
        match labelled.files.iter().find(|file| self.info.seen.contains(&file.sha256)) {
            Some(file) => Err(anyhow!(
                "`{file}` trained or chose this model, so its error rate there is not that of new texts: pass \
                 rows that the run has not used",
                file = file.path.display()
            )),
            None => Ok(()),
        }
    }

    pub fn abstention(&self, draws: usize) -> Result<Option<Abstention>> {
        let fitted = &self.info.abstentions;
        let spared = self.policy.asked().is_some();
        match fitted.get(&draws).filter(|_| !spared) {
            Some(found) => Ok(Some(*found)),
            None if fitted.is_empty() => Ok(None),
            None => {
                let known = quoted(fitted.keys().map(usize::to_string));
                Err(anyhow!(
                    "no threshold was fitted for the answers of {draws} draws with these options in `{dir}`, \
                     only for {known} draws: pass `--draws`, run `lrvd abstain fit` with these options, or pass \
                     `--abstain-above` (`inf` always answers)",
                    dir = self.folder().display()
                ))
            }
        }
    }
}

/// Evaluates `classifier` on `examples` at the posterior mean and at `draws` draws, which
/// `seed` addresses.
pub fn evaluate(
    classifier: &SavedClassifier,
    examples: &[Example],
    draws: usize,
    seed: u64,
) -> Result<Evaluation> {
    let info = &classifier.info;
    // F1 and Matthews are reported for any two classes, whatever a benchmark reports.
    let goal = if info.goal.is_regression() || info.has_choices() {
        info.goal.clone()
    } else {
        Goal::classification(&info.goal.name, info.goal.classes.clone())
    };
    let reader = info.reader(&classifier.backbone)?;
    let task = reader.prepare(goal, &[], examples)?;
    let examples = TokenExamples {
        examples: &task.validation,
        pad_id: task.pad_id,
        labels: task.labels,
        device: &classifier.device,
        dtype: DType::F32,
    };
    let numbers = std::iter::once(0).chain((draws > 0).then_some(draws));
    let mut scored = BTreeMap::new();
    for draws in numbers {
        let logits = classifier.logits(&examples, draws, seed)?;
        let raw = score_draws(&logits, &task)?;
        let logits = classifier.calibrated(logits, draws)?;
        let mut answers = score_draws(&logits, &task)?;
        // What the draws disagree about is theirs, whatever the temperature.
        answers.metrics.mutual_information = raw.metrics.mutual_information;
        if let (Some(own), Some(raw)) = (&mut answers.uncertainty, raw.uncertainty) {
            own.mutual_information = raw.mutual_information;
        }
        scored.insert(draws as u32, answers);
    }
    Ok(Evaluation { scored, task })
}

/// Batches in which texts of like length are looked for.
const WINDOW: usize = 32;
/// Logits that such a window may have.
const KEPT_LOGITS: usize = 1 << 23;

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
    let mut table = Table::open(file, &Layout { blank_lines: true, ..Layout::of(format) })?;
    let columns = TextColumns { label: None, ..columns };
    columns.check(file, &table.names()?)?;
    inputs(table, columns)
}

/// The inputs in a stream of one JSON object a line, which errors call `name`.
pub fn stream_inputs(
    reader: Box<dyn BufRead>,
    name: &Path,
    columns: TextColumns,
) -> Result<Inputs> {
    inputs(Table::objects(reader, name), columns)
}

fn inputs(mut table: Table, columns: TextColumns) -> Result<Inputs> {
    let columns = TextColumns { label: None, ..columns };
    table.select(&columns.names())?;
    Ok(Box::new(table.map(move |row| Input::of(&row?, &columns))))
}

/// Finds the largest entropy up to which the answers of `draws` draws in `evaluation` have an error rate of at most `target`
/// with confidence `1 − delta` ([`RiskCoverage::certified`]), and writes it into the classifier's folder, where
/// [`SavedClassifier::abstention`] finds it.
pub fn fit_abstention(
    classifier: &SavedClassifier,
    labelled: &Split,
    evaluation: &Evaluation,
    draws: usize,
    target: f64,
    delta: f64,
) -> Result<Abstention> {
    classifier.check_unseen(labelled)?;
    let scored = evaluation.scored.get(&(draws as u32));
    let answers = scored.and_then(|scored| Some((scored, scored.uncertainty.as_ref()?)));
    let Some((scored, uncertainty)) = answers else {
        bail!("a threshold for giving no answer is for classes, and this one predicts numbers")
    };
    let width = classifier.info.goal.n_labels();
    let answered = argmax_rows(&scored.outputs, width)?;
    let correct: Vec<bool> = labelled
        .examples
        .iter()
        .zip(answered)
        .map(|(example, class)| example.label.class() == Some(class))
        .collect();
    let sure: Vec<f64> = uncertainty.predictive_entropy.iter().map(|entropy| -entropy).collect();
    let (rows, curve) = (correct.len(), RiskCoverage::new(&sure, &correct)?);
    let Some((point, bound)) = curve.certified(target, delta)? else {
        let best = curve.points().iter().map(|point| point.risk).fold(1.0, f64::min);
        let confidence = 100.0 * (1.0 - delta);
        bail!(
            "no threshold has an error rate below {target} with {confidence} % confidence on these {rows} rows \
             (the lowest observed rate of the most confident rows is {best:.4}): allow more errors with \
             `--risk`, or pass more rows"
        );
    };
    let found = Abstention {
        above: -point.threshold,
        target,
        delta,
        bound,
        risk: point.risk,
        coverage: point.coverage,
        rows,
    };
    let dir = classifier.folder();
    let Some(mut info) = ClassifierInfo::read(dir)? else {
        bail!("`{}` has no `lrvd_classifier.json`, which stores fitted values", dir.display());
    };
    info.abstentions.insert(draws, found);
    info.write(dir)?;
    Ok(found)
}
