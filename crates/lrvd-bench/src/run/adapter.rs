//! A trained model's adapter, as its files hold it.

use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{
    AdaLoraConfig, PeftAdapter, PeftConfig, PeftPosterior, PosteriorRun, TargetModules,
    peft_from_model, posterior_from_model,
};

use crate::settings::ExperimentConfig;

/// What the files of an adapter say beside its factors.
pub(crate) struct AdapterFiles<'a> {
    pub config: &'a ExperimentConfig,
    /// Factor of the KL that the posterior was trained with in the end.
    pub kl_weight: f64,
    pub seed: u64,
    pub base_model: &'a str,
    pub task_type: &'static str,
    pub whole: &'a [&'a str],
}

pub(crate) fn adapter_files(
    model: &impl AdaptedModel,
    files: &AdapterFiles<'_>,
) -> Result<(PeftAdapter, Option<PeftPosterior>), lrvd_burn::Error> {
    let config = files.config;
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
    let template = PeftConfig {
        base_model_name_or_path: Some(files.base_model.to_owned()),
        task_type: Some(files.task_type.to_owned()),
        modules_to_save: files.whole.iter().map(ToString::to_string).collect(),
        lora_dropout: dropout,
        ..template
    };
    let adapter = peft_from_model(model, &template)?;
    let run = PosteriorRun {
        scheme: config.training_scheme.scheme(),
        statistic: config.prune.statistic,
        log_alpha_threshold: config.prune.log_alpha_threshold,
        kl_weight: files.kl_weight,
        seed: files.seed,
    };
    Ok((adapter, posterior_from_model(model, run)?))
}
