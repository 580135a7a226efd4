//! One fine-tuning run of the experiment: where it lies, whether it is complete, its record.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;

use super::plan::PlannedRun;
use crate::backbone::Backbone;
use crate::classify::{Finished, Run, RunLabel, RunStart, record};
use crate::error::BenchError;
use crate::eval::PreparedTask;
use crate::experiment::ExperimentConfig;
use crate::json::{JsonLayout, read_json, write_json};
use crate::method::{MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::report::RunRecord;
use crate::train::remove_checkpoints;

/// What every run of an experiment shares.
pub(super) struct Shared<'a> {
    /// Settings.
    pub config: &'a ExperimentConfig,
    /// Pretrained model.
    pub backbone: &'a Backbone,
    /// Where to compute.
    pub device: &'a Device,
    /// Output folder.
    pub out: &'a Path,
    /// Stop request.
    pub stop: &'a AtomicBool,
}

/// Position of a run in the whole experiment.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub index: usize,
    pub runs: usize,
}

/// Folder of one run.
pub(super) fn folder(out: &Path, run: &PlannedRun) -> PathBuf {
    out.join("runs")
        .join(run.task.spec().name)
        .join(run.method.name().to_lowercase())
        .join(format!("seed-{}", run.seed))
}

/// The record of a run that is already complete in `out`.
pub(super) fn completed(out: &Path, run: &PlannedRun) -> Result<Option<RunRecord>, BenchError> {
    let path = folder(out, run).join("record.json");
    if !path.is_file() {
        return Ok(None);
    }
    read_json(&path).map(Some)
}

/// Makes the run; `None` if a stop request ended it after a checkpoint.
pub(super) fn run_one(
    shared: &Shared<'_>,
    task: &PreparedTask,
    run: &PlannedRun,
    request: RankRequest,
    position: Position,
    sink: &mut dyn ProgressSink,
) -> Result<Option<RunRecord>, BenchError> {
    let folder = folder(shared.out, run);
    let checkpoints = folder.join("checkpoints");
    let start = RunStart {
        config: shared.config,
        backbone: shared.backbone,
        labels: task.labels,
        method: run.method,
        request,
        seed: run.seed,
        device: shared.device,
    };
    let training = Run {
        start,
        task,
        stop: shared.stop,
        label: run.label(),
        position: (position.index, position.runs),
    };
    let Some(mut trained) = training.train(&checkpoints, sink)? else { return Ok(None) };
    let label = label(run, request, shared.config);
    let Finished { record, summary } = record(&training.context(), &mut trained, &label, &folder)?;
    write_json(&folder.join("record.json"), &record, JsonLayout::Compact)?;
    remove_checkpoints(&checkpoints)?;
    sink.event(&Event::RunFinished { label: run.label(), summary, seconds: record.train_seconds });
    Ok(Some(record))
}

/// The rank that was asked for, and how.
fn label(run: &PlannedRun, request: RankRequest, config: &ExperimentConfig) -> RunLabel<'static> {
    let (requested, note) = match (run.method, request) {
        (MethodName::BayesLora, _) => (None, "learnt"),
        (_, RankRequest::Average(rank)) => (Some(rank), "matched to BayesLoRA"),
        (_, RankRequest::Initial) => (None, "no BayesLoRA run to match"),
    };
    let initial_rank = match (run.method, request) {
        (MethodName::Lora, RankRequest::Average(rank)) => rank,
        _ => config.initial_rank,
    };
    let (method, seed) = (run.method, run.seed);
    RunLabel { task: run.task.spec().name, method, seed, initial_rank, requested, note }
}
