//! A trained adapter in a folder: PEFT's files, and the posterior beside them.

use std::path::Path;

use super::method::Method;
use super::model::Model;
use super::run::Run;
use crate::adapter::AdapterKind;
use crate::error::Error;
use crate::files::{AtomicDir, LoadReport};
use crate::model::AdaptedModel;
use crate::peft::{
    AdaLoraConfig, ExportLayout, ExportSummary, POSTERIOR_FILE, PeftAdapter, PeftConfig,
    PeftPosterior, TargetModules, attach_peft, attach_posterior, peft_from_model,
    posterior_from_model,
};

impl<M: Model, T: Method<M> + ?Sized> Run<M, T> {
    /// Writes the adapters, every other trainable parameter and the posterior of the model as it is now
    /// into `folder`, atomically.
    ///
    /// The layout is the one that keeps every rank as it is; where no rank is left there is no posterior
    /// to write.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<ExportSummary, Error> {
        let mut model = self.state.model.clone();
        self.method.compact(&mut model);
        let config = self.method.adapter();
        // Replaced by the paths that carry an adapter.
        let targets = TargetModules::Names(Vec::new());
        let template = match config.kind {
            AdapterKind::AdaLora => {
                let adalora = AdaLoraConfig { init_r: config.rank, ..AdaLoraConfig::default() };
                PeftConfig::adalora(adalora, config.lora_alpha, targets)
            }
            _ => PeftConfig::lora(config.rank, config.lora_alpha, targets),
        };
        let template = PeftConfig { lora_dropout: config.dropout, ..template };
        let adapter = peft_from_model(&model, &template)?;
        let posterior = match self.method.posterior(self.config().seed) {
            Some(run) => posterior_from_model(&model, run)?,
            None => None,
        };
        let building = AtomicDir::create(folder)?;
        let summary = adapter.write(building.path(), ExportLayout::Ragged)?;
        if let Some(posterior) = posterior.filter(|_| summary.zero_module.is_none()) {
            posterior.write(building.path(), &adapter)?;
        }
        building.commit()?;
        Ok(summary)
    }
}

/// Puts the adapter in `folder`, with its posterior if there is one, on `model`, which must be the base
/// model that it was trained on; everything is frozen.
pub fn load_adapter(
    model: &mut impl AdaptedModel,
    folder: impl AsRef<Path>,
) -> Result<LoadReport, Error> {
    let folder = folder.as_ref();
    let adapter = PeftAdapter::read(folder)?;
    let report = attach_peft(model, &adapter, false)?;
    if folder.join(POSTERIOR_FILE).is_file() {
        let posterior = PeftPosterior::read(folder, &adapter)?;
        attach_posterior(model, &posterior)?;
    }
    Ok(report)
}
