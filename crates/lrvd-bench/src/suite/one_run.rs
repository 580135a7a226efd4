//! One fine-tuning run of the experiment: where it lies, whether it is complete, its record.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use lrvd_burn::train::Checkpoints;

use super::ood::{OodSet, ood_answers};
use super::plan::PlannedRun;
use super::task::{ReadyTask, SuiteTask};
use crate::backbone::Backbone;
use crate::classify::{TextColumns, TrainSettings};
use crate::data::PreparedTask;
use crate::error::Result;
use crate::io::{JsonLayout, read_json, write_json};
use crate::progress::{Event, ProgressSink};
use crate::reasoning::QuestionForm;
use crate::record::RunRecord;
use crate::run::{ADAPTER_DIR, Finished, Run, RunLabel, RunStart, summary};
use crate::settings::{MethodName, RankRequest, ValidConfig};

pub(super) struct Shared<'a> {
    pub config: &'a ValidConfig,
    pub backbone: &'a Backbone,
    pub device: &'a Device,
    pub device_name: &'a str,
    pub out: &'a Path,
    pub matches: bool,
    pub stop: &'a AtomicBool,
    pub keep: bool,
}

impl<'a> Shared<'a> {
    pub(super) fn start(
        &self,
        task: &'a PreparedTask,
        method: MethodName,
        seed: u64,
    ) -> RunStart<'a> {
        let Self { config, backbone, device, .. } = *self;
        let request = RankRequest::Initial;
        RunStart { config, backbone, task, method, request, seed, device }
    }
}

pub(super) fn folder(out: &Path, run: &PlannedRun) -> PathBuf {
    let kind = if run.is_member { "members" } else { "runs" };
    out.join(kind).join(run.task.key()).join(run.method.key()).join(format!("seed-{}", run.seed))
}

/// The record of a run that is already complete in `out`.
pub(super) fn completed(out: &Path, run: &PlannedRun) -> Result<Option<RunRecord>> {
    let path = folder(out, run).join("record.json");
    if !path.is_file() {
        return Ok(None);
    }
    Ok(Some(read_json(&path)?))
}

/// Makes the run; `None` if a stop request ended it after a checkpoint.
pub(super) fn run_one(
    shared: &Shared<'_>,
    task: &ReadyTask,
    ood: &[OodSet],
    run: &PlannedRun,
    request: RankRequest,
    position: (usize, usize),
    sink: &mut dyn ProgressSink,
) -> Result<Option<RunRecord>> {
    let folder = folder(shared.out, run);
    let checkpoints = folder.join("checkpoints");
    let start = shared.start(&task.prepared, run.method, run.seed);
    let start = RunStart { request, ..start };
    let training = Run::new(start, shared.stop, run.label(), position)?;
    let begun = training.open(&checkpoints)?;
    let checkpoints = Checkpoints::open(&checkpoints)?;
    let Some(mut trained) = training.train(begun, &checkpoints, sink)? else { return Ok(None) };
    let label = label(run, request, shared.config, shared.matches);
    let Some(Finished { mut record, scored }) =
        training.record(&mut trained, &label, &folder, sink)?
    else {
        return Ok(None);
    };
    let context = training.context();
    record.ood = ood_answers(&context, &trained, &scored, ood, &folder)?;
    if let Some(settings) = kept(shared, task, run)? {
        settings.keep(trained, &folder.join(ADAPTER_DIR))?;
    }
    write_json(&folder.join("record.json"), &record, JsonLayout::Compact)?;
    checkpoints.remove()?;
    let summary = summary(&record, &task.prepared.goal);
    sink.event(&Event::RunFinished { label: run.label(), summary, seconds: record.train_seconds });
    Ok(Some(record))
}

/// What the adapter of a run is described by; `None` where none is kept.
fn kept(shared: &Shared<'_>, task: &ReadyTask, run: &PlannedRun) -> Result<Option<TrainSettings>> {
    let config = shared.config;
    if !shared.keep || !run.method.can().saved {
        return Ok(None);
    }
    let (backbone, goal) = (shared.backbone, task.prepared.goal.clone());
    let architecture = &backbone.architecture;
    let (pairs, columns, wording, questions) = match run.task {
        SuiteTask::Glue(glue) => {
            let wording = run.task.wording(architecture, config)?;
            (glue.spec().keys.len() == 2, None, wording, QuestionForm::default())
        }
        SuiteTask::Reasoning(set) => {
            let Some(form) = QuestionForm::of(set, config.prompt) else { return Ok(None) };
            let wording = architecture.question_wording(form, goal.n_labels(), false);
            (false, Some(TextColumns::usual_questions()), wording, form)
        }
    };
    let (train, validation) = (&task.data.train.files, &task.data.validation.files);
    let is_in_train = |path: &String| train.iter().any(|file| file.path == *path);
    let validation_files = validation.iter().map(|file| file.path.clone());
    let files = train.iter().chain(validation);
    Ok(Some(TrainSettings {
        schema_version: TrainSettings::SCHEMA,
        model: backbone.location.lasting_name(),
        weights: backbone.hashes.clone(),
        base_files: backbone.files.clone(),
        data: files.map(|file| (file.path.clone(), file.sha256.clone())).collect(),
        validation_files: validation_files.filter(|path| !is_in_train(path)).collect(),
        validation_split: None,
        columns,
        wording,
        questions,
        pairs,
        goal,
        method: run.method,
        target_rank: None,
        seed: run.seed,
        device: shared.device_name.to_owned(),
        experiment: config.clone(),
    }))
}

fn label(
    run: &PlannedRun,
    request: RankRequest,
    config: &ValidConfig,
    matches: bool,
) -> RunLabel<'static> {
    let can = run.method.can();
    let (requested, note) = match request {
        RankRequest::Average(rank) if matches => (Some(rank), "matched to BayesLoRA"),
        RankRequest::Average(rank) => (Some(rank), "half the settings' rank"),
        RankRequest::Initial if can.prunes && !can.budget => (None, "learnt"),
        RankRequest::Initial => (None, "the settings' rank"),
    };
    let initial_rank = match request {
        RankRequest::Average(rank) if !can.prunes => rank,
        _ => config.initial_rank,
    };
    let (method, seed) = (run.method, run.seed);
    RunLabel { task: run.task.key(), method, seed, initial_rank, requested, note }
}
