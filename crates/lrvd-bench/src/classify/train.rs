//! Training of a classifier into a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use burn::tensor::Device;
use lrvd_burn::device;
use lrvd_burn::peft::ExportLayout;
use lrvd_burn::train::Checkpoints;
use lrvd_models::deberta::ADAPTER_TARGETS;
use serde::{Deserialize, Serialize};

use super::info::{ClassifierInfo, take};
use crate::backbone::{Backbone, locate_model};
use crate::data::{
    Dataset, Labelled, PreparedTask, QuestionForm, TextColumns, TextReader, Wording, held_out_rows,
};
use crate::error::Result;
use crate::io::{JsonLayout, write_json};
use crate::progress::{Event, ProgressSink};
use crate::record::RunRecord;
use crate::run::{
    ADAPTER_DIR, CHECKPOINT_DIR, Finished, OutputFolder, RECORD_FILE, Run, RunLabel, RunStart,
    RunState, check_seed, reported, summary,
};
use crate::saved::FileHashes;
use crate::settings::{CheckpointChoice, MethodName, RankRequest, ValidConfig};
use crate::task::Goal;

const LABELS_FILE: &str = "labels.json";

#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    pub model: String,
    pub method: MethodName,
    /// Average rank that AdaLoRA ends with; half the initial rank if `None`.
    pub target_rank: Option<usize>,
    pub config: ValidConfig,
    pub seed: u64,
    pub device: String,
    pub out: PathBuf,
    pub resume: bool,
}

#[derive(Clone, Debug)]
pub struct TrainOutcome {
    /// The record; `None` if a stop request ended the run after a checkpoint.
    pub record: Option<RunRecord>,
    pub adapter: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    pub schema_version: u32,
    pub model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of its configuration and tokenizer; empty in folders of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub base_files: BTreeMap<String, String>,
    /// SHA-256 of the data files.
    pub data: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub validation_files: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_split: Option<f64>,
    pub columns: Option<TextColumns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wording: Option<Wording>,
    #[serde(default, skip_serializing_if = "QuestionForm::is_usual")]
    pub questions: QuestionForm,
    pub pairs: bool,
    pub goal: Goal,
    pub method: MethodName,
    pub target_rank: Option<usize>,
    pub seed: u64,
    pub device: String,
    pub experiment: ValidConfig,
}

impl TrainSettings {
    pub(crate) const SCHEMA: u32 = 1;

    fn request(&self) -> RankRequest {
        RankRequest::own(self.method, self.experiment.initial_rank, self.target_rank)
    }

    pub(super) fn start<'a>(
        &'a self,
        backbone: &'a Backbone,
        task: &'a PreparedTask,
        device: &'a Device,
    ) -> RunStart<'a> {
        RunStart {
            config: &self.experiment,
            backbone,
            task,
            method: self.method,
            request: self.request(),
            seed: self.seed,
            device,
        }
    }

    pub(super) fn reader<'a>(&'a self, backbone: &'a Backbone) -> Result<TextReader<'a>> {
        let (tokenizer, wording) = (&backbone.tokenizer, self.wording.as_ref());
        let has_choices = self.columns.as_ref().is_some_and(TextColumns::has_choices);
        let questions = has_choices.then_some(self.questions);
        let length = self.experiment.max_length;
        backbone.architecture.reader(tokenizer, &self.goal, questions, wording, length)
    }

    /// The description of a model of this run after `step` steps, of which it is the `checkpoint`.
    pub(super) fn info(&self, step: usize, checkpoint: CheckpointChoice) -> ClassifierInfo {
        let config = &self.experiment;
        let can = self.method.can();
        let is_measured = |name: &String| self.validation_files.contains(name);
        let is_seen = |name: &String| checkpoint == CheckpointChoice::Best || !is_measured(name);
        let seen = self.data.iter().filter(|(name, _)| is_seen(name));
        ClassifierInfo {
            schema_version: ClassifierInfo::SCHEMA,
            base_model: self.model.clone(),
            weights: self.weights.clone(),
            hashes: Some(FileHashes { base: self.base_files.clone(), ..FileHashes::default() }),
            seen: seen.map(|(_, sha256)| sha256.clone()).collect(),
            goal: self.goal.clone(),
            columns: self.columns.clone(),
            wording: self.wording.clone(),
            questions: self.questions,
            base_precision: config.base_precision,
            pairs: Some(self.pairs),
            max_length: config.max_length,
            batch_size: config.evaluation_batch_size,
            method: self.method.name(),
            seed: self.seed,
            initial_rank: Some(config.initial_rank),
            // Filled in when a model is taken.
            ranks: BTreeMap::new(),
            checkpoint,
            step,
            log_alpha_threshold: can.posterior.then_some(config.prune.log_alpha_threshold),
            fan_in_correction: config.prune.fan_in_correction,
            draws: config.draws.iter().copied().max().filter(|_| can.draws).unwrap_or(0),
            prediction_draws: config.prediction_draws,
            temperatures: BTreeMap::new(),
            abstentions: BTreeMap::new(),
        }
    }

    pub(crate) fn keep(&self, trained: RunState, adapter: &Path) -> Result<()> {
        let kl_weight = trained.kl_weight();
        let temperatures = trained.method.temperatures();
        let (model, which, step) = reported(trained.state, self.experiment.checkpoint);
        let info = ClassifierInfo { temperatures, ..self.info(step, which) };
        take(&model, &self.experiment, kl_weight, info)?.write(adapter, ExportLayout::Ragged)?;
        Ok(())
    }
}

/// Trains, evaluates and saves a classifier of `data`.
///
/// Everything is read and checked before the first byte is written: a start that is rejected leaves
/// nothing behind. The output folder then gets `settings.json`, `labels.json`, `predictions-last.jsonl` and
/// `predictions-best.jsonl` of the validation file, the folder `adapter` with the PEFT files, the
/// posterior and the description, and last of all `record.json`. Checkpoints are in `checkpoints`
/// until then. What a kill left of a finished run is removed by `resume`.
pub fn train_classifier(
    options: &TrainOptions,
    mut data: Dataset,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<TrainOutcome> {
    check(options)?;
    let can = options.method.can();
    let device = device::open(&options.device)?;
    check_held_out(options, &data)?;
    let backbone = Backbone::open(locate_model(&options.model)?)?;
    let (pairs, architecture) = (data.pairs(), &backbone.architecture);
    let wording = architecture.wording_of(&data, &options.config.wording)?;
    // The presets name the layers of an encoder.
    let experiment = options.config.with(|config| {
        if config.target_modules == ADAPTER_TARGETS {
            config.target_modules = architecture.target_modules(&config.target_modules);
        }
        config.holdout = config.drawn_share(can.post_hoc, data.train.rows());
    })?;
    let Labelled { goal, columns, .. } = data.kind.clone();
    let settings = TrainSettings {
        schema_version: TrainSettings::SCHEMA,
        model: backbone.location.lasting_name(),
        weights: backbone.hashes.clone(),
        base_files: backbone.files.clone(),
        data: data.files(),
        validation_files: data.validation_files(),
        validation_split: data.validation_split,
        columns,
        wording,
        questions: QuestionForm::default(),
        pairs,
        goal,
        method: options.method,
        target_rank: options.target_rank,
        seed: options.seed,
        device: options.device.clone(),
        experiment,
    };
    let mut out = OutputFolder::look(&options.out, options.resume)?;
    let (adapter, (value, finished)) = (out.file(ADAPTER_DIR), out.finished(&settings)?);
    let label = format!("{} / {} / seed {}", settings.goal.name, options.method, options.seed);
    if let Some(record) = finished {
        // A kill at the end of the run leaves checkpoints, and no last line of its metrics.
        out.clear()?;
        let (summary, seconds) = (summary(&record, &settings.goal), record.train_seconds);
        sink.event(&Event::RunFinished { label, summary, seconds });
        return Ok(TrainOutcome { record: Some(record), adapter });
    }

    let reader = settings.reader(&backbone)?;
    let goal = settings.goal.clone();
    let drawn = data.sample(settings.experiment.train_rows);
    let cut = data.limit(settings.experiment.validation_rows);
    let task = reader.prepare(goal, &data.train.examples, &data.validation.examples)?;
    let asked = settings.wording.as_ref().map(Wording::describe);
    let own = data.notes.drain(..).filter(|_| data.kind.task.is_none());
    own.chain(drawn)
        .chain(cut)
        .chain(asked)
        .chain(task.notes.clone())
        .for_each(|note| sink.event(&Event::Note(note)));
    let run = Run::new(settings.start(&backbone, &task, &device), stop, label.clone(), (1, 1))?;
    let folder = out.file(CHECKPOINT_DIR);
    let start = run.open(&folder)?;
    // Whatever can be rejected is rejected by now: nothing was written before.
    out.begin(&value)?;
    write_json(&out.file(LABELS_FILE), &settings.goal.classes, JsonLayout::Pretty)?;
    let checkpoints = Checkpoints::open(&folder)?;
    let Some(mut trained) = run.train(start, &checkpoints, sink)? else {
        return Ok(TrainOutcome { record: None, adapter });
    };
    let (asked, config) = ((options.method, settings.request()), &settings.experiment);
    let run_label = RunLabel::own(&task.goal.name, asked, options.seed, config);
    out.still_there()?;
    let Some(Finished { record, .. }) = run.record(&mut trained, &run_label, &options.out, sink)?
    else {
        return Ok(TrainOutcome { record: None, adapter });
    };
    settings.keep(trained, &adapter)?;
    write_json(&out.file(RECORD_FILE), &record, JsonLayout::Pretty)?;
    out.still_there()?;
    checkpoints.remove()?;
    let summary = summary(&record, &task.goal);
    sink.event(&Event::RunFinished { label, summary, seconds: record.train_seconds });
    Ok(TrainOutcome { record: Some(record), adapter })
}

/// Checks that a row is held out where a temperature is fitted to such rows.
fn check_held_out(options: &TrainOptions, data: &Dataset) -> Result<()> {
    let (config, all) = (&options.config, data.train.rows());
    let rows = config.train_rows.map_or(all, |most| most.min(all));
    let share = config.drawn_share(true, all);
    if options.method.is_tempered()
        && !data.kind.goal.is_regression()
        && held_out_rows(rows, share) == 0
    {
        bail!(
            "a share of {share} of {rows} training rows is held out for the temperature, which is not one row: \
             pass more rows, a larger share (`--set holdout=0.5`), or a method without a temperature (`--method \
             lora`)"
        );
    }
    Ok(())
}

fn check(options: &TrainOptions) -> Result<()> {
    let can = options.method.can();
    if !can.saved {
        bail!("the method's outcome is more than an adapter: use `lrvd bench`");
    }
    check_seed(options.seed)?;
    if can.post_hoc && options.config.checkpoint == CheckpointChoice::Best {
        bail!("a temperature is fitted to the last model: pass `--set checkpoint=last`");
    }
    options.method.check_target(options.target_rank)
}
