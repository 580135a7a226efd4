//! The settings that determine the numbers of a run, as `settings.json` has them and `--resume` compares them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::tensor::Device;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SETTINGS_FILE;
use super::task::{RunStart, TrainTask};
use crate::backbone::Backbone;
use crate::data::{LanguageColumns, QuestionForm, TextColumns, TextReader, Wording};
use crate::error::Result;
use crate::io::{read_json, read_versioned};
use crate::method::{MethodName, RankRequest};
use crate::settings::{Config, Training};
use crate::task::Goal;

/// The version that is written, and the only one that is read.
const SCHEMA: u32 = 1;

/// Settings of a run on rows of the kind `K`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainSettings<K> {
    pub schema_version: u32,
    pub model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of its configuration and tokenizer; empty in folders of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub base_files: BTreeMap<String, String>,
    /// SHA-256 of the data files.
    pub data: BTreeMap<String, String>,
    #[serde(flatten)]
    pub kind: K,
    pub method: MethodName,
    pub target_rank: Option<usize>,
    pub seed: u64,
    pub device: String,
    #[serde(deserialize_with = "Config::deserialize_checked")]
    pub experiment: Config,
}

/// Of a run on classes or scores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassSettings {
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
}

/// Of a run on texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextSettings {
    /// Always `language`: other runs have no such entry.
    pub task: String,
    pub validation_split: Option<f64>,
    pub columns: LanguageColumns,
}

impl<K: DeserializeOwned> TrainSettings<K> {
    /// The settings of the run in `out`.
    pub(crate) fn read(out: &Path) -> Result<Self> {
        read_versioned(&out.join(SETTINGS_FILE), SCHEMA)
    }
}

impl<K> TrainSettings<K> {
    pub(crate) const SCHEMA: u32 = SCHEMA;

    pub(crate) fn request(&self) -> RankRequest {
        self.method.request(self.experiment.initial_rank, self.target_rank)
    }

    pub(crate) fn start<'a, T: TrainTask>(
        &'a self,
        backbone: &'a Backbone,
        task: &'a T,
        device: &'a Device,
    ) -> RunStart<'a, T> {
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
}

impl TrainSettings<ClassSettings> {
    pub(crate) fn reader<'a>(&'a self, backbone: &'a Backbone) -> Result<TextReader<'a>> {
        let ClassSettings { goal, columns, questions, wording, .. } = &self.kind;
        let (tokenizer, wording) = (&backbone.tokenizer, wording.as_ref());
        let has_choices = columns.as_ref().is_some_and(TextColumns::has_choices);
        let questions = has_choices.then_some(*questions);
        let length = self.experiment.max_length;
        backbone.architecture.reader(tokenizer, goal, questions, wording, length)
    }
}

impl TextSettings {
    pub(crate) fn new(validation_split: Option<f64>, columns: LanguageColumns) -> Self {
        Self { task: Training::Language.name().to_owned(), validation_split, columns }
    }
}

/// Whether `out` is the folder of a run on texts.
pub(crate) fn is_run_on_texts(out: &Path) -> Result<bool> {
    let file = out.join(SETTINGS_FILE);
    let task = |value: serde_json::Value| value["task"] == Training::Language.name();
    Ok(file.is_file() && read_json(&file).map(task)?)
}
