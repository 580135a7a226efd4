//! A user's own Llama: nothing is recorded, so what is checked is that all of it is read, finite, and computes.

use std::path::Path;

use lrvd_burn::sampling::Pass;
use lrvd_models::llama::LlamaForCausalLm;
use serde_json::Value;

use super::Base;
use super::batch::Batch;
use crate::verify::checkpoint::{check_model, report};
use crate::verify::model::host;
use crate::verify::{VerifyError, VerifyOptions, VerifyReport, unread};

/// Whether the `config.json` of `dir` names a Llama; a broken file is left to its reader.
pub(in crate::verify) fn is_llama(dir: &Path) -> bool {
    let text = std::fs::read(dir.join("config.json")).unwrap_or_default();
    let config: Option<Value> = serde_json::from_slice(&text).ok();
    config.is_some_and(|config| config["model_type"] == "llama")
}

/// `config.json` and weights, with an adapter beside them if there is one.
pub(in crate::verify) fn verify_checkpoint(
    dir: &Path,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let Base { config, mut model, tensors: [applied, stored], device, dtype } =
        Base::load(dir, options)?;
    let mut notes = Vec::new();
    if stored > applied {
        let unused = stored - applied;
        notes
            .push(format!("{unused} tensors that repeat others or the configuration are not used"));
    }
    notes.extend(unread(config.unrecognised()));
    let input = Batch::built_in(&config).upload(&device, dtype);
    let forward = |model: &LlamaForCausalLm| host(model.forward(&input, &Pass::mean())).values;
    let checks = check_model(dir, &mut model, applied, forward)?;
    Ok(report(dir, "checkpoint", options, checks, notes))
}
