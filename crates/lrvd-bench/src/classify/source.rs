//! The adapter in a PEFT folder, in the output of a training run, or in a checkpoint.

use std::path::{Path, PathBuf};

use burn::tensor::Device;

use super::error::ClassifyError;
use super::info::AdapterInfo;
use super::save::{SavedAdapter, take};
use super::train::TrainSettings;
use crate::backbone::{Backbone, locate_model};
use crate::io::read_versioned;
use crate::language;
use crate::run::{ADAPTER_DIR, SETTINGS_FILE};
use crate::saved::{CHECKPOINT_VALUES, PEFT_CONFIG, Place, SavedError, read_adapter};
use crate::settings::CheckpointChoice;

/// What an adapter was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A PEFT folder.
    Adapter,
    /// The output folder of a finished run.
    Run,
    /// A checkpoint of a run that is not finished.
    Checkpoint,
}

impl SourceKind {
    /// Name in reports.
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
    /// What it was read from.
    pub kind: SourceKind,
    /// The folder that holds it.
    pub folder: PathBuf,
    /// The adapter.
    pub saved: SavedAdapter,
}

impl AdapterSource {
    /// Whether `dir` holds something that [`open`](Self::open) would look at.
    pub fn is_at(dir: &Path) -> bool {
        [PEFT_CONFIG, SETTINGS_FILE, CHECKPOINT_VALUES].iter().any(|name| dir.join(name).is_file())
            || dir.join(ADAPTER_DIR).join(PEFT_CONFIG).is_file()
    }

    /// Reads the adapter that `dir` holds; `device` is used to rebuild the model of a checkpoint.
    ///
    /// # Errors
    ///
    /// [`SavedError::NoFolder`] and [`SavedError::Nothing`] if there is none, and the errors of its
    /// files.
    pub fn open(dir: &Path, device: &Device) -> Result<Self, ClassifyError> {
        match Place::find(dir)? {
            Some(Place::Adapter(folder)) => Self::read(SourceKind::Adapter, folder),
            Some(Place::Run(folder)) => Self::read(SourceKind::Run, folder),
            Some(Place::Checkpoint { out, folder }) => Self::rebuild(&out, folder, device),
            None => Err(SavedError::Nothing {
                dir: dir.to_owned(),
                wanted: "adapter",
                looked_for: Place::looked_for(),
            }
            .into()),
        }
    }

    fn read(kind: SourceKind, folder: PathBuf) -> Result<Self, ClassifyError> {
        let (adapter, posterior) = read_adapter(&folder)?;
        let info = AdapterInfo::read(&folder)?;
        Ok(Self { kind, folder, saved: SavedAdapter { adapter, posterior, info } })
    }

    /// The model at a checkpoint of the run in `out`.
    fn rebuild(out: &Path, checkpoint: PathBuf, device: &Device) -> Result<Self, ClassifyError> {
        if let Some(made) = language::rebuild(out, &checkpoint, device)? {
            let language::Rebuilt { adapter, posterior, info } = made;
            let info = Some(AdapterInfo::Language(info));
            let saved = SavedAdapter { adapter, posterior, info };
            return Ok(Self { kind: SourceKind::Checkpoint, folder: checkpoint, saved });
        }
        let settings: TrainSettings =
            read_versioned(&out.join(SETTINGS_FILE), TrainSettings::SCHEMA)?;
        let backbone = Backbone::open(locate_model(&settings.model)?)?;
        let reader = settings.reader(&backbone)?;
        let task = reader.prepare(settings.goal.clone(), &[], &[])?;
        let mut run = settings.start(&backbone, &task, device).resumed(&checkpoint)?;
        run.method.compact(&mut run.state.model);
        let info = settings.info(run.state.done, CheckpointChoice::Last);
        let saved = take(&run.state.model, &settings.experiment, run.kl_weight(), info)?;
        Ok(Self { kind: SourceKind::Checkpoint, folder: checkpoint, saved })
    }
}
