//! From a trained model to an adapter folder.

use std::path::Path;

use lrvd_burn::files::{AtomicDir, write_atomic};
use lrvd_burn::model::{AdaptedModel, ranks};
use lrvd_burn::peft::{CapReport, ExportLayout, ExportSummary, PeftAdapter, PeftPosterior};

use super::card::CARD_FILE;
use super::info::{AdapterInfo, ClassifierInfo};
use crate::error::Result;
use crate::run::{AdapterFiles, adapter_files};
use crate::settings::ExperimentConfig;

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
