//! From a trained model to an adapter folder.

use std::path::Path;

use lrvd_burn::files::{AtomicDir, write_atomic};
use lrvd_burn::model::{AdaptedModel, ranks};
use lrvd_burn::peft::{
    AdaLoraConfig, CapReport, ExportLayout, ExportSummary, PeftAdapter, PeftConfig, PeftPosterior,
    PosteriorRun, TargetModules, peft_from_model, posterior_from_model,
};

use super::card::CARD_FILE;
use super::error::ClassifyError;
use super::info::ClassifierInfo;
use crate::settings::ExperimentConfig;

/// What an adapter folder holds, on the host.
#[derive(Clone, Debug)]
pub struct SavedAdapter {
    /// Factors and head.
    pub adapter: PeftAdapter,
    /// Posterior, if there is one.
    pub posterior: Option<PeftPosterior>,
    /// Description, if it was made here.
    pub info: Option<ClassifierInfo>,
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
) -> Result<SavedAdapter, ClassifyError> {
    let mut diagonal = false;
    let mut initial_rank = config.initial_rank;
    let mut dropout = config.adapter_dropout;
    model.visit_layers(&mut |_, layer| {
        if let Some(adapter) = layer.low_rank() {
            diagonal |= adapter.singular_values().is_some();
            dropout = adapter.dropout;
        }
        if let Some(slot) = layer.slot() {
            initial_rank = slot.initial_rank;
        }
    });
    let targets = TargetModules::Names(config.target_modules.clone());
    let template = if diagonal {
        let adalora = AdaLoraConfig { init_r: initial_rank, ..AdaLoraConfig::default() };
        PeftConfig::adalora(adalora, config.lora_alpha, targets)
    } else {
        PeftConfig::lora(initial_rank, config.lora_alpha, targets)
    };
    // A language model answers by its own head, which is adapted and not replaced.
    let (task_type, whole): (_, &[&str]) = match info.wording {
        Some(_) => ("CAUSAL_LM", &[]),
        None => ("SEQ_CLS", &["pooler", "classifier"]),
    };
    let template = PeftConfig {
        base_model_name_or_path: Some(info.base_model.clone()),
        task_type: Some(task_type.to_owned()),
        modules_to_save: whole.iter().map(ToString::to_string).collect(),
        lora_dropout: dropout,
        ..template
    };
    info.ranks = ranks(model).into_iter().collect();
    let adapter = peft_from_model(model, &template)?;
    let run = PosteriorRun {
        scheme: config.training_scheme.scheme(),
        statistic: config.prune.statistic,
        log_alpha_threshold: config.prune.log_alpha_threshold,
        kl_weight,
        seed: info.seed,
    };
    let posterior = posterior_from_model(model, run)?;
    Ok(SavedAdapter { adapter, posterior, info: Some(info) })
}

impl SavedAdapter {
    /// The classifier with no module above `rank`; the posterior stays behind, since it is one of other directions.
    ///
    /// # Errors
    ///
    /// Those of [`PeftAdapter::capped`].
    pub fn capped(&self, rank: usize) -> Result<(Self, CapReport), ClassifyError> {
        let (adapter, report) = self.adapter.capped(rank)?;
        let info = self.info.clone().map(ClassifierInfo::at_the_mean);
        Ok((Self { adapter, posterior: None, info }, report))
    }

    /// Writes the folder `target`, whole or not at all, in place of one that may be there.
    ///
    /// The posterior comes along in the ragged layout, where its factors are those of the file,
    /// unless no rank is left.
    ///
    /// # Errors
    ///
    /// Those of [`PeftAdapter::write`] and [`PeftPosterior::write`].
    pub fn write(
        &self,
        target: &Path,
        layout: ExportLayout,
    ) -> Result<ExportSummary, ClassifyError> {
        self.write_with(target, layout, |_| Ok(None))
    }

    /// As [`Self::write`], with the text of another model card.
    pub(super) fn write_with(
        &self,
        target: &Path,
        layout: ExportLayout,
        card: impl FnOnce(&ExportSummary) -> Result<Option<String>, ClassifyError>,
    ) -> Result<ExportSummary, ClassifyError> {
        let building = AtomicDir::create(target)?;
        let summary = self.adapter.write(building.path(), layout)?;
        let mut info = self.info.clone();
        match &self.posterior {
            Some(posterior) if layout == ExportLayout::Ragged && summary.zero_module.is_none() => {
                posterior.write(building.path(), &self.adapter)?;
            }
            Some(_) => {
                info = info.map(ClassifierInfo::at_the_mean);
            }
            None => {}
        }
        if let Some(info) = info {
            info.write(building.path())?;
        }
        if let Some(text) = card(&summary)? {
            write_atomic(building.path().join(CARD_FILE), text.as_bytes())?;
        }
        building.commit_replacing()?;
        Ok(summary)
    }
}
