//! A PEFT adapter on a base model: logits, gradients, merged weights.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::adalora::orthogonality;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{PeftAdapter, PeftMethod, PeftModule, attach_peft};
use lrvd_burn::sampling::Pass;
use lrvd_models::deberta::DebertaClassifier;

use super::inputs::Batch;
use super::model::{Base, host, stored_gradients, stored_value};
use super::{Comparison, Entry, Folder, Limit, Precision, Values, VerifyError};

/// Start of every name in an adapter file.
const PREFIX: &str = "base_model.model.";
/// Relative error of a factor that two programs divide out in double precision.
const ROUNDING: f64 = 1e-12;
/// Below this a change of logits that is written with three digits counts as none.
pub(super) const NO_CHANGE: f64 = 1e-5;

pub(super) fn verify(comparison: &mut Comparison<'_>, adalora: bool) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    comparison.check_model()?;
    let adapter = PeftAdapter::read(folder.dir.join("adapter"))?;
    check_method(folder, &adapter, adalora)?;
    let Base { config, mut model, device, dtype } =
        Base::load(&folder.dir.join("base"), comparison.options)?;
    let batch = Batch::read(folder, &config)?;
    batch.check_description(comparison)?;
    comparison.note_unread(config.unrecognised());
    let input = batch.upload(&device, dtype);

    let base_logits = host(model.forward(&input, &Pass::mean()));
    if comparison.has("base_logits") {
        let limit = base_limit(folder, comparison.precision)?;
        comparison.tensor("base_logits", &base_logits, limit)?;
    }
    attach_peft(&mut model, &adapter, true)?;
    let logits = model.forward(&input, &Pass::mean());
    let adapted = host(logits.clone());
    let change = base_logits.values.iter().zip(&adapted.values).map(|(a, b)| (a - b).abs());
    if let Some(entry) = folder.find("adapter_changes_logits_by") {
        comparison.rounded(&entry, change.fold(0.0, f64::max), NO_CHANGE)?;
    }
    let mut found = vec![("logits", adapted)];
    let loss = batch.loss(logits);
    found.extend(loss.clone().map(|loss| ("loss", host(loss))));
    let penalty = if adalora { mean_orthogonality(&model, &adapter) } else { None };
    found.extend(penalty.clone().map(|p| ("orthogonal_regularizer", host(p))));
    let total = total_loss(&adapter, loss.as_ref(), penalty.as_ref());
    found.extend(total.clone().map(|total| ("total_loss", host(total))));
    comparison.found(&found)?;
    check_adapter(comparison, &model, &adapter, loss, total)
}

/// The tolerance of `base_logits`, which most folders do not state: it is the same computation as
/// `logits`.
pub(super) fn base_limit(folder: &Folder, precision: Precision) -> Result<Limit, VerifyError> {
    folder.tolerance("base_logits", precision).or_else(|_| folder.tolerance("logits", precision))
}

/// Ranks and scales, merged weights, and gradients of an adapter that is attached to `model`.
pub(super) fn check_adapter(
    comparison: &mut Comparison<'_>,
    model: &impl AdaptedModel,
    adapter: &PeftAdapter,
    loss: Option<Tensor<1>>,
    total: Option<Tensor<1>>,
) -> Result<(), VerifyError> {
    check_modules(comparison, adapter)?;
    check_merged(comparison, model, adapter)?;
    check_gradients(comparison, model, adapter, loss, total)
}

/// The name of a parameter of the model in an adapter file.
pub(super) fn file_key(name: &str, adalora: bool) -> String {
    let factor = name.ends_with(".lora_A") || name.ends_with(".lora_B");
    let end = if factor && !adalora { ".weight" } else { "" };
    format!("{PREFIX}{name}{end}")
}

/// A parameter's values in the shape of an adapter file: the diagonal is a column there.
pub(super) fn file_shape(name: &str, values: Values) -> Values {
    if name.ends_with(".lora_E") {
        return Values::new(vec![values.values.len(), 1], values.values);
    }
    values
}

/// Values of all trainable parameters, as an adapter file would hold them.
pub(super) fn trained_values(model: &impl AdaptedModel, adalora: bool) -> BTreeMap<String, Values> {
    let mut found = BTreeMap::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let values = stored_value(p.value, p.layout);
            found.insert(file_key(p.name, adalora), file_shape(p.name, values));
        }
    });
    found
}

/// The adapter must be of the kind that the folder names.
pub(super) fn check_method(
    folder: &Folder,
    adapter: &PeftAdapter,
    adalora: bool,
) -> Result<(), VerifyError> {
    if matches!(adapter.config.method, PeftMethod::AdaLora(_)) == adalora {
        return Ok(());
    }
    let method = adapter.config.method.name();
    Err(folder.get("kind")?.wrong(format!("the kind of an adapter of type `{method}`")))
}

/// The penalty over all modules: one of rank 0 counts, with a deviation of 0.
pub(super) fn mean_orthogonality(
    model: &DebertaClassifier,
    adapter: &PeftAdapter,
) -> Option<Tensor<1>> {
    let modules = adapter.modules.len() as f64;
    let alive = adapter.modules.values().filter(|module| module.rank > 0).count() as f64;
    orthogonality(model).map(|mean| if alive < modules { mean * (alive / modules) } else { mean })
}

fn total_loss(
    adapter: &PeftAdapter,
    loss: Option<&Tensor<1>>,
    penalty: Option<&Tensor<1>>,
) -> Option<Tensor<1>> {
    let PeftMethod::AdaLora(settings) = &adapter.config.method else { return None };
    Some(loss?.clone() + penalty?.clone().mul_scalar(settings.orth_reg_weight))
}

/// Gradients of what the folder says was differentiated.
fn check_gradients(
    comparison: &mut Comparison<'_>,
    model: &impl AdaptedModel,
    adapter: &PeftAdapter,
    loss: Option<Tensor<1>>,
    total: Option<Tensor<1>>,
) -> Result<(), VerifyError> {
    if comparison.below("grad.").is_empty() {
        return Ok(());
    }
    let target = comparison.folder.get("gradients")?;
    let words = target.text()?;
    let differentiated = if words.starts_with("of total_loss") {
        total
    } else if words.starts_with("of loss") {
        loss
    } else {
        return Err(VerifyError::unsupported(format!("gradients `{words}`")));
    };
    // Without labels there is no loss; the gradients are then reported as not recomputed.
    let Some(differentiated) = differentiated else { return Ok(()) };
    let adalora = matches!(adapter.config.method, PeftMethod::AdaLora(_));
    let mut found: BTreeMap<String, Values> = stored_gradients(model, &differentiated.backward())
        .into_iter()
        .map(|(name, values)| (file_key(&name, adalora), file_shape(&name, values)))
        .collect();
    for (path, module) in adapter.modules.iter().filter(|(_, module)| module.rank == 0) {
        found.extend(empty_gradients(path, module, adalora));
    }
    comparison.gradients(&found)
}

/// The gradients of a module that has no rank left.
fn empty_gradients(path: &str, module: &PeftModule, adalora: bool) -> Vec<(String, Values)> {
    let empty = |factor: &str, shape: [usize; 2]| {
        (file_key(&format!("{path}.{factor}"), adalora), Values::new(shape, Vec::new()))
    };
    let mut found =
        vec![empty("lora_A", [0, module.d_input()]), empty("lora_B", [module.d_output(), 0])];
    if adalora {
        found.push(empty("lora_E", [0, 1]));
    }
    found
}

/// `merged.<module>.weight`: the base weight with the update added.
fn check_merged(
    comparison: &mut Comparison<'_>,
    model: &impl AdaptedModel,
    adapter: &PeftAdapter,
) -> Result<(), VerifyError> {
    let wanted = comparison.below("merged.");
    if wanted.is_empty() {
        return Ok(());
    }
    // Recorded for one module means recorded for all.
    for path in adapter.modules.keys() {
        comparison.require(&format!("merged.{path}.weight"))?;
    }
    let folder = comparison.folder;
    let limit = match folder.find("merged_tolerance") {
        Some(entry) => Limit::Absolute(leading_number(&entry)?),
        None => folder.tolerance("merged", comparison.precision)?,
    };
    let mut merged = BTreeMap::new();
    model.visit_layers(&mut |path, layer| {
        let name = format!("{path}.weight");
        if wanted.contains(&name) {
            let weight = layer.clone().merge().weight.val();
            merged.insert(name, host(weight.transpose()));
        }
    });
    for (name, values) in merged {
        comparison.tensor(&format!("merged.{name}"), &values, limit)?;
    }
    Ok(())
}

/// `4e-6 absolute`, or a number.
fn leading_number(entry: &Entry<'_>) -> Result<f64, VerifyError> {
    let number = match entry.value.as_str() {
        None => entry.finite().ok(),
        Some(text) => match text.split_once(' ') {
            Some((number, "absolute")) => number.parse().ok(),
            None => text.parse().ok(),
            Some(_) => None,
        },
    };
    number
        .filter(|v: &f64| v.is_finite() && *v >= 0.0)
        .ok_or_else(|| entry.wrong("a number, or a number and `absolute`"))
}

/// What `modules` says about ranks and scales.
fn check_modules(
    comparison: &mut Comparison<'_>,
    adapter: &PeftAdapter,
) -> Result<(), VerifyError> {
    let Some(modules) = comparison.folder.find("modules") else { return Ok(()) };
    let stated = modules.entries()?;
    let same = stated.len() == adapter.modules.len()
        && stated.iter().all(|(path, _)| adapter.modules.contains_key(*path));
    comparison.exact("modules", same, Some("paths of the adapted modules".to_owned()));
    let adalora = matches!(adapter.config.method, PeftMethod::AdaLora(_));
    let limit = Limit::Relative(ROUNDING);
    for (path, entry) in stated {
        let Some(module) = adapter.modules.get(path) else { continue };
        let mut pairs = vec![("r", module.rank as f64), ("lora_alpha", module.lora_alpha)];
        if adalora {
            pairs.push(("nonzero_rank", nonzero(module) as f64));
            // With no rank left the factor multiplies nothing, and nothing says what it is.
            if module.rank > 0 {
                pairs.push(("effective_factor", module.scaling));
            }
        } else {
            pairs.push(("scaling", module.scaling));
        }
        for (key, found) in pairs {
            if let Some(entry) = entry.find(key) {
                comparison.scalar(entry.path(), found, entry.finite()?, limit);
            }
        }
    }
    Ok(())
}

/// Singular values that are not 0.
fn nonzero(module: &PeftModule) -> usize {
    let values = module.e.as_ref().map(HostTensor::to_f64).and_then(Result::ok);
    values.map_or(module.rank, |e| e.iter().filter(|&&e| e != 0.0).count())
}
