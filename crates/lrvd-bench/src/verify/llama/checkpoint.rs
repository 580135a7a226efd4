//! A user's own Llama: nothing is recorded, so what is checked is that all of it is read, finite, and computes.

use std::path::Path;

use lrvd_burn::peft::{PeftAdapter, attach_peft};
use lrvd_burn::sampling::Pass;
use serde_json::Value;

use super::Base;
use super::batch::Batch;
use crate::verify::checkpoint::{finite, report, statement};
use crate::verify::error::VerifyError;
use crate::verify::model::host;
use crate::verify::report::{VerifyOptions, VerifyReport};

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
    let mut checks = vec![statement("tensors read, finite", applied, true, None)];
    let mut notes = Vec::new();
    if stored > applied {
        let unused = stored - applied;
        notes
            .push(format!("{unused} tensors that repeat others or the configuration are not used"));
    }
    if !config.unrecognised().is_empty() {
        notes
            .push(format!("keys of `config.json` that were not read: {:?}", config.unrecognised()));
    }
    let (input, pass) = (Batch::built_in(&config).upload(&device, dtype), Pass::mean());
    let logits = host(model.forward(&input, &pass));
    checks.push(finite("logits of a built-in input, finite", &logits.values));
    if dir.join("adapter_config.json").is_file() {
        let adapter = PeftAdapter::read(dir)?;
        let report = attach_peft(&mut model, &adapter, false)?;
        let applied = report.applied.len();
        checks.push(statement("adapter tensors read, finite, attached", applied, true, None));
        let logits = host(model.forward(&input, &pass));
        checks.push(finite("logits with the adapter, finite", &logits.values));
    }
    Ok(report(dir, "checkpoint", options, checks, notes))
}
