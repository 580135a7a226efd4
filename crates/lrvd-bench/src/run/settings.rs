//! The settings that determine the numbers of a run, as `settings.json` has them and `--resume` compares them.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use lrvd_burn::files::is_file;
use serde::{Deserialize, Serialize};

use super::folder::SETTINGS_FILE;
use super::start::RunStart;
use crate::backbone::Backbone;
use crate::data::{
    LanguageColumns, PreparedTask, Question, QuestionForm, SplitFiles, TextColumns, TextReader,
    Wording,
};
use crate::error::Result;
use crate::io::{read_json, read_versioned};
use crate::method::{MethodName, RankRequest};
use crate::settings::{Config, Training};
use crate::task::Goal;

/// The version that is written, and the only one that is read.
const SCHEMA: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainSettings<R = RowSettings> {
    pub schema_version: u32,
    pub model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of its configuration and tokenizer; empty in folders of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub base_files: BTreeMap<String, String>,
    /// SHA-256 of every file, by split and path.
    pub data: SplitFiles,
    #[serde(flatten)]
    pub rows: R,
    pub method: MethodName,
    pub target_rank: Option<usize>,
    pub seed: u64,
    pub device: String,
    #[serde(deserialize_with = "Config::deserialize_checked")]
    pub experiment: Config,
}

#[expect(clippy::large_enum_variant, reason = "a run has one of them")]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum RowSettings {
    Classes(ClassSettings),
    Texts(TextSettings),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_split: Option<f64>,
    pub columns: Option<TextColumns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wording: Option<Wording>,
    /// How questions with options are asked, where rows are such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questions: Option<QuestionForm>,
    /// The typed question that all rows have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    pub pairs: bool,
    pub goal: Goal,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextSettings {
    /// Always `language`: other runs have no such entry.
    pub task: String,
    pub validation_split: Option<f64>,
    pub columns: LanguageColumns,
}

impl TrainSettings {
    /// Of a run with `method` and its target rank, on `rows` of the files `data`.
    pub(crate) fn new(
        backbone: &Backbone,
        (rows, data): (RowSettings, SplitFiles),
        (method, target_rank): (MethodName, Option<usize>),
        seed: u64,
        device: &str,
        experiment: Config,
    ) -> Self {
        Self {
            schema_version: SCHEMA,
            model: backbone.location.lasting_name(),
            weights: backbone.hashes.clone(),
            base_files: backbone.files.clone(),
            data,
            rows,
            method,
            target_rank,
            seed,
            device: device.to_owned(),
            experiment,
        }
    }

    pub(crate) fn read(out: &Path) -> Result<Self> {
        let file = out.join(SETTINGS_FILE);
        Ok(if is_run_on_texts(out)? {
            read_versioned::<TrainSettings<_>>(&file, SCHEMA)?.with(RowSettings::Texts)
        } else {
            read_versioned::<TrainSettings<_>>(&file, SCHEMA)?.with(RowSettings::Classes)
        })
    }

    pub(crate) fn request(&self) -> RankRequest {
        self.method.request(self.experiment.initial_rank, self.target_rank)
    }

    pub(crate) fn start<'a>(
        &'a self,
        backbone: &'a Backbone,
        task: &'a PreparedTask,
        device: &'a Device,
    ) -> RunStart<'a> {
        let (request, &Self { method, seed, experiment: ref config, .. }) = (self.request(), self);
        RunStart { config, backbone, task, method, request, seed, device }
    }

    /// A task without rows, for a run that is not continued.
    pub(crate) fn without_rows(&self, backbone: &Backbone) -> Result<PreparedTask> {
        match &self.rows {
            RowSettings::Classes(own) => {
                let length = self.experiment.max_length;
                own.reader(backbone, length)?.prepare(own.goal.clone(), &[], &[])
            }
            RowSettings::Texts(own) => Ok(PreparedTask::without_examples(Goal::texts(&own.task))),
        }
    }
}

impl<R> TrainSettings<R> {
    fn with(self, rows: impl FnOnce(R) -> RowSettings) -> TrainSettings {
        TrainSettings {
            schema_version: self.schema_version,
            model: self.model,
            weights: self.weights,
            base_files: self.base_files,
            data: self.data,
            rows: rows(self.rows),
            method: self.method,
            target_rank: self.target_rank,
            seed: self.seed,
            device: self.device,
            experiment: self.experiment,
        }
    }
}

impl ClassSettings {
    pub(crate) fn reader<'a>(
        &'a self,
        backbone: &'a Backbone,
        max_length: usize,
    ) -> Result<TextReader<'a>> {
        let Self { goal, questions, wording, .. } = self;
        let (tokenizer, wording) = (&backbone.tokenizer, wording.as_ref());
        backbone.architecture.reader(tokenizer, goal, *questions, wording, max_length)
    }
}

pub(crate) fn is_run_on_texts(out: &Path) -> Result<bool> {
    let file = out.join(SETTINGS_FILE);
    let task = |value: serde_json::Value| value["task"] == Training::Language.name();
    Ok(is_file(&file)? && read_json(&file).map(task)?)
}
