//! Trained models beside each other: differences on the same rows, ranks, numbers, time and sizes.

use std::path::Path;

use anyhow::{bail, ensure};
use lrvd_burn::files::is_file;
use lrvd_core::metrics::{Difference, NLL_FLOOR, argmax_rows};
use serde::Serialize;
use serde_json::Value;

use super::evaluate::Evaluation;
use super::inspect::inspect_adapter;
use super::open::Adapter;
use super::seen::SeenRows;
use crate::data::batch::TokenisedExample;
use crate::error::Result;
use crate::io::{cannot, read_json, read_lines};
use crate::record::{Metrics, PredictionLine, RunRecord};
use crate::report::{ModelPair, Verdict, judge_models};
use crate::run::{RECORD_FILE, SETTINGS_FILE, file_hashes};
use crate::settings::CheckpointChoice;

/// A model in a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedModel {
    /// Folder that the command line names.
    pub folder: String,
    pub method: String,
    pub metrics: Metrics,
    pub total_rank: usize,
    pub average_rank: f64,
    pub adapter_parameters: usize,
    pub posterior_parameters: usize,
    /// Of pooler and head.
    pub saved_parameters: usize,
    /// Seconds spent training; null of an adapter whose run is not known.
    pub train_seconds: Option<f64>,
    /// Bytes of the files of the adapter.
    pub bytes: u64,
    #[serde(skip)]
    rows: Rows,
}

/// Rows that a model was measured on, and its losses on each.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rows {
    /// By which a row is known: its hash, or the hashes of its files with its place and label.
    keys: Vec<String>,
    losses: Vec<Loss>,
}

/// A measure of every row, whose mean is a metric.
#[derive(Clone, Debug, PartialEq)]
struct Loss {
    name: &'static str,
    rows: Vec<f64>,
}

impl Rows {
    fn of(
        lines: &[PredictionLine],
        keys: Vec<String>,
        draws: u32,
        metrics: &Metrics,
    ) -> Result<Self> {
        let mut losses = losses(lines, draws)?;
        // Soft labels are measured against their shares, which the lines do not have.
        losses.retain(|loss| {
            let mean = loss.rows.iter().sum::<f64>() / loss.rows.len().max(1) as f64;
            let recorded = match loss.name {
                ACCURACY => metrics.accuracy,
                NLL => metrics.nll,
                _ => metrics.standard.get("mse").copied().flatten(),
            };
            recorded
                .is_some_and(|recorded| (recorded - mean).abs() < SAME * recorded.abs().max(1.0))
        });
        Ok(Self { keys, losses })
    }
}

const ACCURACY: &str = "accuracy";
const NLL: &str = "NLL";
const SQUARED: &str = "squared error";

/// Largest distance between a metric and the mean of its rows: further apart, they are not of the same answers.
const SAME: f64 = 1e-6;

/// Row by row: right answers and the negative log-likelihood of classes, the latter of several labels, and squared errors of numbers.
fn losses(lines: &[PredictionLine], draws: u32) -> Result<Vec<Loss>> {
    let mut found: Vec<Loss> = Vec::new();
    let mut add = |name: &'static str, value: f64| match found.iter_mut().find(|l| l.name == name) {
        Some(loss) => loss.rows.push(value),
        None => found.push(Loss { name, rows: vec![value] }),
    };
    let log = |p: f64| -p.max(NLL_FLOOR).ln();
    for line in lines {
        let Some(probs) = line.probs.get(&draws) else {
            let known: Vec<String> = line.probs.keys().map(u32::to_string).collect();
            bail!("no answers of {draws} draws; there are those of {}", known.join(", "));
        };
        match (&line.labels, &**probs) {
            (Some(own), probs) => {
                let each = probs.iter().enumerate();
                add(
                    NLL,
                    each.map(|(id, &p)| log(if own.contains(&id) { p } else { 1.0 - p })).sum(),
                );
            }
            (None, [score]) => add(SQUARED, (score - line.label).powi(2)),
            (None, probs) => {
                let label = line.label as usize;
                let answer = argmax_rows(probs, probs.len())?[0];
                add(ACCURACY, f64::from(u8::from(answer == label)));
                add(NLL, log(probs.get(label).copied().unwrap_or_default()));
            }
        }
    }
    Ok(found)
}

impl ComparedModel {
    /// The model in `folder`, measured by `evaluation`.
    pub fn measured(
        adapter: &Adapter,
        folder: &Path,
        evaluation: &Evaluation,
        draws: usize,
    ) -> Result<Self> {
        let draws = draws as u32;
        let (metrics, _) = evaluation.measures();
        let metrics = metrics.get(&draws).cloned().unwrap_or_default();
        let lines: Vec<PredictionLine> = evaluation.task.lines(&evaluation.scored).collect();
        let key = |row: &TokenisedExample| format!("{:016x}", row.row);
        let keys = evaluation.task.validation.iter().map(key).collect();
        let rows = Rows::of(&lines, keys, draws, &metrics)?;
        Self::new(adapter, folder, metrics, rows)
    }

    /// The finished run in `folder`, by its answers to its validation rows.
    pub fn of_run(adapter: &Adapter, folder: &Path, draws: usize) -> Result<Self> {
        let path = folder.join(RECORD_FILE);
        if !is_file(&path)? {
            bail!(
                "`{}` has no `{RECORD_FILE}`, so that its answers to validation rows are not known: name rows by `--data`",
                folder.display()
            );
        }
        let record: RunRecord = read_json(&path)?;
        let settings: Value = read_json(&folder.join(SETTINGS_FILE))?;
        let is_best = settings.pointer("/experiment/checkpoint").and_then(Value::as_str)
            == Some(CheckpointChoice::Best.name());
        let choice = CheckpointChoice::BOTH[usize::from(is_best)];
        let lines: Vec<PredictionLine> =
            read_lines(&folder.join(format!("predictions-{}.jsonl", choice.name())))?;
        let checkpoint = choice.of(&record);
        let metrics = checkpoint.and_then(|own| own.metrics.get(&(draws as u32)));
        let metrics = metrics.cloned().unwrap_or_default();
        let files = file_hashes(&settings["data"]["validation"]).join(" ");
        let key = |line: &PredictionLine| {
            let PredictionLine { id, line: at, row, label, labels, .. } = line;
            format!("{files} {id} {at:?} {row:?} {label} {labels:?}")
        };
        let keys = lines.iter().map(key).collect();
        let rows = Rows::of(&lines, keys, draws as u32, &metrics)?;
        Self::new(adapter, folder, metrics, rows)
    }

    fn new(adapter: &Adapter, folder: &Path, metrics: Metrics, rows: Rows) -> Result<Self> {
        let report = inspect_adapter(adapter)?;
        let record = folder.join(RECORD_FILE);
        let record: Option<RunRecord> =
            if is_file(&record)? { Some(read_json(&record)?) } else { None };
        let mut bytes = 0;
        for entry in std::fs::read_dir(&adapter.folder).map_err(cannot("read", &adapter.folder))? {
            let found = entry.and_then(|entry| entry.metadata());
            let found = found.map_err(cannot("read", &adapter.folder))?;
            bytes += if found.is_file() { found.len() } else { 0 };
        }
        Ok(Self {
            folder: folder.display().to_string(),
            method: report.method,
            metrics,
            total_rank: report.total_rank,
            average_rank: report.average_rank,
            adapter_parameters: report.adapter_parameters,
            posterior_parameters: report.posterior_parameters,
            saved_parameters: report.saved_parameters.values().sum(),
            train_seconds: record.map(|record| record.train_seconds),
            bytes,
            rows,
        })
    }

    /// Why its metrics are not those of new rows, where its run used its validation rows for something.
    pub fn used_validation(adapter: &Adapter) -> Result<Option<String>> {
        let seen = SeenRows::read(&adapter.folder)?;
        Ok((!seen.is_empty() && !seen.only_measured()).then(|| {
            format!(
                "the validation rows of `{}` chose the model or fitted something of it: name other rows by `--data`",
                adapter.folder.display()
            )
        }))
    }
}

/// Every pair of `models`, each by its earlier folder less the later one, as one family of Holm's method.
pub fn compare_models(models: &[ComparedModel]) -> Result<Vec<Verdict>> {
    let Some((first, others)) = models.split_first() else { return Ok(Vec::new()) };
    for other in others {
        let [own, theirs] = [first, other].map(|model| &model.rows.keys);
        let differ = own.iter().zip(theirs).position(|(a, b)| a != b);
        ensure!(
            own.len() == theirs.len() && differ.is_none(),
            "`{}` and `{}` were not measured on the same rows: {} and {} rows, of which the {}. differs; name rows for all of \
             them by `--data`",
            first.folder,
            other.folder,
            own.len(),
            theirs.len(),
            differ.unwrap_or(own.len().min(theirs.len())) + 1
        );
    }
    let mut pairs = Vec::new();
    for (place, model) in models.iter().enumerate() {
        for other in &models[place + 1..] {
            for loss in &model.rows.losses {
                let theirs = other.rows.losses.iter().find(|other| other.name == loss.name);
                let Some(theirs) = theirs else { continue };
                let d: Vec<f64> = loss.rows.iter().zip(&theirs.rows).map(|(a, b)| a - b).collect();
                pairs.push(ModelPair {
                    claim: format!("{}: {} less {}", loss.name, model.folder, other.folder),
                    mean: d.iter().sum::<f64>() / d.len().max(1) as f64,
                    difference: Difference::between_models(&d),
                });
            }
        }
    }
    Ok(judge_models(pairs))
}
