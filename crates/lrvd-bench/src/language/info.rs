//! The description of a language model's adapter beside its weights, which makes an adapter folder usable alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::columns::LanguageColumns;
use crate::error::Result;
use crate::io::{JsonLayout, read_versioned, write_json};
use crate::saved::FileHashes;
use crate::settings::{BasePrecision, CheckpointChoice};

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

    /// Writes the file into `dir`, with its own hash if there are hashes.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let (path, mut info) = (dir.join(LANGUAGE_FILE), self.clone());
        if let Some(hashes) = &mut info.hashes {
            hashes.seal(&path, self)?;
        }
        write_json(&path, &info, JsonLayout::Pretty)
    }

    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(LANGUAGE_FILE);
        if !path.is_file() {
            return Ok(None);
        }
        Ok(Some(read_versioned(&path, Self::SCHEMA)?))
    }
}
