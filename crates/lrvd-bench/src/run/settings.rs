//! The settings that determine the numbers of a run, as `settings.json` has them and `--resume` compares them.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use lrvd_burn::files::is_file;
use serde::{Deserialize, Serialize};

use super::folder::SETTINGS_FILE;
use super::start::RunStart;
use crate::answers::AnswerSpace;
use crate::backbone::Backbone;
use crate::data::{Columns, InputLayout, PreparedTask, SplitFiles, TextReader};
use crate::error::Result;
use crate::io::{read_json, read_versioned};
use crate::method::{MethodName, RankRequest};
use crate::settings::Config;
use crate::task::Goal;

/// The version that is written, and the only one that is read.
const SCHEMA: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainSettings {
    pub schema_version: u32,
    pub model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of its configuration and tokenizer, by file name.
    pub base_files: BTreeMap<String, String>,
    /// SHA-256 of every file, by split and path.
    pub data: SplitFiles,
    #[serde(flatten)]
    pub rows: RowSettings,
    pub method: MethodName,
    pub target_rank: Option<usize>,
    pub seed: u64,
    pub device: String,
    #[serde(deserialize_with = "Config::deserialize_checked")]
    pub experiment: Config,
}

/// Rows of a run, and what a model answers to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_split: Option<f64>,
    /// Columns of a user's own files.
    pub columns: Option<Columns>,
    pub layout: InputLayout,
    /// `true` if pairs of texts are read, or questions about a passage.
    pub pairs: bool,
    pub goal: Goal,
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
        read_versioned(&out.join(SETTINGS_FILE), SCHEMA)
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
        let goal = self.rows.goal.clone();
        if goal.answers == AnswerSpace::Tokens {
            return Ok(PreparedTask::without_examples(goal));
        }
        self.rows.reader(backbone, self.experiment.max_length)?.prepare(goal, &[], &[])
    }
}

impl RowSettings {
    pub(crate) fn reader<'a>(
        &'a self,
        backbone: &'a Backbone,
        max_length: usize,
    ) -> Result<TextReader<'a>> {
        let Backbone { architecture, tokenizer, .. } = backbone;
        architecture.reader(tokenizer, &self.goal, &self.layout, max_length)
    }
}

/// `true` if `out` is the folder of a run on texts.
pub(crate) fn is_run_on_texts(out: &Path) -> Result<bool> {
    let file = out.join(SETTINGS_FILE);
    let learns_texts = |value: serde_json::Value| value["goal"]["answers"] == "tokens";
    Ok(is_file(&file)? && read_json(&file).map(learns_texts)?)
}
