//! The resolved settings of an output folder, so that `--resume` continues the same experiment.

use serde_json::{Map, Value, json};

use super::options::SuiteOptions;
use super::task::ReadyTask;
use crate::backbone::Backbone;
use crate::settings::ValidConfig;

/// Everything that decides the numbers of an experiment.
pub(super) fn resolved(options: &SuiteOptions, config: &ValidConfig, backbone: &Backbone) -> Value {
    json!({
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
        "validation_rows": options.profile.validation_rows(options.suite),
        "experiment": config,
    })
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
