//! The metrics of a saved classifier on labelled examples.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use burn::tensor::DType;

use super::data::read_examples;
use super::load::SavedClassifier;
use super::rows::TextColumns;
use crate::data::PreparedTask;
use crate::data::batch::TokenExamples;
use crate::data::{Example, load};
use crate::error::Result;
use crate::eval::{Scored, score_draws};
use crate::io::sha256_file;
use crate::run::write_predictions;
use crate::task::{GlueTask, Goal};
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

#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    pub examples: Vec<Example>,
    pub files: BTreeMap<String, String>,
}

impl SavedClassifier {
    pub fn read_examples(&self, file: &Path, columns: &TextColumns) -> Result<Labelled> {
        if columns.has_choices() && !self.info.has_choices() {
            bail!(
                "columns of choices are for a classifier that was trained on questions with choices"
            );
        }
        let files = BTreeMap::from([(file.display().to_string(), sha256_file(file)?)]);
        Ok(Labelled { examples: read_examples(file, columns, &self.info.goal)?, files })
    }

    /// The validation split of a benchmark task, whose classes must be the classifier's.
    pub fn read_task(&self, task: GlueTask, data_dir: &Path) -> Result<Labelled> {
        let (wanted, found) = (&self.info.goal.classes, Goal::of_task(task).classes);
        if *wanted != found {
            let name = |classes: &[String]| match classes {
                [] => "none (regression)".to_owned(),
                classes => quoted(classes),
            };
            let (wanted, found) = (name(wanted), name(&found));
            bail!("the classifier knows the labels {wanted}, the data has {found}");
        }
        let split = load(data_dir, task)?.validation;
        let files = split.files.iter().map(|f| (f.path.display().to_string(), f.sha256.clone()));
        Ok(Labelled { files: files.collect(), examples: split.examples })
    }

    /// The columns that the classifier was trained on, or the usual ones: `text` and `label`, and `pair`
    /// where it was trained on pairs.
    pub fn columns(&self) -> TextColumns {
        let pair = (self.info.pairs == Some(true)).then(|| "pair".to_owned());
        let usual = || TextColumns { pair, ..TextColumns::default() };
        self.info.columns.clone().unwrap_or_else(usual)
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
