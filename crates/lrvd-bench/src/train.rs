//! Training into a folder: classes, scores, questions with choices, texts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use burn::tensor::Device;
use lrvd_burn::device;
use lrvd_models::deberta::ADAPTER_TARGETS;
use serde::Serialize;

use crate::adapter::{Describe, keep};
use crate::backbone::{Backbone, locate_model};
use crate::data::{Data, Dataset, PreparedTask, QuestionForm, Wording, held_out_rows};
use crate::error::Result;
use crate::io::{JsonLayout, write_json};
use crate::language::{LanguageReader, LanguageTask};
use crate::method::MethodName;
use crate::progress::{Event, ProgressSink};
use crate::record::RunRecord;
use crate::run::{
    ADAPTER_DIR, ClassSettings, OutputFolder, Run, RunLabel, RunPlace, TextSettings, TrainSettings,
    TrainTask, check_seed, summary,
};
use crate::settings::{CheckpointChoice, Config, TargetModules, Training};

const LABELS_FILE: &str = "labels.json";

#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    pub model: String,
    pub method: MethodName,
    /// Average rank that AdaLoRA ends with; half the initial rank if `None`.
    pub target_rank: Option<usize>,
    pub config: Config,
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

/// Trains, evaluates and saves.
///
/// Everything is read and checked before the first byte is written: a start that is rejected leaves
/// nothing behind. The output folder then gets `settings.json`, of classes `labels.json`, `predictions-last.jsonl` and
/// `predictions-best.jsonl` of the validation rows, the folder `adapter` with the PEFT files, the
/// posterior and the description, and last of all `record.json`. Checkpoints are in `checkpoints`
/// until then. What a kill left of a finished run is removed by `resume`.
pub fn train(
    options: &TrainOptions,
    data: Data,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<TrainOutcome> {
    match &data {
        Data::Labelled(data) => options.check_labelled(data)?,
        Data::Texts(_) => options.check_for_texts()?,
    }
    check_seed(options.seed)?;
    options.method.check_target(options.target_rank)?;
    let device = device::open(&options.device)?;
    let backbone = Backbone::open(locate_model(&options.model)?)?;
    let folder = Folder { options, backbone: &backbone, device: &device, stop };
    match data {
        Data::Labelled(mut data) => {
            let settings = options.for_classes(&data, &backbone)?;
            let ClassSettings { goal, wording, .. } = &settings.kind;
            let summary = |record: &RunRecord| summary(record, goal);
            let about = About { name: &goal.name, classes: Some(&goal.classes), summary: &summary };
            let prepare = || {
                let config = &settings.experiment;
                let drawn = data.sample(config.train_rows);
                let cut = data.limit(config.validation_rows);
                let (train, validation) = (&data.train.examples, &data.validation.examples);
                let task = settings.reader(&backbone)?.prepare(goal.clone(), train, validation)?;
                let asked = wording.as_ref().map(Wording::describe);
                let own = data.notes.drain(..).filter(|_| data.kind.task.is_none());
                let notes = own.chain(drawn).chain(cut).chain(asked).chain(task.notes.clone());
                let notes = notes.collect();
                Ok((task, notes))
            };
            folder.train::<PreparedTask>(&settings, &about, prepare, sink)
        }
        Data::Texts(data) => {
            let (name, config) = (data.name.clone(), &options.config);
            let Backbone { location, architecture, tokenizer, .. } = &backbone;
            let reader = LanguageReader::new(location, architecture, tokenizer, config.max_length)?;
            let kind = TextSettings::new(data.validation_split, data.kind.clone());
            let settings = options.settings(kind, data.files(), &backbone, config.clone());
            let about = About { name: &name, classes: None, summary: &summary_of_texts };
            let prepare = || {
                let mut task = LanguageTask::new(data, &reader, config)?;
                let notes = std::mem::take(&mut task.notes);
                Ok((task, notes))
            };
            folder.train::<LanguageTask>(&settings, &about, prepare, sink)
        }
    }
}

/// What a run is called, and what it tells of itself.
struct About<'a> {
    name: &'a str,
    /// Names of the classes; `None` of texts, which have none.
    classes: Option<&'a [String]>,
    /// One line of results for the terminal.
    summary: &'a dyn Fn(&RunRecord) -> String,
}

fn summary_of_texts(record: &RunRecord) -> String {
    let last = record.checkpoints.last.as_ref();
    let nll = last.and_then(|last| last.metrics.get(&0)?.nll);
    let nll = nll.map_or_else(|| "-".to_owned(), |nll| format!("{nll:.4}"));
    format!("nll {nll} a token, rank {:.2}", last.map_or(0.0, |last| last.average_rank))
}

/// The folder of a run, and what trains into it.
struct Folder<'a> {
    options: &'a TrainOptions,
    backbone: &'a Backbone,
    device: &'a Device,
    stop: &'a AtomicBool,
}

impl Folder<'_> {
    /// Trains on the rows that `prepare` returns with notes for a reader of the results, unless the folder holds a finished run.
    fn train<T: TrainTask>(
        &self,
        settings: &TrainSettings<T::Kind>,
        about: &About<'_>,
        prepare: impl FnOnce() -> Result<(T, Vec<String>)>,
        sink: &mut dyn ProgressSink,
    ) -> Result<TrainOutcome>
    where
        TrainSettings<T::Kind>: Describe + Serialize,
    {
        let Self { options, backbone, device, stop } = *self;
        let mut out = OutputFolder::look(&options.out, options.resume)?;
        let (adapter, (value, finished)) = (out.file(ADAPTER_DIR), out.finished(settings)?);
        let &About { name, classes, summary } = about;
        let label = format!("{name} / {} / seed {}", settings.method, settings.seed);
        if let Some(record) = finished {
            // A kill at the end of the run leaves checkpoints, and no last line of its metrics.
            out.clear()?;
            let (summary, seconds) = (summary(&record), record.train_seconds);
            sink.event(&Event::RunFinished { label, summary, seconds });
            return Ok(TrainOutcome { record: Some(record), adapter });
        }
        let (task, notes) = prepare()?;
        for note in notes {
            sink.event(&Event::Note(note));
        }
        let run = Run::new(settings.start(backbone, &task, device), stop, label, (1, 1));
        let begun = run.open(&options.out)?;
        // Whatever can be rejected is rejected by now: nothing was written before.
        out.begin(&value)?;
        if let Some(classes) = classes {
            write_json(&out.file(LABELS_FILE), &classes, JsonLayout::Pretty)?;
        }
        let asked = (settings.method, settings.request());
        let place = RunPlace {
            out: &options.out,
            folder: &options.out,
            label: RunLabel::own(name, asked, settings.seed, &settings.experiment),
            layout: JsonLayout::Pretty,
            summary,
        };
        let record = run.complete(begun, &place, sink, |trained, finished, _| {
            keep::<T>(settings, trained, &finished.temperatures, &adapter).map(Some)
        })?;
        Ok(TrainOutcome { record, adapter })
    }
}

impl TrainOptions {
    fn check_labelled(&self, data: &Dataset) -> Result<()> {
        let (can, config, all) = (self.method.can(), &self.config, data.train.rows());
        if !can.saved {
            bail!("the method's outcome is more than an adapter: use `lrvd bench`");
        }
        if can.post_hoc && config.checkpoint == CheckpointChoice::Best {
            bail!("a temperature is fitted to the last model: pass `--set checkpoint=last`");
        }
        let rows = config.train_rows.map_or(all, |most| most.min(all));
        let share = config.drawn_share(true, all);
        let is_fitted = self.method.is_tempered() && !data.kind.goal.is_regression();
        if is_fitted && held_out_rows(rows, share) == 0 {
            bail!(
                "a share of {share} of {rows} training rows is held out for the temperature, which is not one row: \
                 pass more rows, a larger share (`--set holdout=0.5`), or a method without a temperature (`--method \
                 lora`)"
            );
        }
        Ok(())
    }

    fn check_for_texts(&self) -> Result<()> {
        if !self.method.is_for_language() {
            bail!(
                "a language model is trained on texts by lora, adalora, bayeslora or a variant of it; a \
                 temperature (`+ts`) and what answers classes alone are for classifiers"
            );
        }
        self.config.check_use(Training::Language)
    }

    fn for_classes(
        &self,
        data: &Dataset,
        backbone: &Backbone,
    ) -> Result<TrainSettings<ClassSettings>> {
        let architecture = &backbone.architecture;
        // The presets name the layers of an encoder.
        let mut experiment = self.config.clone();
        if experiment.target_modules == TargetModules::names(ADAPTER_TARGETS) {
            experiment.target_modules = architecture.target_modules(&experiment.target_modules);
        }
        experiment.holdout = experiment.drawn_share(self.method.can().post_hoc, data.train.rows());
        let kind = ClassSettings {
            validation_files: data.validation_files(),
            validation_split: data.validation_split,
            columns: data.kind.columns.clone(),
            wording: architecture.wording_of(data, &self.config.wording)?,
            questions: QuestionForm::default(),
            pairs: data.pairs(),
            goal: data.kind.goal.clone(),
        };
        Ok(self.settings(kind, data.files(), backbone, experiment))
    }

    fn settings<K>(
        &self,
        kind: K,
        data: BTreeMap<String, String>,
        backbone: &Backbone,
        experiment: Config,
    ) -> TrainSettings<K> {
        TrainSettings {
            schema_version: TrainSettings::<K>::SCHEMA,
            model: backbone.location.lasting_name(),
            weights: backbone.hashes.clone(),
            base_files: backbone.files.clone(),
            data,
            kind,
            method: self.method,
            target_rank: self.target_rank,
            seed: self.seed,
            device: self.device.clone(),
            experiment,
        }
    }
}
