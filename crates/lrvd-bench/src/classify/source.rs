//! The adapter in a PEFT folder, in the output of a training run, or in a checkpoint.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use burn::tensor::Device;

use super::info::AdapterInfo;
use super::save::{SavedAdapter, take};
use super::train::TrainSettings;
use crate::backbone::{Backbone, locate_model};
use crate::error::Result;
use crate::io::read_versioned;
use crate::language;
use crate::run::{ADAPTER_DIR, SETTINGS_FILE};
use crate::saved::{
    CHECKPOINT_VALUES, PEFT_CONFIG, Place, load_checkpoint_from, read_adapter, unfinished,
};
use crate::settings::CheckpointChoice;

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
