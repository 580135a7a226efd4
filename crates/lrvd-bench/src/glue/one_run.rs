//! One fine-tuning run: set up or resume, train, evaluate, record.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, Device};
use lrvd_burn::model::{AdapterTargets, attach_adapters};
use lrvd_burn::optimizer::AdamW;
use lrvd_burn::parameters::{NamedParameters, Role};
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::DebertaClassifier;

use super::outcome::{Finished, record};
use super::plan::PlannedRun;
use crate::backbone::{Backbone, load_classifier};
use crate::error::BenchError;
use crate::eval::PreparedTask;
use crate::experiment::{ExperimentConfig, PoolerMode};
use crate::method::{Method, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::report::{RunRecord, write_text};
use crate::train::{
    FitContext, FitOutcome, Journal, TrainState, fit, latest_checkpoint, load_checkpoint,
    save_checkpoint,
};

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
    let text = std::fs::read_to_string(&path)
        .map_err(|source| BenchError::Io { action: "read", path: path.clone(), source })?;
    serde_json::from_str(&text).map(Some).map_err(|source| BenchError::Json { path, source })
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
    let config = shared.config;
    let mut method: Method<DebertaClassifier> = run.method.build(config, request)?;
    let mut state = fresh_state(shared, task, &method, run.seed)?;
    let folder = folder(shared.out, run);
    let checkpoints = folder.join("checkpoints");
    if let Some(path) = latest_checkpoint(&checkpoints)? {
        load_checkpoint(&path, &mut state, &mut method)?;
    }
    sink.event(&Event::RunStarted {
        index: position.index,
        runs: position.runs,
        label: run.label(),
        steps: config.steps,
        done: state.done,
    });
    let context = FitContext {
        config,
        task,
        seed: run.seed,
        device: shared.device,
        dtype: DType::F32,
        stop: shared.stop,
    };
    let every = config.evaluate_every;
    let outcome = fit(&context, &mut state, &mut method, sink, &mut |state, method, must| {
        if must || state.done.is_multiple_of(every) {
            save_checkpoint(&checkpoints, state, method)?;
        }
        Ok(())
    })?;
    if outcome == FitOutcome::Stopped {
        return Ok(None);
    }
    let Finished { record, summary } = record(&context, state, &method, run, request, &folder)?;
    let path = folder.join("record.json");
    let text = serde_json::to_string(&record)
        .map_err(|source| BenchError::Json { path: path.clone(), source })?;
    write_text(&path, &text)?;
    if checkpoints.is_dir() {
        std::fs::remove_dir_all(&checkpoints)
            .map_err(|source| BenchError::Io { action: "remove", path: checkpoints, source })?;
    }
    sink.event(&Event::RunFinished {
        label: run.label(),
        summary,
        seconds: record.train_seconds,
    });
    Ok(Some(record))
}

/// Pretrained encoder, fresh head, fresh adapters, empty optimiser.
fn fresh_state(
    shared: &Shared<'_>,
    task: &PreparedTask,
    method: &Method<DebertaClassifier>,
    seed: u64,
) -> Result<TrainState<DebertaClassifier>, BenchError> {
    let config = shared.config;
    let mut model = load_classifier(
        shared.backbone,
        task.labels,
        config.backbone_dropout,
        seed,
        shared.device,
        DType::F32,
    )?;
    let targets = AdapterTargets::Names(config.target_modules.clone());
    attach_adapters(&mut model, &targets, &method.adapter(), NoiseKey::new(seed))?;
    model.visit_parameters(&mut |mut p| {
        let frozen_pooler =
            config.pooler == PoolerMode::Frozen && p.name.starts_with("pooler.");
        if p.role == Role::Head && !frozen_pooler {
            p.value.set_trainable(true);
        }
    });
    let groups = config.groups(method.is_variational());
    Ok(TrainState {
        model,
        optimizer: AdamW::new(config.optimizer, groups),
        done: 0,
        order: Default::default(),
        best: None,
        journal: Journal::default(),
    })
}
