//! Where a trained adapter is, and the base model that it belongs to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lrvd_burn::peft::{POSTERIOR_FILE, PeftAdapter, PeftError, PeftPosterior};
use lrvd_burn::train::{Method, Model, TrainError, TrainState, latest_checkpoint, load_checkpoint};

use crate::backbone::{Backbone, BackboneError, locate_model};
use crate::run::{ADAPTER_DIR, CHECKPOINT_DIR, SETTINGS_FILE};

/// Names of a file of an adapter and of one of a checkpoint.
pub(crate) const PEFT_CONFIG: &str = "adapter_config.json";
pub(crate) const CHECKPOINT_VALUES: &str = "state.json";

/// A trained adapter cannot be found, or not be used as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// A folder is not there.
    #[error("`{}` is not there, or is no folder", dir.display())]
    NoFolder { dir: PathBuf },
    /// A folder holds nothing that can be read as what is wanted.
    #[error("`{}` holds no {wanted}; looked for {looked_for}", dir.display())]
    Nothing { dir: PathBuf, wanted: &'static str, looked_for: String },
    /// The adapter does not say which model it belongs to.
    #[error("`{}` does not name its base model; pass `--model DIR|HUB-ID`", dir.display())]
    NoBase { dir: PathBuf },
    /// The base model is not the one that the adapter was trained on.
    #[error(
        "model `{model}` has other weights than the adapter was trained on ({files}); pass \
         `--allow-other-base` if that is meant"
    )]
    OtherBase { model: String, files: String },
    /// Draws are asked of an adapter that has no posterior.
    #[error("{draws} draws need a posterior, and `{}` has no `{POSTERIOR_FILE}`", dir.display())]
    NoPosterior { draws: usize, dir: PathBuf },
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Adapter(PathBuf),
    /// In the output folder of a finished run.
    Run(PathBuf),
    /// In a checkpoint of a run that is not finished.
    Checkpoint {
        out: PathBuf,
        folder: PathBuf,
        /// Whether any newer one will do: the output folder was named, not this checkpoint.
        or_newer: bool,
    },
}

impl Place {
    /// What `dir` is, or what is in it: a PEFT folder, the output of a run, one of its checkpoints; `None` for none of them.
    pub(crate) fn find(dir: &Path) -> Result<Option<Self>, SavedError> {
        if !dir.is_dir() {
            return Err(SavedError::NoFolder { dir: dir.to_owned() });
        }
        if dir.join(PEFT_CONFIG).is_file() {
            return Ok(Some(Self::Adapter(dir.to_owned())));
        }
        let inner = dir.join(ADAPTER_DIR);
        if inner.join(PEFT_CONFIG).is_file() {
            return Ok(Some(Self::Run(inner)));
        }
        if dir.join(CHECKPOINT_VALUES).is_file()
            && let Some(out) = dir.parent().and_then(Path::parent)
        {
            let (out, folder) = (out.to_owned(), dir.to_owned());
            return Ok(Some(Self::Checkpoint { out, folder, or_newer: false }));
        }
        if !dir.join(SETTINGS_FILE).is_file() {
            return Ok(None);
        }
        let newest = latest_checkpoint(&dir.join(CHECKPOINT_DIR))?;
        let or_newer = true;
        Ok(newest.map(|folder| Self::Checkpoint { out: dir.to_owned(), folder, or_newer }))
    }

    /// The places that are looked at, for an error.
    pub(crate) fn looked_for() -> String {
        format!(
            "`{PEFT_CONFIG}`, `{ADAPTER_DIR}/{PEFT_CONFIG}`, `{CHECKPOINT_VALUES}`, \
             `{CHECKPOINT_DIR}/step-*`"
        )
    }
}

/// Puts the checkpoint at `path` into `state`, and returns the path. With `or_newer` the newest one beside it takes its place
/// if it is gone: a run that is still training removes a checkpoint once it has written a newer one.
pub(crate) fn load_checkpoint_from<M: Model, T: Method<M> + ?Sized>(
    path: &Path,
    or_newer: bool,
    state: &mut TrainState<M>,
    method: &mut T,
) -> Result<PathBuf, TrainError> {
    let mut path = path.to_owned();
    loop {
        let Err(error) = load_checkpoint(&path, state, method) else { return Ok(path) };
        let newest = match path.parent() {
            Some(folder) if or_newer && !path.exists() => latest_checkpoint(folder)?,
            _ => None,
        };
        match newest.filter(|newest| *newest > path) {
            Some(newest) => path = newest,
            None => return Err(error),
        }
    }
}

/// What a reader must know of a model at a checkpoint of the run in `out`.
pub(crate) fn unfinished(out: &Path, (done, steps): (usize, usize), is_tempered: bool) -> String {
    let without = if is_tempered {
        ", without the temperature that the end of the training fits"
    } else {
        ""
    };
    format!(
        "warning: the run in `{}` is not finished: this is its checkpoint after {done} of {steps} steps{without}",
        out.display()
    )
}

/// The adapter in a PEFT folder, and its posterior if there is one.
pub(crate) fn read_adapter(
    folder: &Path,
) -> Result<(PeftAdapter, Option<PeftPosterior>), PeftError> {
    let adapter = PeftAdapter::read(folder)?;
    let has_posterior = folder.join(POSTERIOR_FILE).is_file();
    let posterior = if has_posterior { Some(PeftPosterior::read(folder, &adapter)?) } else { None };
    Ok((adapter, posterior))
}

/// The base model of `adapter` in `folder`: the one that is `asked` for, else the one that its description names, else that
/// of PEFT's file. Its files must be those that the description has, which the adapter was trained on, unless `allow_other`.
pub(crate) fn open_base_model(
    folder: &Path,
    adapter: &PeftAdapter,
    asked: Option<&str>,
    described: Option<(&str, &BTreeMap<String, String>)>,
    allow_other: bool,
) -> Result<Backbone, SavedError> {
    let name = asked.or(described.map(|(name, _)| name));
    let name = name.or(adapter.config.base_model_name_or_path.as_deref());
    let name = name.ok_or_else(|| SavedError::NoBase { dir: folder.to_owned() })?;
    let backbone = Backbone::open(locate_model(name)?)?;
    match described {
        Some((_, weights)) if !allow_other && *weights != backbone.hashes => {
            let (model, files) = (backbone.location.name.clone(), backbone.other_files(weights));
            Err(SavedError::OtherBase { model, files })
        }
        _ => Ok(backbone),
    }
}
