//! A base model with an adapter on it: what classifiers and language models share.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{POSTERIOR_FILE, attach_peft, attach_posterior};
use lrvd_burn::train::DrawPolicy;

use super::description::check_draws;
use super::open::Adapter;
use crate::backbone::Backbone;
use crate::error::{Error, Result};
use crate::text::quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampler {
    Mean,
    Posterior,
    Dropout,
}

pub struct SavedModel<M, I> {
    pub info: I,
    /// What a reader must know of the model, one sentence each: that its run is not finished, or a file of it has changed.
    pub warnings: Vec<String>,
    /// The folder that was loaded: the adapter's, or the base model's.
    pub(super) dir: PathBuf,
    pub(super) sampler: Sampler,
    pub(super) policy: DrawPolicy,
    pub(super) model: M,
    pub(super) backbone: Backbone,
    pub(super) device: Device,
}

impl<M, I> SavedModel<M, I> {
    /// `model` of `backbone` without an adapter, or with one that is in its weights; `dir` is what it is called.
    pub(super) fn bare(info: I, dir: &Path, backbone: Backbone, model: M, device: &Device) -> Self {
        Self {
            info,
            warnings: Vec::new(),
            dir: dir.to_owned(),
            sampler: Sampler::Mean,
            policy: DrawPolicy::default(),
            model,
            backbone,
            device: device.clone(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.dir
    }

    pub fn base_name(&self) -> &str {
        &self.backbone.location.name
    }

    pub fn has_posterior(&self) -> bool {
        self.sampler == Sampler::Posterior
    }

    /// The number of draws that is `asked` for, or without one the `usual` number if there is something to draw from.
    pub(super) fn possible_draws(&self, asked: Option<usize>, usual: usize) -> Result<usize> {
        let can = self.sampler != Sampler::Mean;
        let draws = asked.unwrap_or(if can { usual } else { 0 });
        if draws > 0 && !can {
            bail!(
                "{draws} draws need a posterior, and `{}` has no `{POSTERIOR_FILE}`",
                self.dir.display()
            );
        }
        if let (0, Some(setting)) = (draws, self.policy.asked()) {
            let what = format!("`{setting}` needs draws: pass `--draws K`");
            return Err(lrvd_burn::Error::Argument(what).into());
        }
        check_draws(draws)?;
        Ok(draws)
    }
}

impl<M: AdaptedModel, I> SavedModel<M, I> {
    pub(super) fn of(
        info: I,
        adapter: &Adapter,
        backbone: Backbone,
        mut model: M,
        device: &Device,
    ) -> Result<Self> {
        attach_peft(&mut model, &adapter.files.peft, false)?;
        let mut saved = Self::bare(info, &adapter.folder, backbone, model, device);
        if let Some(posterior) = &adapter.files.posterior {
            attach_posterior(&mut saved.model, posterior)?;
            saved.sampler = Sampler::Posterior;
        }
        saved.warnings.clone_from(&adapter.warnings);
        Ok(saved)
    }
}

/// `names` are tensors of the head that nothing has.
pub(crate) fn no_head<T: AsRef<str>>(adapter: &Path, names: impl IntoIterator<Item = T>) -> Error {
    let (dir, names) = (adapter.display(), quoted(names));
    anyhow!("neither the adapter `{dir}` nor the base model has {names}")
}
