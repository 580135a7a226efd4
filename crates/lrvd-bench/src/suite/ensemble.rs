//! Rows that are made of finished runs: ensembles, and the best match among several ranks.

use std::collections::BTreeMap;
use std::path::Path;

use super::one_run::folder;
use super::plan::PlannedRun;
use super::task::ReadyTask;
use crate::classify::write_predictions;
use crate::error::BenchError;
use crate::eval::{Scored, score_draws, selective_records};
use crate::json::{JsonLayout, read_lines, write_json};
use crate::method::{Average, Build};
use crate::report::{CheckpointRecord, Checkpoints, ParameterCounts, PredictionLine, RunRecord};

/// File of the last checkpoint's answers.
const PREDICTIONS: &str = "predictions-last.jsonl";

/// Makes the row `run` from its parts, whose records are `parts` in the same order.
pub(super) fn combine(
    out: &Path,
    task: &ReadyTask,
    run: &PlannedRun,
    parts: &[(PlannedRun, RunRecord)],
    target: Option<u64>,
) -> Result<RunRecord, BenchError> {
    let record = match run.method.entry().build {
        Build::Ensemble { average, .. } => ensemble(out, task, run, parts, average)?,
        Build::Matched { .. } => nearest(run, parts, target)?,
        Build::Single(_) => return Err(BenchError::NotOneRun { method: run.method.name() }),
    };
    let folder = folder(out, run);
    std::fs::create_dir_all(&folder).map_err(|source| BenchError::Io {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    write_json(&folder.join("record.json"), &record, JsonLayout::Compact)?;
    Ok(record)
}

/// Averages the answers of all members.
///
/// Members give logarithms of probabilities, which differ from their logits by a constant of each
/// example; a softmax of averaged logits does not see that constant, so both averages are exact.
fn ensemble(
    out: &Path,
    task: &ReadyTask,
    run: &PlannedRun,
    parts: &[(PlannedRun, RunRecord)],
    average: Average,
) -> Result<RunRecord, BenchError> {
    let prepared = &task.prepared;
    let mut members: BTreeMap<u32, Vec<Vec<f64>>> = BTreeMap::new();
    for (part, _) in parts {
        let path = folder(out, part).join(PREDICTIONS);
        let mut answers: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for line in read_lines::<PredictionLine>(&path)? {
            for (draws, probabilities) in line.probs {
                let logs = probabilities.iter().map(|p| p.max(f64::MIN_POSITIVE).ln());
                answers.entry(draws).or_default().extend(logs);
            }
        }
        for (draws, logs) in answers {
            members.entry(draws).or_default().push(logs);
        }
    }
    let mut scored: BTreeMap<u32, Scored> = BTreeMap::new();
    for (draws, members) in members {
        let logits = match average {
            Average::Probabilities => members.concat(),
            Average::Logits => mean(&members),
        };
        scored.insert(draws, score_draws(&logits, prepared)?);
    }
    write_predictions(prepared, &scored, &folder(out, run).join(PREDICTIONS))?;
    let selective = selective_records(&scored, prepared)?;
    let first = first(run, parts)?;
    let last = first.checkpoints.last.as_ref();
    let predict_seconds = sum_seconds(parts);
    let last = last.map(|last| CheckpointRecord {
        reliability: scored
            .iter()
            .filter_map(|(&k, s)| s.reliability.clone().map(|r| (k, r)))
            .collect(),
        selective: selective.clone(),
        metrics: scored.iter().map(|(&k, s)| (k, s.metrics.clone())).collect(),
        predict_seconds,
        statistics: None,
        energy: BTreeMap::new(),
        ..last.clone()
    });
    Ok(RunRecord {
        checkpoints: Checkpoints { last, best: None },
        train_seconds: parts.iter().map(|(_, r)| r.train_seconds).sum(),
        evaluate_seconds: parts.iter().map(|(_, r)| r.evaluate_seconds).sum(),
        trainable_parameters: parts
            .iter()
            .fold(ParameterCounts { adapter: 0, posterior: 0, head: 0 }, |sum, (_, record)| {
                sum + record.trainable_parameters
            }),
        elsewhere: BTreeMap::new(),
        fitted: BTreeMap::new(),
        history: Vec::new(),
        rank_events: Vec::new(),
        ..named(run, first)
    })
}

/// Members run one after another: their times add up.
fn sum_seconds(parts: &[(PlannedRun, RunRecord)]) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    for (_, record) in parts {
        for (&draws, seconds) in record.checkpoints.last.iter().flat_map(|c| &c.predict_seconds) {
            *sums.entry(draws).or_insert(0.0) += seconds;
        }
    }
    sums
}

fn mean(members: &[Vec<f64>]) -> Vec<f64> {
    let n = members.len() as f64;
    let values = members.first().map_or(0, Vec::len);
    (0..values).map(|i| members.iter().map(|m| m[i]).sum::<f64>() / n).collect()
}

/// The part whose adapter parameters come nearest to `target`, the first of equals; without a
/// target, the first part.
fn nearest(
    run: &PlannedRun,
    parts: &[(PlannedRun, RunRecord)],
    target: Option<u64>,
) -> Result<RunRecord, BenchError> {
    let size = |record: &RunRecord| {
        record.trainable_parameters.adapter + record.trainable_parameters.posterior
    };
    let distance = |record: &RunRecord| target.map_or(0, |target| size(record).abs_diff(target));
    let found = parts.iter().min_by_key(|(_, record)| distance(record));
    let Some((part, record)) = found else { return Err(no_part(run)) };
    let mut record = named(run, record);
    record.rank_budget.note = format!(
        "initial rank {} of {:?}, nearest to {} parameters",
        part.rank.unwrap_or(0),
        parts.iter().filter_map(|(p, _)| p.rank).collect::<Vec<_>>(),
        target.map_or_else(|| "any number of".to_owned(), |t| t.to_string()),
    );
    Ok(record)
}

/// `record` under the name and seed of the row.
fn named(run: &PlannedRun, record: &RunRecord) -> RunRecord {
    RunRecord { method: run.method.name(), seed: run.seed, ..record.clone() }
}

fn first<'a>(
    run: &PlannedRun,
    parts: &'a [(PlannedRun, RunRecord)],
) -> Result<&'a RunRecord, BenchError> {
    parts.first().map(|(_, record)| record).ok_or_else(|| no_part(run))
}

fn no_part(run: &PlannedRun) -> BenchError {
    BenchError::Method {
        method: run.method.entry().name,
        what: "no member has finished".to_owned(),
    }
}
