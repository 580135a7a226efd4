//! Options of a run, and the settings that determine its numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::columns::LanguageColumns;
use super::data::LanguageSource;
use super::info::LanguageInfo;
use crate::error::Result;
use crate::run::check_seed;
use crate::saved::FileHashes;
use crate::settings::{CheckpointChoice, MethodName, RankRequest, Training, ValidConfig};

/// What the settings file calls this kind of run.
pub(super) const TASK: &str = Training::Language.name();

#[derive(Clone, Debug, PartialEq)]
pub struct LanguageOptions {
    pub model: String,
    pub data: LanguageSource,
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
    /// Refuses what no run can be made of.
    pub(super) fn check(&self) -> Result<()> {
        let can = self.method.can();
        if !self.method.is_for_language() {
            bail!(
                "a language model is trained on texts by lora, adalora, bayeslora or a variant of it; a \
                 temperature (`+ts`) and what answers classes alone are for classifiers"
            );
        }
        check_seed(self.seed)?;
        if self.target_rank.is_some() && !can.budget {
            bail!("a target rank is for the method `adalora` only");
        }
        self.config.check_use(Training::Language)
    }
}
