//! Where a trained adapter is, and the base model that it belongs to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use lrvd_burn::peft::{POSTERIOR_FILE, PeftAdapter, PeftPosterior};
use lrvd_burn::train::{Method, Model, TrainState, latest_checkpoint, load_checkpoint};

pub use self::hashes::FileHashes;
use crate::backbone::{Backbone, locate_model};
use crate::error::Result;
use crate::run::{ADAPTER_DIR, CHECKPOINT_DIR, SETTINGS_FILE};

mod hashes;

/// Names of a file of an adapter and of one of a checkpoint.
pub(crate) const PEFT_CONFIG: &str = "adapter_config.json";
pub(crate) const CHECKPOINT_VALUES: &str = "state.json";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Adapter(PathBuf),
    Run(PathBuf),
    Checkpoint {
        out: PathBuf,
        folder: PathBuf,
        /// Whether any newer one will do: the output folder was named, not this checkpoint.
        or_newer: bool,
    },
}

impl Place {
    /// What `dir` is, or what is in it: a PEFT folder, the output of a run, one of its checkpoints; `None` for none of them.
    pub(crate) fn find(dir: &Path) -> Result<Option<Self>> {
        if !dir.is_dir() {
            bail!("`{}` is not there, or is no folder", dir.display());
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
) -> Result<PathBuf, lrvd_burn::Error> {
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
) -> Result<(PeftAdapter, Option<PeftPosterior>), lrvd_burn::Error> {
    let adapter = PeftAdapter::read(folder)?;
    let has_posterior = folder.join(POSTERIOR_FILE).is_file();
    let posterior = if has_posterior { Some(PeftPosterior::read(folder, &adapter)?) } else { None };
    Ok((adapter, posterior))
}

/// What the description of an adapter says of its base model.
pub(crate) struct DescribedBase<'a> {
    /// Folder or repository.
    pub name: &'a str,
    /// SHA-256 of the weight files.
    pub weights: &'a BTreeMap<String, String>,
    /// Of its other files, if they are known.
    pub hashes: Option<&'a FileHashes>,
}

/// What may differ from what an adapter was trained on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// The base model; its other files are then other ones too, which is a warning.
    pub other_base: bool,
    /// Files of the adapter, and configuration and tokenizer of the base model: a warning.
    pub changed: bool,
}

/// The base model of `adapter` in `folder`, and warnings of its files: the one that is `asked` for, else the one that its
/// description names, else that of PEFT's file. Its files must be those that the description has, which the adapter was
/// trained on, unless others are `allowed`.
pub(crate) fn open_base_model(
    folder: &Path,
    adapter: &PeftAdapter,
    asked: Option<&str>,
    described: Option<DescribedBase<'_>>,
    allowed: Allowed,
) -> Result<(Backbone, Vec<String>)> {
    let name = asked.or(described.as_ref().map(|base| base.name));
    let name = name.or(adapter.config.base_model_name_or_path.as_deref());
    let name = name.ok_or_else(|| {
        anyhow!("`{}` does not name its base model; pass `--model DIR|HUB-ID`", folder.display())
    })?;
    // An exported adapter has the last part of a path only.
    if asked.is_none() && !name.contains(['/', '\\']) && !Path::new(name).exists() {
        let (dir, name) = (folder.to_owned(), name.to_owned());
        bail!(
            "`{}` names its base model `{name}`, and there is no such folder here; pass `--model DIR|HUB-ID`",
            dir.display()
        );
    }
    let backbone = Backbone::open(locate_model(name)?)?;
    let Some(DescribedBase { weights, hashes, .. }) = described else {
        return Ok((backbone, Vec::new()));
    };
    if !allowed.other_base && *weights != backbone.hashes {
        let (model, files) = (backbone.location.name.clone(), backbone.other_files(weights));
        bail!(
            "model `{model}` has other weights than the adapter was trained on ({files}); pass \
             `--allow-other-base` if that is meant"
        );
    }
    let allow = allowed.changed || allowed.other_base;
    let check =
        |hashes: &FileHashes| hashes.check_base(&backbone.files, &backbone.location.folder, allow);
    let warnings = hashes.map(check).transpose()?.unwrap_or_default();
    Ok((backbone, warnings))
}
