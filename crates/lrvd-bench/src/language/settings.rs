//! Options of a run, the settings that determine its numbers, and the description of an adapter folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::data::LanguageColumns;
use crate::error::Result;
use crate::run::check_seed;
use crate::saved::{DescribedBase, FileHashes, check_sizes, read_description, write_description};
use crate::settings::{
    BasePrecision, CheckpointChoice, MethodName, RankRequest, Training, ValidConfig,
};

/// What the settings file calls this kind of run.
pub(super) const TASK: &str = Training::Language.name();

#[derive(Clone, Debug, PartialEq)]
pub struct LanguageOptions {
    pub model: String,
    pub method: MethodName,
    pub target_rank: Option<usize>,
    pub config: ValidConfig,
    pub seed: u64,
    pub device: String,
    pub out: PathBuf,
    pub resume: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageSettings {
    pub schema_version: u32,
    /// Always `language`: other runs have no such entry.
    pub task: String,
    pub model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of its configuration and tokenizer; empty in folders of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub base_files: BTreeMap<String, String>,
    /// SHA-256 of the data files.
    pub data: BTreeMap<String, String>,
    pub validation_split: Option<f64>,
    pub columns: LanguageColumns,
    pub method: MethodName,
    pub target_rank: Option<usize>,
    pub seed: u64,
    pub device: String,
    pub experiment: ValidConfig,
}

impl LanguageSettings {
    pub(super) const SCHEMA: u32 = 1;

    pub(super) fn request(&self) -> RankRequest {
        RankRequest::own(self.method, self.experiment.initial_rank, self.target_rank)
    }

    /// Numbers of draws that are measured beside the mean.
    pub(super) fn draws(&self) -> Vec<usize> {
        self.method.draws(&self.experiment)
    }

    pub(super) fn info(&self, step: usize, checkpoint: CheckpointChoice) -> LanguageInfo {
        let config = &self.experiment;
        let posterior = self.method.can().posterior;
        LanguageInfo {
            schema_version: LanguageInfo::SCHEMA,
            base_model: self.model.clone(),
            weights: self.weights.clone(),
            hashes: Some(FileHashes { base: self.base_files.clone(), ..FileHashes::default() }),
            columns: self.columns.clone(),
            base_precision: config.base_precision,
            max_length: config.max_length,
            batch_size: config.evaluation_batch_size,
            method: self.method.name(),
            seed: self.seed,
            initial_rank: config.initial_rank,
            // Filled in when a model is taken.
            ranks: BTreeMap::new(),
            checkpoint,
            step,
            log_alpha_threshold: posterior.then_some(config.prune.log_alpha_threshold),
            fan_in_correction: config.prune.fan_in_correction,
            draws: self.draws().into_iter().max().unwrap_or(0),
        }
    }
}

impl LanguageOptions {
    /// Rejects what no run can be made of.
    pub(super) fn check(&self) -> Result<()> {
        if !self.method.is_for_language() {
            bail!(
                "a language model is trained on texts by lora, adalora, bayeslora or a variant of it; a \
                 temperature (`+ts`) and what answers classes alone are for classifiers"
            );
        }
        check_seed(self.seed)?;
        self.method.check_target(self.target_rank)?;
        self.config.check_use(Training::Language)
    }
}

pub const LANGUAGE_FILE: &str = "lrvd_language.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageInfo {
    pub schema_version: u32,
    pub base_model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of what else its answers depend on; `None` in folders of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashes: Option<FileHashes>,
    pub columns: LanguageColumns,
    /// How the base is held, which answers depend on.
    pub base_precision: BasePrecision,
    pub max_length: usize,
    pub batch_size: usize,
    pub method: String,
    pub seed: u64,
    pub initial_rank: usize,
    /// Rank of every adapted layer, by path, also of those that a PEFT file cannot hold.
    pub ranks: BTreeMap<String, usize>,
    pub checkpoint: CheckpointChoice,
    pub step: usize,
    /// Statistic at or above which a rank direction counts as noise.
    pub log_alpha_threshold: Option<f64>,
    pub fan_in_correction: bool,
    /// Default number of draws of an evaluation; 0 without a posterior.
    pub draws: usize,
}

impl LanguageInfo {
    /// The version that is written, and the only one that is read.
    pub(super) const SCHEMA: u32 = 1;

    pub(crate) fn at_the_mean(self) -> Self {
        Self { draws: 0, ..self }
    }

    /// What it says of the base model.
    pub(crate) fn base(&self) -> DescribedBase<'_> {
        let Self { base_model: name, weights, hashes, .. } = self;
        DescribedBase { name, weights, hashes: hashes.as_ref() }
    }

    /// Writes the file into `dir`, with its own hash if there are hashes.
    pub fn write(&self, dir: &Path) -> Result<()> {
        write_description(dir, LANGUAGE_FILE, self, |info| &mut info.hashes)
    }

    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let Some(info) = read_description::<Self>(dir, LANGUAGE_FILE, Self::SCHEMA)? else {
            return Ok(None);
        };
        check_sizes(&dir.join(LANGUAGE_FILE), info.batch_size, info.max_length, info.draws)?;
        Ok(Some(info))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_description_with_a_number_out_of_range_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let read = |change: &dyn Fn(&mut Value)| {
            let mut info = json!({
                "schema_version": 1, "base_model": "nano", "weights": {}, "columns": {"texts": {
                "prompt": "prompt", "completion": "completion"}}, "base_precision": "f32",
                "max_length": 64, "batch_size": 8, "method": "BayesLoRA", "seed": 5,
                "initial_rank": 3, "ranks": {}, "checkpoint": "last", "step": 30,
                "log_alpha_threshold": null, "fan_in_correction": false, "draws": 10_000
            });
            change(&mut info);
            std::fs::write(dir.path().join(LANGUAGE_FILE), info.to_string()).unwrap();
            LanguageInfo::read(dir.path())
        };
        assert_eq!(read(&|_| {}).unwrap().unwrap().draws, 10_000);
        for (key, value, expected) in [
            ("batch_size", 0, "batch_size is 0, expected at least 1"),
            ("max_length", 0, "max_length is 0, expected at least 1"),
            ("draws", 10_001, "`draws` is 10001, outside 0..=10000"),
        ] {
            let error = read(&|info| info[key] = value.into()).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(LANGUAGE_FILE) && text.ends_with(expected), "{text}");
        }
    }
}
