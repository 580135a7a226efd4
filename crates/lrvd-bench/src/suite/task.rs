//! A task of either suite: from files to token ids, with what a record says of its data.

use std::path::Path;

use super::kind::Profile;
use crate::backbone::{Architecture, Backbone};
use crate::data::{self, Dataset, Origin, PreparedTask, SourceFile, Wording, limit, sample};
use crate::error::Result;
use crate::reasoning::{
    self, AnswerToken, EncodeConfig, LLAMA_2_LABELS, QuestionForm, ReasoningData, ReasoningSet,
    ReasoningTask, check_known, require_single,
};
use crate::record::{DataFile, DataOrigin, SplitRecord, TaskData};
use crate::settings::{LastBatch, ValidConfig};
use crate::task::{GlueTask, Goal};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuiteTask {
    Glue(GlueTask),
    Reasoning(ReasoningSet),
}

pub(super) struct ReadyTask {
    pub task: SuiteTask,
    pub prepared: PreparedTask,
    pub data: TaskData,
    /// The items behind a reasoning set, to be shown to models of another.
    pub items: Option<(ReasoningTask, ReasoningData)>,
}

impl SuiteTask {
    pub fn key(self) -> &'static str {
        match self {
            Self::Glue(task) => task.spec().name,
            Self::Reasoning(set) => set.name(),
        }
    }

    pub fn display_name(self) -> &'static str {
        match self {
            Self::Glue(task) => task.spec().display_name,
            Self::Reasoning(set) => set.display_name(),
        }
    }

    /// How a model of this kind is asked for the classes of a GLUE task; reasoning sets have their prompts.
    pub(super) fn wording(
        self,
        architecture: &Architecture,
        config: &ValidConfig,
    ) -> Result<Option<Wording>> {
        let Self::Glue(task) = self else { return Ok(None) };
        let pairs = task.spec().keys.len() == 2;
        architecture.wording(&config.wording, &Goal::of_task(task), Some(task), pairs)
    }

    /// Whether its input is one of a saved classifier: a text, a pair, or a question with choices.
    pub(super) fn is_kept(self, config: &ValidConfig) -> bool {
        match self {
            Self::Glue(_) => true,
            Self::Reasoning(set) => QuestionForm::of(set, config.prompt).is_some(),
        }
    }

    pub(super) fn prepare(
        self,
        data_dir: &Path,
        backbone: &Backbone,
        config: &ValidConfig,
        profile: Profile,
    ) -> Result<ReadyTask> {
        match self {
            Self::Glue(task) => {
                let wording = self.wording(&backbone.architecture, config)?;
                let reader = backbone.reader(self.key(), wording.as_ref(), config.max_length)?;
                let mut dataset = data::load(data_dir, task)?;
                let cut = limit(&mut dataset.validation.examples, config.validation_rows);
                let drawn = sample(&mut dataset.train.examples, config.train_rows);
                let (train, validation) = (&dataset.train.examples, &dataset.validation.examples);
                let prepared = reader.prepare(Goal::of_task(task), train, validation)?;
                let mut data = glue_data(&dataset, drawn, cut);
                let asked = wording.as_ref().map(Wording::describe);
                let before = Some(data.note).filter(|note| !note.is_empty());
                let notes = before.into_iter().chain(asked).chain(prepared.notes.clone());
                data.note = notes.collect::<Vec<_>>().join("; ");
                Ok(ReadyTask { task: self, prepared, data, items: None })
            }
            Self::Reasoning(set) => {
                let mut data = reasoning::load_first(data_dir, set, config.validation_rows)?;
                if let Some(note) = sample(&mut data.train.examples, config.train_rows) {
                    if data.train.origin == Origin::Official {
                        data.train.origin = Origin::Subset;
                    }
                    data.notes.push(note);
                }
                // The protocol drops it from both splits.
                let dropped = match config.last_batch {
                    LastBatch::Keep => 0,
                    LastBatch::Drop => data.validation.rows() % config.batch_size,
                };
                let whole = data.validation.rows() - dropped;
                data.notes.extend(limit(&mut data.validation.examples, Some(whole)));
                let (form, max_length) = (backbone.architecture.input_form(), config.max_length);
                backbone.architecture.check_length(max_length)?;
                let encode = EncodeConfig { prompt: config.prompt, form, max_length };
                let task = ReasoningTask::new(&data, &backbone.tokenizer, encode)?;
                check_labels(&task.answers, backbone, profile)?;
                Ok(ReadyTask {
                    task: self,
                    prepared: task.prepared(),
                    data: reasoning_data(&data, &task),
                    items: Some((task, data)),
                })
            }
        }
    }
}

/// Rejects what would make a run incomparable with published ones: under the paper's profile a label
/// of several tokens, and of a model that is called Llama-2 any token but Llama-2's.
fn check_labels(answers: &[AnswerToken], backbone: &Backbone, profile: Profile) -> Result<()> {
    if profile == Profile::Paper {
        require_single(&backbone.tokenizer, answers)?;
    }
    if backbone.location.name.to_lowercase().contains("llama-2") {
        check_known(&backbone.tokenizer, answers, &LLAMA_2_LABELS)?;
    }
    Ok(())
}

fn split_record(files: &[SourceFile], rows: usize, origin: Origin, cut: bool) -> SplitRecord {
    SplitRecord {
        files: files
            .iter()
            .map(|f| DataFile { path: f.path.display().to_string(), sha256: f.sha256.clone() })
            .collect(),
        rows: rows as u64,
        origin: match origin {
            Origin::Official if cut => DataOrigin::Subset,
            Origin::Official => DataOrigin::Official,
            Origin::LocalSplit => DataOrigin::LocalDev,
            Origin::Generated => DataOrigin::Generated,
            Origin::Subset | Origin::Unverified => DataOrigin::Subset,
        },
    }
}

fn glue_data(dataset: &Dataset, drawn: Option<String>, cut: Option<String>) -> TaskData {
    let (train, validation) = (&dataset.train, &dataset.validation);
    let (is_drawn, is_cut) = (drawn.is_some(), cut.is_some());
    let standard = dataset.task.spec().standard_metrics.first().map_or("", |m| m.name());
    let notes: Vec<String> = dataset.notes.iter().cloned().chain(drawn).chain(cut).collect();
    TaskData {
        train: split_record(&train.files, train.rows(), train.origin, is_drawn),
        validation: split_record(&validation.files, validation.rows(), validation.origin, is_cut),
        standard_metric: standard.to_owned(),
        note: notes.join("; "),
    }
}

fn reasoning_data(data: &ReasoningData, task: &ReasoningTask) -> TaskData {
    let (train, validation) = (&data.train, &data.validation);
    TaskData {
        train: split_record(&train.files, train.rows(), train.origin, false),
        validation: split_record(&validation.files, validation.rows(), validation.origin, false),
        standard_metric: "accuracy".to_owned(),
        note: task.notes.join("; "),
    }
}
