//! Training into a folder: classes, scores, questions with choices, texts.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use lrvd_burn::device;
use lrvd_models::deberta::{ADAPTER_TARGETS, Pooling};

use crate::adapter::keep;
use crate::backbone::{Backbone, locate_model};
use crate::data::{Data, Dataset, PreparedTask, QuestionForm, Wording, held_out_rows};
use crate::error::Result;
use crate::io::{JsonLayout, write_json};
use crate::language;
use crate::method::{MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::record::{RankBudget, RunRecord};
use crate::run::{self, RowSettings, TrainSettings, summary};
use crate::settings::{CheckpointChoice, Config, TargetModules, Training};
use crate::task::Goal;

const LABELS_FILE: &str = "labels.json";

#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    pub model: String,
    pub method: MethodName,
    /// Average rank that AdaLoRA ends with; half the initial rank if `None`.
    pub target_rank: Option<usize>,
    pub config: Config,
    /// Whether typed questions have the length that is usual for them, in place of `config.max_length`.
    pub usual_length: bool,
    /// Whether the head of an encoder reads what the model's folder says, in place of `config.pooling`.
    pub usual_pooling: bool,
    pub seed: u64,
    pub device: String,
    pub out: PathBuf,
    pub resume: bool,
    /// Whether it is an error that something is read and not used ([`Unused`](crate::Unused)).
    pub strict: bool,
}

#[derive(Clone, Debug)]
pub struct TrainOutcome {
    /// The record; `None` if a stop request ended the run after a checkpoint.
    pub record: Option<RunRecord>,
    pub adapter: PathBuf,
}

/// Trains, evaluates and saves.
/// Everything is read and checked before the first byte is written. The output folder then gets `settings.json`, of classes
/// `labels.json`, `predictions-last.jsonl` and `predictions-best.jsonl` of the validation rows, the folder `adapter`, and last of
/// all `record.json`. Checkpoints are in `checkpoints` until then. What a kill left of a finished run is removed by `resume`.
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
    run::check_seed(options.seed)?;
    if options.target_rank.is_some() && !options.method.can().budget {
        bail!("a target rank is for the method `adalora` only");
    }
    let device = device::open(&options.device)?;
    let backbone = Backbone::open(locate_model(&options.model)?)?;
    let data = match data {
        Data::Labelled(data) => Data::Labelled(data.suited(backbone.architecture.input_form())?),
        texts @ Data::Texts(_) => texts,
    };
    let settings = options.settings(&data, &backbone)?;
    let goal = match &data {
        Data::Labelled(data) => data.kind.goal.clone(),
        Data::Texts(data) => Goal::texts(&data.name),
    };
    let mut out = run::OutputFolder::look(&options.out, options.resume)?;
    let (adapter, (value, finished)) = (out.file(run::ADAPTER_DIR), out.finished(&settings)?);
    let label = format!("{} / {} / seed {}", goal.name, settings.method, settings.seed);
    if let Some(record) = finished {
        // A kill at the end of the run leaves checkpoints, and no last line of its metrics.
        run::clear(&options.out)?;
        let (summary, seconds) = (summary(&record, &goal), record.train_seconds);
        sink.event(&Event::RunFinished { label, summary, seconds });
        return Ok(TrainOutcome { record: Some(record), adapter });
    }
    if options.usual_pooling && settings.experiment.pooling == Pooling::Mean {
        sink.event(&Event::Note(format!(
            "the head reads the mean over all tokens, as `{}` of the model says; `--set pooling=first` reads the \
             first token",
            Pooling::FILE
        )));
    }
    let task = prepare(data, &settings, &backbone)?;
    task.notes.iter().for_each(|note| sink.event(&Event::Note(note.clone())));
    let run = run::Run::new(settings.start(&backbone, &task, &device), stop, label, (1, 1));
    let begun = run.open(&options.out)?;
    // Whatever can be rejected is rejected by now: nothing was written before.
    out.begin(&value)?;
    if !goal.is_texts() {
        write_json(&out.file(LABELS_FILE), &goal.classes, JsonLayout::Pretty)?;
    }
    let (requested, note) = match settings.request() {
        RankRequest::Average(rank) => (Some(rank), "asked for"),
        RankRequest::Initial if settings.method.can().prunes => (None, "learnt"),
        RankRequest::Initial => (None, "fixed"),
    };
    let budget = RankBudget::new(settings.experiment.initial_rank, requested, note);
    let (out, layout) = (options.out.as_path(), JsonLayout::Pretty);
    let place = run::RunPlace { out, folder: out, budget, layout };
    let record = run.complete(begun, &place, sink, |trained, finished, _| {
        keep(&settings, trained, &finished.temperatures, &adapter).map(Some)
    })?;
    Ok(TrainOutcome { record, adapter })
}

/// The rows of `data` as the model reads them, with notes for a reader of the results.
fn prepare(data: Data, settings: &TrainSettings, backbone: &Backbone) -> Result<PreparedTask> {
    let config = &settings.experiment;
    match (data, &settings.rows) {
        (Data::Labelled(mut data), RowSettings::Classes(own)) => {
            let drawn = data.sample(config.train_rows);
            let cut = data.limit(config.validation_rows);
            data.permute_options(settings.seed);
            let (train, validation) = (&data.train.examples, &data.validation.examples);
            let reader = own.reader(backbone, config.max_length)?;
            let mut task = reader.prepare(own.goal.clone(), train, validation)?;
            // Of typed questions each has its own.
            let asked = own.wording.as_ref().filter(|_| !data.kind.is_decision());
            let asked = asked.map(Wording::describe);
            let notes = data.notes.into_iter().filter(|_| data.kind.task.is_none());
            task.notes = notes.chain(drawn).chain(cut).chain(asked).chain(task.notes).collect();
            Ok(task)
        }
        (Data::Texts(data), RowSettings::Texts(_)) => language::prepare(data, backbone, config),
        _ => bail!("the settings are for rows of another kind than the data has"),
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

    fn settings(&self, data: &Data, backbone: &Backbone) -> Result<TrainSettings> {
        let (architecture, mut experiment) = (&backbone.architecture, self.config.clone());
        let (rows, files) = match data {
            Data::Labelled(data) => {
                if self.usual_pooling {
                    experiment.pooling = architecture.pooling();
                }
                if self.usual_length && data.kind.is_decision() {
                    experiment.max_length = architecture.question_length();
                }
                // The presets name the layers of an encoder.
                if experiment.target_modules == TargetModules::names(ADAPTER_TARGETS) {
                    experiment.target_modules =
                        architecture.target_modules(&experiment.target_modules);
                }
                let (post_hoc, rows) = (self.method.can().post_hoc, data.train.rows());
                experiment.holdout = experiment.drawn_share(post_hoc, rows);
                let rows = run::ClassSettings {
                    validation_files: data.validation_files(),
                    validation_split: data.validation_split,
                    columns: data.kind.columns.clone(),
                    wording: architecture.wording_of(data, &self.config.wording)?,
                    questions: QuestionForm::default(),
                    question: data.kind.question.clone(),
                    pairs: data.pairs(),
                    goal: data.kind.goal.clone(),
                };
                (RowSettings::Classes(rows), data.files())
            }
            Data::Texts(data) => {
                backbone.decoder_for("language modelling")?;
                let (task, columns) = (Training::Language.name().to_owned(), data.kind.clone());
                let validation_split = data.validation_split;
                let rows = run::TextSettings { task, validation_split, columns };
                (RowSettings::Texts(rows), data.files())
            }
        };
        let (rows, method) = ((rows, files), (self.method, self.target_rank));
        Ok(TrainSettings::new(backbone, rows, method, self.seed, &self.device, experiment))
    }
}
