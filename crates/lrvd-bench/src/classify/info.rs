//! Adapter folders: description, writing, and where an adapter is found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::files::{AtomicDir, write_atomic};
use lrvd_burn::model::{AdaptedModel, ranks};
use lrvd_burn::peft::{CapReport, ExportLayout, ExportSummary, PeftAdapter, PeftPosterior};
use serde::{Deserialize, Serialize};

use super::export::CARD_FILE;
use super::train::TrainSettings;
use crate::backbone::{Backbone, locate_model};
use crate::data::{QuestionForm, TextColumns, TextReader, Wording};
use crate::error::Result;
use crate::io::read_versioned;
use crate::language::{self, LANGUAGE_FILE, LanguageInfo};
use crate::run::{ADAPTER_DIR, AdapterFiles, SETTINGS_FILE, adapter_files};
use crate::saved::{
    CHECKPOINT_VALUES, DescribedBase, FileHashes, PEFT_CONFIG, Place, check_hashes, check_sizes,
    load_checkpoint_from, read_adapter, read_description, unfinished, write_description,
};
use crate::settings::{BasePrecision, CheckpointChoice, ExperimentConfig, PredictionDraws};
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
        match self {
            Self::Classifier(info) => DescribedBase {
                name: &info.base_model,
                weights: &info.weights,
                hashes: info.hashes.as_ref(),
            },
            Self::Language(info) => info.base(),
        }
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
        check_hashes(hashes.as_ref(), dir, name, allow)
    }

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
        let (tokenizer, wording) = (&backbone.tokenizer, self.wording.as_ref());
        let questions = self.has_choices().then_some(self.questions);
        let length = self.max_length;
        backbone.architecture.reader(tokenizer, &self.goal, questions, wording, length)
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
        write_description(dir, INFO_FILE, self, |info| &mut info.hashes)
    }

    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let Some(info) = read_description::<Self>(dir, INFO_FILE, SCHEMA_VERSION)? else {
            return Ok(None);
        };
        let path = dir.join(INFO_FILE);
        let file = path.display();
        let wrong = |t: &f64| !(t.is_finite() && *t > 0.0);
        if let Some((draws, found)) = info.temperatures.iter().find(|(_, t)| wrong(t)) {
            bail!(
                "`{file}`: the temperature of {draws} draws is {found}, expected a positive number"
            );
        }
        check_sizes(&path, info.batch_size, info.max_length, info.draws)?;
        let mut seen = BTreeSet::new();
        if let Some(class) = info.goal.classes.iter().find(|class| !seen.insert(*class)) {
            bail!("`{file}`: class `{class}` is there twice, expected distinct classes");
        }
        Ok(Some(info))
    }
}

#[derive(Clone, Debug)]
pub struct SavedAdapter {
    pub adapter: PeftAdapter,
    pub posterior: Option<PeftPosterior>,
    pub info: Option<AdapterInfo>,
}

/// Reads the adapters, the head and the posterior of `model` back.
///
/// `kl_weight` is the one that the posterior was trained with in the end.
///
/// Pooler and head are always stored: the base checkpoint has none, and a frozen one is as
/// random as a trained one is new.
pub(super) fn take(
    model: &impl AdaptedModel,
    config: &ExperimentConfig,
    kl_weight: f64,
    mut info: ClassifierInfo,
) -> Result<SavedAdapter> {
    let (task_type, whole): (_, &[&str]) = match info.wording {
        // It answers by its own head, which is adapted and not replaced.
        Some(_) if !info.has_head() => ("CAUSAL_LM", &[]),
        Some(_) => ("SEQ_CLS", &["score"]),
        None => ("SEQ_CLS", &["pooler", "classifier"]),
    };
    let (seed, base_model) = (info.seed, &info.base_model);
    let files = AdapterFiles { config, kl_weight, seed, base_model, task_type, whole };
    let (adapter, posterior) = adapter_files(model, &files)?;
    info.ranks = ranks(model).into_iter().collect();
    Ok(SavedAdapter { adapter, posterior, info: Some(AdapterInfo::Classifier(info)) })
}

impl SavedAdapter {
    /// The adapter with no module above `rank`; the posterior stays behind, since it is one of other directions.
    pub fn capped(&self, rank: usize) -> Result<(Self, CapReport)> {
        let (adapter, report) = self.adapter.capped(rank)?;
        let info = self.info.clone().map(AdapterInfo::at_the_mean);
        Ok((Self { adapter, posterior: None, info }, report))
    }

    /// Writes the folder `target`, whole or not at all, in place of one that may be there.
    ///
    /// The posterior comes along in the ragged layout, where its factors are those of the file,
    /// unless no rank is left.
    pub fn write(&self, target: &Path, layout: ExportLayout) -> Result<ExportSummary> {
        self.write_with(target, layout, |_| Ok(None))
    }

    pub(super) fn write_with(
        &self,
        target: &Path,
        layout: ExportLayout,
        card: impl FnOnce(&ExportSummary) -> Result<Option<String>>,
    ) -> Result<ExportSummary> {
        let building = AtomicDir::create(target)?;
        let summary = self.adapter.write(building.path(), layout)?;
        let mut info = self.info.clone();
        match &self.posterior {
            Some(posterior) if layout == ExportLayout::Ragged && summary.zero_module.is_none() => {
                posterior.write(building.path(), &self.adapter)?;
            }
            Some(_) => {
                info = info.map(AdapterInfo::at_the_mean);
            }
            None => {}
        }
        if let Some(mut info) = info {
            info.take_hashes(building.path())?;
            info.write(building.path())?;
        }
        if let Some(text) = card(&summary)? {
            write_atomic(building.path().join(CARD_FILE), text.as_bytes())?;
        }
        building.commit_replacing()?;
        Ok(summary)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    Adapter,
    Run,
    Checkpoint,
}

impl SourceKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adapter => "adapter",
            Self::Run => "run",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// An adapter on the host with all that is known of it.
#[derive(Clone, Debug)]
pub struct AdapterSource {
    pub kind: SourceKind,
    pub folder: PathBuf,
    pub saved: SavedAdapter,
    /// What a reader must know of the model: that its run is not finished, or a file of it has changed.
    pub warnings: Vec<String>,
    /// Whether files may have changed.
    pub(super) allow_changed: bool,
}

impl AdapterSource {
    pub fn is_at(dir: &Path) -> bool {
        [PEFT_CONFIG, SETTINGS_FILE, CHECKPOINT_VALUES].iter().any(|name| dir.join(name).is_file())
            || dir.join(ADAPTER_DIR).join(PEFT_CONFIG).is_file()
    }

    /// Reads the adapter that `dir` holds; `device` is used to rebuild the model of a checkpoint. With `allow_changed` files
    /// that have changed since the adapter was saved are warnings, here and where the base model is opened.
    pub fn open(dir: &Path, device: &Device, allow_changed: bool) -> Result<Self> {
        match Place::find(dir)? {
            Some(Place::Adapter(folder)) => Self::read(SourceKind::Adapter, folder, allow_changed),
            Some(Place::Run(folder)) => Self::read(SourceKind::Run, folder, allow_changed),
            Some(Place::Checkpoint { out, folder, or_newer }) => {
                match Self::rebuild(&out, &folder, or_newer, device) {
                    // The run ended meanwhile and removed its checkpoints.
                    Err(_) if or_newer && folder.parent().is_some_and(|all| !all.exists()) => {
                        Self::open(dir, device, allow_changed)
                    }
                    rebuilt => rebuilt.map(|source| Self { allow_changed, ..source }),
                }
            }
            None => Err(anyhow!(
                "`{}` holds no adapter; looked for {looked_for}",
                dir.display(),
                looked_for = Place::looked_for()
            )),
        }
    }

    fn read(kind: SourceKind, folder: PathBuf, allow_changed: bool) -> Result<Self> {
        let info = AdapterInfo::read(&folder)?;
        let check = info.as_ref().map(|info| info.check(&folder, allow_changed));
        let warnings = check.transpose()?.unwrap_or_default();
        let (adapter, posterior) = read_adapter(&folder)?;
        let saved = SavedAdapter { adapter, posterior, info };
        Ok(Self { kind, folder, saved, warnings, allow_changed })
    }

    /// The model at a checkpoint of the run in `out`.
    fn rebuild(out: &Path, checkpoint: &Path, or_newer: bool, device: &Device) -> Result<Self> {
        let kind = SourceKind::Checkpoint;
        if let Some(made) = language::rebuild(out, checkpoint, or_newer, device)? {
            let language::AtCheckpoint { folder, warning, model } = made;
            let language::Rebuilt { adapter, posterior, info } = model;
            let info = Some(AdapterInfo::Language(info));
            let saved = SavedAdapter { adapter, posterior, info };
            return Ok(Self { kind, folder, saved, warnings: vec![warning], allow_changed: false });
        }
        let settings: TrainSettings =
            read_versioned(&out.join(SETTINGS_FILE), TrainSettings::SCHEMA)?;
        let backbone = Backbone::open(locate_model(&settings.model)?)?;
        let reader = settings.reader(&backbone)?;
        let task = reader.prepare(settings.goal.clone(), &[], &[])?;
        let mut run = settings.start(&backbone, &task, device).fresh()?;
        let (state, method) = (&mut run.state, &mut *run.method);
        let folder = load_checkpoint_from(checkpoint, or_newer, state, method)?;
        run.method.compact(&mut run.state.model);
        let steps = (run.state.done, settings.experiment.steps);
        let warnings = vec![unfinished(out, steps, settings.method.is_tempered())];
        let info = settings.info(run.state.done, CheckpointChoice::Last);
        let saved = take(&run.state.model, &settings.experiment, run.kl_weight(), info)?;
        Ok(Self { kind, folder, saved, warnings, allow_changed: false })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_description_with_a_value_out_of_range_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let read = |change: &dyn Fn(&mut Value)| {
            let mut info = json!({
                "schema_version": 1, "base_model": "nano", "weights": {}, "goal": {
                "name": "train", "classes": ["bad", "good"], "standard_metrics": [],
                "selection": "accuracy"}, "columns": null, "pairs": false, "max_length": 16,
                "batch_size": 128, "method": "BayesLoRA", "seed": 5, "initial_rank": 3, "ranks": {},
                "checkpoint": "last", "step": 30, "log_alpha_threshold": null,
                "fan_in_correction": false, "draws": 10_000, "temperatures": {}
            });
            change(&mut info);
            std::fs::write(dir.path().join(INFO_FILE), info.to_string()).unwrap();
            ClassifierInfo::read(dir.path())
        };
        assert_eq!(read(&|_| {}).unwrap().unwrap().draws, 10_000);
        for (place, value, expected) in [
            ("/batch_size", json!(0), "batch_size is 0, expected at least 1"),
            ("/max_length", json!(0), "max_length is 0, expected at least 1"),
            ("/draws", json!(10_001), "`draws` is 10001, outside 0..=10000"),
            (
                "/goal/classes/1",
                json!("bad"),
                "class `bad` is there twice, expected distinct classes",
            ),
            (
                "/temperatures",
                json!({"3": 0.0}),
                "the temperature of 3 draws is 0, expected a positive number",
            ),
        ] {
            let change = |info: &mut Value| *info.pointer_mut(place).unwrap() = value.clone();
            let text = format!("{:#}", read(&change).unwrap_err());
            assert!(text.contains(INFO_FILE) && text.ends_with(expected), "{text}");
        }
    }
}
