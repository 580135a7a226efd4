//! Resolved settings of a suite, and what its output folder keeps of them.

use std::collections::BTreeMap;

use anyhow::bail;
use serde_json::{Map, Value, json};

use super::kind::Suite;
use super::options::SuiteOptions;
use super::task::{ReadyTask, wording};
use crate::backbone::{Architecture, Backbone};
use crate::data::Wording;
use crate::error::Result;
use crate::settings::{BasePrecision, Config, Layers};

/// Resolved settings of `options` for a model: preset, profile, what the model's kind asks for, then the
/// user's own.
pub(super) fn resolve_config(
    options: &SuiteOptions,
    architecture: &Architecture,
) -> Result<Config> {
    let mut config = options.profile.shorten(options.suite, options.preset.config());
    if let Some(steps) = options.steps {
        config.evaluate_every = config.evaluate_every.min(steps);
        config.steps = steps;
    }
    if let Some(draws) = &options.draws {
        config.draws.clone_from(draws);
    }
    // A preset is written for one architecture; on the other its targets have other names, and an
    // encoder is held in single precision.
    config.target_modules = architecture.target_modules(&config.target_modules);
    match (options.suite, architecture) {
        (_, Architecture::Deberta(_)) => config.base_precision = BasePrecision::F32,
        (Suite::Glue, Architecture::Llama(_)) => {
            // A profile's rate and length are those of a tiny encoder and of texts without a question.
            let preset = options.preset.config();
            config.learning_rate = preset.learning_rate;
            config.max_length = preset.max_length;
        }
        (Suite::Reasoning, Architecture::Llama(_)) => {}
    }
    let layers = Layers::over(&config)?;
    let config =
        layers.apply(&options.patches, options.config.as_deref(), &options.set)?.finish()?;
    if let Some(key) = config.wording.given() {
        let several = options.tasks.len() > 1;
        let reason = match options.suite {
            Suite::Glue if several => "it words one task, and several are run",
            Suite::Glue => return Ok(config),
            Suite::Reasoning => "reasoning sets are asked by the prompts of `prompt`",
        };
        bail!("setting `{key}` is set: {reason}");
    }
    Ok(config)
}

pub(super) fn resolved(
    options: &SuiteOptions,
    config: &Config,
    backbone: &Backbone,
) -> Result<Value> {
    let mut settings = json!({
        "suite": options.suite.name(),
        "profile": options.profile.name(),
        "preset": options.preset.name(),
        "tasks": options.tasks.iter().map(|t| t.name()).collect::<Vec<_>>(),
        "methods": options.methods,
        "seeds": options.seeds,
        "device": options.device,
        "model": backbone.location.name,
        "weights": backbone.hashes,
        "data_dir": options.data_dir,
        "experiment": config,
    });
    let wordings = wordings(options, config, &backbone.architecture)?;
    if !wordings.is_empty() {
        settings["wording"] = json!(wordings);
    }
    Ok(settings)
}

/// How a language model is asked, by task; nothing for an encoder.
pub(super) fn wordings(
    options: &SuiteOptions,
    config: &Config,
    architecture: &Architecture,
) -> Result<BTreeMap<String, Wording>> {
    let worded = options.tasks.iter().map(|task| {
        let found = wording(*task, architecture, config)?;
        Ok(found.map(|wording| (task.name().to_owned(), wording)))
    });
    worded.filter_map(Result::transpose).collect()
}

/// SHA-256 of every data file, by task.
pub(super) fn data_files<'a>(tasks: impl Iterator<Item = &'a ReadyTask>) -> Value {
    let files = |task: &ReadyTask| -> Value {
        let splits = [&task.data.train, &task.data.validation];
        let files = splits.into_iter().flat_map(|split| &split.files);
        files.map(|file| (file.path.clone(), json!(file.sha256))).collect::<Map<_, _>>().into()
    };
    tasks.map(|task| (task.task.name().to_owned(), files(task))).collect::<Map<_, _>>().into()
}
