//! The description of a classifier beside its weights, which makes an adapter folder usable alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::data::reader;
use super::rows::TextColumns;
use crate::backbone::{Backbone, TextReader};
use crate::data::Wording;
use crate::error::Result;
use crate::io::{JsonLayout, read_versioned, write_json};
use crate::language::{LANGUAGE_FILE, LanguageInfo};
use crate::reasoning::QuestionForm;
use crate::saved::{DescribedBase, FileHashes};
use crate::settings::{BasePrecision, CheckpointChoice, PredictionDraws};
use crate::task::Goal;

pub const INFO_FILE: &str = "lrvd_classifier.json";
/// Version that is written, and the only one that is read.
const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifierInfo {
    pub schema_version: u32,
    pub base_model: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of what else its answers depend on; `None` in folders of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashes: Option<FileHashes>,
    /// SHA-256 of the data files whose rows trained or chose this model, or were held out for its temperature.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub seen: BTreeSet<String>,
    pub goal: Goal,
    /// Columns of the training file, for files of the user's own.
    pub columns: Option<TextColumns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wording: Option<Wording>,
    #[serde(default, skip_serializing_if = "QuestionForm::is_usual")]
    pub questions: QuestionForm,
    /// How the base is held, which a language model's answers depend on.
    #[serde(default)]
    pub base_precision: BasePrecision,
    /// Whether inputs are pairs of texts; `None` if that is not known.
    pub pairs: Option<bool>,
    pub max_length: usize,
    pub batch_size: usize,
    pub method: String,
    pub seed: u64,
    /// Rank of every adapted layer at the start; `None` if that is not known.
    pub initial_rank: Option<usize>,
    /// Rank of every adapted layer, by path, also of those that a PEFT file cannot hold.
    pub ranks: BTreeMap<String, usize>,
    pub checkpoint: CheckpointChoice,
    pub step: usize,
    /// Statistic at or above which a rank direction counts as noise.
    pub log_alpha_threshold: Option<f64>,
    pub fan_in_correction: bool,
    /// Default draws of a prediction; 0 without a posterior.
    pub draws: usize,
    #[serde(default)]
    pub prediction_draws: PredictionDraws,
    /// Temperature of the answer by number of draws, where it was fitted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub temperatures: BTreeMap<usize, f64>,
    /// Where no answer is given, by number of draws, where it was fitted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub abstentions: BTreeMap<usize, Abstention>,
}

#[expect(clippy::large_enum_variant, reason = "an adapter has one of them")]
#[derive(Clone, Debug, PartialEq)]
pub enum AdapterInfo {
    Classifier(ClassifierInfo),
    Language(LanguageInfo),
}

impl AdapterInfo {
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        if let Some(info) = LanguageInfo::read(dir)? {
            return Ok(Some(Self::Language(info)));
        }
        Ok(ClassifierInfo::read(dir)?.map(Self::Classifier))
    }

    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        match self {
            Self::Classifier(info) => info.write(dir),
            Self::Language(info) => info.write(dir),
        }
    }

    pub(super) fn at_the_mean(self) -> Self {
        match self {
            Self::Classifier(info) => Self::Classifier(info.at_the_mean()),
            Self::Language(info) => Self::Language(info.at_the_mean()),
        }
    }

    pub fn classifier(&self) -> Option<&ClassifierInfo> {
        match self {
            Self::Classifier(info) => Some(info),
            Self::Language(_) => None,
        }
    }

    /// What it says of the base model.
    pub(super) fn base(&self) -> DescribedBase<'_> {
        let (name, weights, hashes) = match self {
            Self::Classifier(info) => (&info.base_model, &info.weights, &info.hashes),
            Self::Language(info) => (&info.base_model, &info.weights, &info.hashes),
        };
        DescribedBase { name, weights, hashes: hashes.as_ref() }
    }

    /// Folder or repository of the base model.
    pub(super) fn base_name(&mut self) -> &mut String {
        match self {
            Self::Classifier(info) => &mut info.base_model,
            Self::Language(info) => &mut info.base_model,
        }
    }

    /// Compares the files in `dir` with their hashes; with `allow` a changed file is a warning.
    pub(super) fn check(&self, dir: &Path, allow: bool) -> Result<Vec<String>> {
        let (name, hashes) = match self {
            Self::Classifier(info) => (INFO_FILE, &info.hashes),
            Self::Language(info) => (LANGUAGE_FILE, &info.hashes),
        };
        let found = hashes.as_ref().map(|hashes| hashes.check(dir, name, allow));
        Ok(found.transpose()?.unwrap_or_default())
    }

    /// Hashes the files of the adapter in `dir`.
    pub(super) fn take_hashes(&mut self, dir: &Path) -> Result<()> {
        let hashes = match self {
            Self::Classifier(info) => &mut info.hashes,
            Self::Language(info) => &mut info.hashes,
        };
        hashes.get_or_insert_default().take(dir)
    }

    pub fn fan_in_correction(&self) -> bool {
        match self {
            Self::Classifier(info) => info.fan_in_correction,
            Self::Language(info) => info.fan_in_correction,
        }
    }

    /// Rank of every adapted layer at the start, if that is known.
    pub fn initial_rank(&self) -> Option<usize> {
        match self {
            Self::Classifier(info) => info.initial_rank,
            Self::Language(info) => Some(info.initial_rank),
        }
    }

    pub fn ranks(&self) -> &BTreeMap<String, usize> {
        match self {
            Self::Classifier(info) => &info.ranks,
            Self::Language(info) => &info.ranks,
        }
    }

    pub fn method(&self) -> &str {
        match self {
            Self::Classifier(info) => &info.method,
            Self::Language(info) => &info.method,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abstention {
    /// Largest entropy of an answer that is given, nats.
    pub above: f64,
    pub target: f64,
    /// Probability, over the rows it was fitted to, that their error rate on further rows is larger.
    pub delta: f64,
    /// Upper confidence limit of the error rate, at confidence `1 − delta`.
    pub bound: f64,
    pub risk: f64,
    pub coverage: f64,
    pub rows: usize,
}

impl ClassifierInfo {
    pub(super) const SCHEMA: u32 = SCHEMA_VERSION;

    pub(super) fn at_the_mean(mut self) -> Self {
        self.draws = 0;
        self.temperatures.retain(|draws, _| *draws == 0);
        self.abstentions.retain(|draws, _| *draws == 0);
        self
    }

    pub(super) fn reader<'a>(&'a self, backbone: &'a Backbone) -> Result<TextReader<'a>> {
        let (architecture, tokenizer) = (&backbone.architecture, &backbone.tokenizer);
        let kind = (&self.goal, self.columns.as_ref(), self.questions);
        let wording = self.wording.as_ref();
        reader(architecture, tokenizer, kind, wording, self.max_length)
    }

    /// Whether it answers by a separate head, as an encoder does and a language model that predicts a number.
    pub(super) fn has_head(&self) -> bool {
        self.wording.as_ref().is_none_or(Wording::is_scored)
    }

    /// Whether it answers questions by one of their choices; its classes are letters then.
    pub fn has_choices(&self) -> bool {
        self.columns.as_ref().is_some_and(TextColumns::has_choices)
    }

    /// Writes the file into `dir`, with its own hash if there are hashes.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let (path, mut info) = (dir.join(INFO_FILE), self.clone());
        if let Some(hashes) = &mut info.hashes {
            hashes.seal(&path, self)?;
        }
        write_json(&path, &info, JsonLayout::Pretty)
    }

    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(INFO_FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let info: Self = read_versioned(&path, SCHEMA_VERSION)?;
        let file = path.display();
        let wrong = |t: &f64| !(t.is_finite() && *t > 0.0);
        if let Some((draws, found)) = info.temperatures.iter().find(|(_, t)| wrong(t)) {
            bail!(
                "`{file}`: the temperature of {draws} draws is {found}, expected a positive number"
            );
        }
        for (key, size) in [("batch_size", info.batch_size), ("max_length", info.max_length)] {
            if size == 0 {
                bail!("`{file}`: {key} is 0, expected at least 1");
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(class) = info.goal.classes.iter().find(|class| !seen.insert(*class)) {
            bail!("`{file}`: class `{class}` is there twice, expected distinct classes");
        }
        Ok(Some(info))
    }
}
