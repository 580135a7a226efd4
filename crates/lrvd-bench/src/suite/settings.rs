//! The resolved settings of an output folder, so that `--resume` continues the same experiment.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::options::SuiteOptions;
use super::task::ReadyTask;
use crate::backbone::{Architecture, Backbone};
use crate::data::Wording;
use crate::error::Result;
use crate::settings::ValidConfig;

pub(super) fn resolved(
    options: &SuiteOptions,
    config: &ValidConfig,
    backbone: &Backbone,
) -> Result<Value> {
    let mut settings = json!({
        "suite": options.suite.name(),
        "profile": options.profile.name(),
        "preset": options.preset.name(),
        "tasks": options.tasks.iter().map(|t| t.key()).collect::<Vec<_>>(),
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
    config: &ValidConfig,
    architecture: &Architecture,
) -> Result<BTreeMap<String, Wording>> {
    let worded = options.tasks.iter().map(|task| {
        let wording = task.wording(architecture, config)?;
        Ok(wording.map(|wording| (task.key().to_owned(), wording)))
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
    tasks.map(|task| (task.task.key().to_owned(), files(task))).collect::<Map<_, _>>().into()
}
