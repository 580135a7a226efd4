//! Rows that are made of finished runs: ensembles.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use lrvd_burn::train::Logits;

use super::one_run::folder;
use super::ood::OodSet;
use super::plan::PlannedRun;
use super::task::ReadyTask;
use crate::data::PreparedTask;
use crate::error::Result;
use crate::eval::{Scored, score_draws, selective_records};
use crate::io::{JsonLayout, create_dir, read_lines, write_json};
use crate::record::{CheckpointRecord, Checkpoints, ParameterCounts, PredictionLine, RunRecord};
use crate::run::write_predictions;

const PREDICTIONS: &str = "predictions-last.jsonl";

/// What the rows of one task are made with.
pub(super) struct Rows<'a> {
    pub out: &'a Path,
    pub task: &'a ReadyTask,
    pub ood: &'a [OodSet],
}

impl Rows<'_> {
    /// Makes the row `run` from its members `parts`: averages their answers, to the task and to what they were shown besides.
    ///
    /// With draws, a member's answer is the average of its draws: mutual information is that between
    /// members.
    pub(super) fn combine(
        &self,
        run: &PlannedRun,
        parts: &[(PlannedRun, RunRecord)],
    ) -> Result<RunRecord> {
        let prepared = &self.task.prepared;
        let folder = folder(self.out, run);
        create_dir(&folder)?;
        let scored = self.averaged(parts, PREDICTIONS, prepared)?;
        write_predictions(prepared, &scored, &folder.join(PREDICTIONS))?;
        let mut ood = BTreeMap::new();
        for other in self.ood {
            let theirs = self.averaged(parts, &other.file(), &other.questions)?;
            write_predictions(&other.questions, &theirs, &folder.join(other.file()))?;
            let lettered = match other.letters() {
                Some((letters, file)) => {
                    let answers = self.averaged(parts, &file, letters)?;
                    write_predictions(letters, &answers, &folder.join(file))?;
                    answers
                }
                None => BTreeMap::new(),
            };
            ood.insert(other.key().to_owned(), other.records(&scored, &theirs, &lettered)?);
        }
        let selective = selective_records(&scored, prepared)?;
        let Some((_, first)) = parts.first() else {
            bail!("{}: no member has finished", run.method.entry().name);
        };
        let last = first.checkpoints.last.as_ref();
        let last = last.map(|last| CheckpointRecord {
            reliability: scored
                .iter()
                .filter_map(|(&k, s)| s.reliability.clone().map(|r| (k, r)))
                .collect(),
            selective,
            metrics: scored.iter().map(|(&k, s)| (k, s.metrics.clone())).collect(),
            predict_seconds: sum_seconds(parts),
            statistics: None,
            energy: BTreeMap::new(),
            ..last.clone()
        });
        let record = RunRecord {
            checkpoints: Checkpoints { last, best: None },
            train_seconds: parts.iter().map(|(_, r)| r.train_seconds).sum(),
            evaluate_seconds: parts.iter().map(|(_, r)| r.evaluate_seconds).sum(),
            trainable_parameters: parts
                .iter()
                .map(|(_, record)| record.trainable_parameters)
                .fold(ParameterCounts::default(), std::ops::Add::add),
            // One after another: the largest.
            peak_memory_bytes: parts.iter().map(|(_, r)| r.peak_memory_bytes).max().flatten(),
            ood,
            fitted: BTreeMap::new(),
            history: Vec::new(),
            rank_events: Vec::new(),
            choice: None,
            method: run.method.name(),
            seed: run.seed,
            ..first.clone()
        };
        write_json(&folder.join("record.json"), &record, JsonLayout::Compact)?;
        Ok(record)
    }

    /// The members' answers in their files `name`, averaged, by number of draws.
    ///
    /// Members give logarithms of probabilities, which differ from their logits by a constant of each example: the
    /// probabilities are the same. A score is averaged as it is.
    fn averaged(
        &self,
        parts: &[(PlannedRun, RunRecord)],
        name: &str,
        task: &PreparedTask,
    ) -> Result<BTreeMap<u32, Scored>> {
        let regression = task.goal.is_regression();
        let value = |p: f64| if regression { p } else { p.max(f64::MIN_POSITIVE).ln() };
        let mut members: BTreeMap<u32, Vec<Vec<f64>>> = BTreeMap::new();
        for (part, _) in parts {
            let mut answers: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            for line in read_lines::<PredictionLine>(&folder(self.out, part).join(name))? {
                for (draws, answer) in line.probs {
                    answers.entry(draws).or_default().extend(answer.into_iter().map(value));
                }
            }
            for (draws, values) in answers {
                members.entry(draws).or_default().push(values);
            }
        }
        let mut scored = BTreeMap::new();
        for (draws, members) in members {
            let (rows, width) = (task.validation.len(), task.labels);
            scored.insert(draws, score_draws(&Logits::new(members.concat(), rows, width), task)?);
        }
        Ok(scored)
    }
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
