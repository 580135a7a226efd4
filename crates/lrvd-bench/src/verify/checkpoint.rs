//! A user's own checkpoint or adapter: nothing is recorded, so what is checked is that all of it
//! is read, finite, and computes.

use std::path::Path;

use lrvd_burn::files::WeightStore;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{PeftAdapter, attach_peft};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};

use super::inputs::Batch;
use super::model::{computing_device, host};
use super::{Check, VerifyError, VerifyOptions, VerifyReport, unread};

/// `config.json` and weights, with an adapter beside them if there is one.
pub(super) fn verify_model(
    dir: &Path,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let config = DebertaConfig::read(&dir.join("config.json"))?;
    let store = WeightStore::open(dir)?;
    let device = computing_device(options)?;
    let store = if store.names().any(|name| name.starts_with("deberta.")) {
        store
    } else {
        store.rename(
            |name| if is_head(name) { name.to_owned() } else { format!("deberta.{name}") },
        )?
    };
    let dtype = options.precision.dtype();
    let (mut model, loaded) = if store.contains("classifier.weight") {
        DebertaClassifier::from_fine_tuned(&store, &config, &device, dtype)?
    } else {
        DebertaClassifier::from_pretrained(&store, &config, NoiseKey::new(0), &device, dtype)?
    };
    let applied = loaded.report.applied.len();
    let mut notes = Vec::new();
    if !loaded.fresh.is_empty() {
        notes.push(format!("not in the checkpoint, started at random: {:?}", loaded.fresh));
    }
    let unused = store.len() - applied;
    if unused > 0 {
        notes.push(format!("{unused} tensors of a pretraining head are not used"));
    }
    notes.extend(unread(config.unrecognised()));
    let input = Batch::built_in(&config).upload(&device, dtype);
    let forward = |model: &DebertaClassifier| host(model.forward(&input, &Pass::mean())).values;
    let checks = check_model(dir, &mut model, applied, forward)?;
    Ok(report(dir, "checkpoint", options, checks, notes))
}

/// A model that was read in full, on a built-in input, with the adapter beside it if there is one.
pub(super) fn check_model<M: AdaptedModel>(
    dir: &Path,
    model: &mut M,
    applied: usize,
    forward: impl Fn(&M) -> Vec<f64>,
) -> Result<Vec<Check>, VerifyError> {
    let mut checks = vec![
        statement("tensors read, finite", applied, true, None),
        finite("logits of a built-in input, finite", &forward(model)),
    ];
    if dir.join("adapter_config.json").is_file() {
        let adapter = PeftAdapter::read(dir)?;
        let applied = attach_peft(model, &adapter, false)?.applied.len();
        checks.push(statement("adapter tensors read, finite, attached", applied, true, None));
        checks.push(finite("logits with the adapter, finite", &forward(model)));
    }
    Ok(checks)
}

/// An adapter without its base model.
pub(super) fn verify_adapter(
    dir: &Path,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let adapter = PeftAdapter::read(dir)?;
    let factors = |e: bool| if e { 3 } else { 2 };
    let tensors: usize = adapter.modules.values().map(|m| factors(m.e.is_some())).sum();
    let count = tensors + adapter.saved.len();
    let checks = vec![statement("adapter tensors read, finite", count, true, None)];
    let notes = vec!["no `config.json` beside the adapter: nothing was computed".to_owned()];
    Ok(report(dir, "adapter", options, checks, notes))
}

fn is_head(name: &str) -> bool {
    ["pooler.", "classifier.", "lm_predictions.", "mask_predictions.", "cls."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn finite(name: &str, values: &[f64]) -> Check {
    let broken = values.iter().find(|v| !v.is_finite());
    statement(name, values.len(), broken.is_none(), broken.map(|v| format!("found {v}")))
}

fn statement(name: &str, compared: usize, holds: bool, note: Option<String>) -> Check {
    let difference = if holds { 0.0 } else { f64::NAN };
    Check { name: name.to_owned(), difference, tolerance: 0.0, holds, compared, note }
}

pub(super) fn report(
    dir: &Path,
    kind: &str,
    options: &VerifyOptions<'_>,
    checks: Vec<Check>,
    notes: Vec<String>,
) -> VerifyReport {
    let (kind, case) = (kind.to_owned(), dir.display().to_string());
    VerifyReport { kind, case, precision: options.precision, checks, notes }
}
