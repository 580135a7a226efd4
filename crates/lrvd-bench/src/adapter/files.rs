//! All files of an adapter folder.

use std::path::Path;

use lrvd_burn::files::{AtomicDir, write_atomic};
use lrvd_burn::model::{AdaptedModel, ranks};
use lrvd_burn::peft::{
    AdaLoraConfig, CapReport, ExportLayout, ExportSummary, POSTERIOR_FILE, PeftAdapter, PeftConfig,
    PeftPosterior, PosteriorRun, TargetModules, peft_from_model, posterior_from_model,
};

use super::description::Description;
use crate::error::Result;
use crate::method::Temperatures;
use crate::run::{RunState, TrainSettings};
use crate::settings::{CheckpointChoice, Config};

pub(crate) const CARD_FILE: &str = "README.md";

#[derive(Clone, Debug)]
pub struct AdapterFiles {
    pub peft: PeftAdapter,
    pub posterior: Option<PeftPosterior>,
    pub description: Option<Description>,
}

/// Writes the adapter of the finished run `trained` into `folder`: the best model or the last one, as its settings say.
pub(crate) fn keep(
    settings: &TrainSettings,
    trained: RunState,
    temperatures: &Temperatures,
    folder: &Path,
) -> Result<()> {
    let (config, kl_weight) = (&settings.experiment, trained.kl_weight());
    let state = trained.state;
    let (model, which, step) = match (config.checkpoint, state.best) {
        (CheckpointChoice::Best, Some(best)) => {
            (best.model, CheckpointChoice::Best, best.info.step)
        }
        _ => (state.model, CheckpointChoice::Last, state.done),
    };
    let mut description = settings.description(step, which);
    if let Description::Classifier(info) = &mut description {
        info.temperatures.clone_from(&temperatures.0);
    }
    let files = AdapterFiles::of(&model, config, kl_weight, description)?;
    files.write(folder, ExportLayout::Ragged, |_| Ok(None)).map(drop)
}

impl AdapterFiles {
    /// Reads the adapters, the head and the posterior of `model` back.
    ///
    /// `kl_weight` is the one that the posterior was trained with in the end.
    ///
    /// Pooler and head are always stored: the base checkpoint has none, and a frozen one is as
    /// random as a trained one is new.
    pub(super) fn of(
        model: &impl AdaptedModel,
        config: &Config,
        kl_weight: f64,
        mut description: Description,
    ) -> Result<Self> {
        let (task_type, whole): (_, &[&str]) = match &description {
            Description::Language(_) => ("CAUSAL_LM", &[]),
            // It answers by its own head, which is adapted and not replaced.
            Description::Classifier(info) if !info.has_head() => ("CAUSAL_LM", &[]),
            Description::Classifier(info) if info.wording.is_some() => ("SEQ_CLS", &["score"]),
            Description::Classifier(_) => ("SEQ_CLS", &["pooler", "classifier"]),
        };
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
        // The export lists the paths.
        let targets = TargetModules::AllLinear;
        let template = if diagonal {
            let adalora = AdaLoraConfig { init_r: initial_rank, ..AdaLoraConfig::default() };
            PeftConfig::adalora(adalora, config.lora_alpha, targets)
        } else {
            PeftConfig::lora(initial_rank, config.lora_alpha, targets)
        };
        let template = PeftConfig {
            base_model_name_or_path: Some(description.base().name.clone()),
            task_type: Some(task_type.to_owned()),
            modules_to_save: whole.iter().map(ToString::to_string).collect(),
            lora_dropout: dropout,
            ..template
        };
        let peft = peft_from_model(model, &template)?;
        let run = PosteriorRun {
            scheme: config.training_scheme.scheme(),
            statistic: config.prune.statistic,
            log_alpha_threshold: config.prune.log_alpha_threshold,
            kl_weight,
            seed: description.run().seed,
        };
        let posterior = posterior_from_model(model, run)?;
        description.parts_mut().1.ranks = ranks(model).into_iter().collect();
        Ok(Self { peft, posterior, description: Some(description) })
    }

    /// Reads `folder`, and returns warnings of files that have changed since the adapter was saved. Without `allow_changed`
    /// these are errors.
    pub(super) fn read(folder: &Path, allow_changed: bool) -> Result<(Self, Vec<String>)> {
        let description = Description::read(folder)?;
        let known =
            description.as_ref().and_then(|known| Some((known, known.base().hashes.as_ref()?)));
        let check = known.map(|(known, hashes)| hashes.check(folder, known.file(), allow_changed));
        let warnings = check.transpose()?.unwrap_or_default();
        let peft = PeftAdapter::read(folder)?;
        let has_posterior = folder.join(POSTERIOR_FILE).is_file();
        let posterior = has_posterior.then(|| PeftPosterior::read(folder, &peft)).transpose()?;
        Ok((Self { peft, posterior, description }, warnings))
    }

    /// The adapter with no module above `rank`; the posterior stays behind, since it is one of other directions.
    pub fn capped(&self, rank: usize) -> Result<(Self, CapReport)> {
        let (peft, report) = self.peft.capped(rank)?;
        let description = self.description.clone().map(Description::at_the_mean);
        Ok((Self { peft, posterior: None, description }, report))
    }

    /// Writes the folder `target`, whole or not at all, in place of one that may be there; with the model card that `card`
    /// returns.
    ///
    /// The posterior comes along in the ragged layout, where its factors are those of the file,
    /// unless no rank is left.
    pub(crate) fn write(
        &self,
        target: &Path,
        layout: ExportLayout,
        card: impl FnOnce(&ExportSummary) -> Result<Option<String>>,
    ) -> Result<ExportSummary> {
        let building = AtomicDir::create(target)?;
        let summary = self.peft.write(building.path(), layout)?;
        let mut description = self.description.clone();
        match &self.posterior {
            Some(posterior) if layout == ExportLayout::Ragged && summary.zero_module.is_none() => {
                posterior.write(building.path(), &self.peft)?;
            }
            Some(_) => description = description.map(Description::at_the_mean),
            None => {}
        }
        if let Some(mut description) = description {
            description.parts_mut().0.hashes.get_or_insert_default().take(building.path())?;
            description.write(building.path())?;
        }
        if let Some(text) = card(&summary)? {
            write_atomic(building.path().join(CARD_FILE), text.as_bytes())?;
        }
        building.commit_replacing()?;
        Ok(summary)
    }
}
