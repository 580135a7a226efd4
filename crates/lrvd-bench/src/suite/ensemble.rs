//! Rows that are made of finished runs: ensembles, and the best match among several ranks.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::train::Logits;

use super::SuiteError;
use super::one_run::folder;
use super::ood::OodSet;
use super::plan::PlannedRun;
use super::task::ReadyTask;
use crate::data::PreparedTask;
use crate::eval::{Scored, score_draws, selective_records};
use crate::io::{IoError, JsonLayout, create_dir, read_lines, write_json};
use crate::method::MethodError;
use crate::record::{CheckpointRecord, Checkpoints, ParameterCounts, PredictionLine, RunRecord};
use crate::run::write_predictions;
use crate::settings::{Average, MethodForm};

/// File of the last checkpoint's answers.
const PREDICTIONS: &str = "predictions-last.jsonl";

/// What the rows of one task are made with.
pub(super) struct Rows<'a> {
    /// Output folder.
    pub out: &'a Path,
    /// The task.
    pub task: &'a ReadyTask,
    /// What its models are shown besides.
    pub ood: &'a [OodSet],
}

/// What a matched budget aims at, and what came nearest.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// Trained parameters.
    pub target: u64,
    /// The initial rank whose runs end nearest to it.
    pub rank: Option<usize>,
}

impl Rows<'_> {
    /// Makes the row `run` from its parts, whose records are `parts` in the same order.
    pub(super) fn combine(
        &self,
        run: &PlannedRun,
        parts: &[(PlannedRun, RunRecord)],
        budget: Option<Budget>,
    ) -> Result<RunRecord, SuiteError> {
        let folder = folder(self.out, run);
        create_dir(&folder)?;
        let record = match (run.method.entry().form, budget) {
            (MethodForm::Ensemble { average, .. }, _) => self.ensemble(run, parts, average)?,
            (MethodForm::Matched { .. }, Some(budget)) => self.matched(run, parts, budget)?,
            _ => return Err(MethodError::NotOneRun { method: run.method.name() }.into()),
        };
        write_json(&folder.join("record.json"), &record, JsonLayout::Compact)?;
        Ok(record)
    }

    /// Averages the answers of all members, to the task and to what they were shown besides.
    ///
    /// With draws, a member's answer is the average of its own: mutual information is that between
    /// members.
    fn ensemble(
        &self,
        run: &PlannedRun,
        parts: &[(PlannedRun, RunRecord)],
        average: Average,
    ) -> Result<RunRecord, SuiteError> {
        let prepared = &self.task.prepared;
        let folder = folder(self.out, run);
        let scored = self.averaged(parts, PREDICTIONS, average, prepared)?;
        write_predictions(prepared, &scored, &folder.join(PREDICTIONS))?;
        let mut ood = BTreeMap::new();
        for other in self.ood {
            let theirs = self.averaged(parts, &other.file(), average, &other.questions)?;
            write_predictions(&other.questions, &theirs, &folder.join(other.file()))?;
            let lettered = match other.letters() {
                Some((letters, file)) => {
                    let answers = self.averaged(parts, &file, average, letters)?;
                    write_predictions(letters, &answers, &folder.join(file))?;
                    answers
                }
                None => BTreeMap::new(),
            };
            ood.insert(other.key().to_owned(), other.records(&scored, &theirs, &lettered)?);
        }
        let selective = selective_records(&scored, prepared)?;
        let first = first(run, parts)?;
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
        Ok(RunRecord {
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
            ..named(run, first)
        })
    }

    /// The members' answers in their files `name`, averaged, by number of draws.
    ///
    /// Members give logarithms of probabilities, which differ from their logits by a constant of each
    /// example; a softmax of averaged logits does not see that constant, so both averages are exact.
    /// A score is averaged as it is.
    fn averaged(
        &self,
        parts: &[(PlannedRun, RunRecord)],
        name: &str,
        average: Average,
        task: &PreparedTask,
    ) -> Result<BTreeMap<u32, Scored>, SuiteError> {
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
            let values = match average {
                Average::Probabilities => members.concat(),
                Average::Logits => mean(&members),
            };
            let (rows, width) = (task.validation.len(), task.labels);
            scored.insert(draws, score_draws(&Logits::new(values, rows, width), task)?);
        }
        Ok(scored)
    }

    /// The part with the initial rank that was found nearest to the budget, with its answers.
    fn matched(
        &self,
        run: &PlannedRun,
        parts: &[(PlannedRun, RunRecord)],
        Budget { target, rank }: Budget,
    ) -> Result<RunRecord, SuiteError> {
        let found = parts.iter().find(|(part, _)| part.rank == rank);
        let Some((part, record)) = found else { return Err(no_part(run)) };
        let (from, to) = (folder(self.out, part), folder(self.out, run));
        let others = self.ood.iter().flat_map(|other| {
            let letters = other.letters().map(|(_, file)| file);
            std::iter::once(other.file()).chain(letters)
        });
        for name in std::iter::once(PREDICTIONS.to_owned()).chain(others) {
            let source = from.join(&name);
            std::fs::copy(&source, to.join(&name)).map_err(IoError::at("copy", &source))?;
        }
        let mut record = named(run, record);
        let ranks: Vec<usize> = parts.iter().filter_map(|(part, _)| part.rank).collect();
        record.rank_budget.note = format!(
            "initial rank {} of {ranks:?}, on the average of the seeds nearest to {target} parameters",
            rank.unwrap_or(0),
        );
        Ok(record)
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

fn mean(members: &[Vec<f64>]) -> Vec<f64> {
    let n = members.len() as f64;
    let values = members.first().map_or(0, Vec::len);
    (0..values).map(|i| members.iter().map(|m| m[i]).sum::<f64>() / n).collect()
}

/// `record` under the name and seed of the row.
fn named(run: &PlannedRun, record: &RunRecord) -> RunRecord {
    RunRecord { method: run.method.name(), seed: run.seed, ..record.clone() }
}

fn first<'a>(
    run: &PlannedRun,
    parts: &'a [(PlannedRun, RunRecord)],
) -> Result<&'a RunRecord, SuiteError> {
    parts.first().map(|(_, record)| record).ok_or_else(|| no_part(run))
}

fn no_part(run: &PlannedRun) -> SuiteError {
    SuiteError::NoMember { method: run.method.entry().name }
}
