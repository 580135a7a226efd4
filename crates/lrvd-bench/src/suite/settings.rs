//! The resolved settings of an output folder, so that `--resume` continues the same experiment.

use serde_json::{Value, json};

use super::options::SuiteOptions;
use crate::backbone::Backbone;
use crate::experiment::ExperimentConfig;

/// Everything that decides the numbers of an experiment.
pub(super) fn resolved(
    options: &SuiteOptions,
    config: &ExperimentConfig,
    backbone: &Backbone,
) -> Value {
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
