//! PEFT adapters on a base model: logits, loss, gradients, merged weights, ranks and scales.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::{DType, Tensor};
use lrvd_burn::adalora::orthogonality;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::NamedModule;
use lrvd_burn::peft::{PeftAdapter, PeftMethod, PeftModule, attach_peft, peft_from_model};
use lrvd_burn::sampling::Pass;

use crate::case::{Case, Limit, Values};
use crate::inputs::{Inputs, mean_loss};
use crate::json::Json;
use crate::models::{
    DEBERTA_INPUTS, LLAMA_INPUTS, compare_gradients, gradients, load_deberta, load_llama,
};

/// Relative error of a factor that two programs divide out in double precision.
const ROUNDING: f64 = 1e-12;
/// Below this a change of logits that is written with three digits counts as none.
const NO_CHANGE: f64 = 1e-5;

/// What a model answers, of which `logits` is the first.
struct Answer {
    values: Vec<(&'static str, Values)>,
    loss: Option<Tensor<1>>,
}

pub(crate) fn deberta(case: &mut Case) -> Result<()> {
    let (model, config) = load_deberta(&case.dir.join("base"), case.dtype)?;
    let inputs = Inputs::read(case, &DEBERTA_INPUTS)?;
    let (batch, targets) = (inputs.batch(0)?, inputs.targets(0, &config)?);
    adapted(case, model, &inputs, |model| {
        let logits = model.forward(&batch, &Pass::mean());
        let loss = targets.as_ref().map(|targets| mean_loss(logits.clone(), targets));
        Answer { values: vec![("logits", Values::of(logits))], loss }
    })
}

pub(crate) fn llama(case: &mut Case) -> Result<()> {
    let model = load_llama(&case.dir.join("base"), case.dtype)?;
    let inputs = Inputs::read(case, &LLAMA_INPUTS)?;
    let (batch, (answers, right)) = (inputs.batch(0)?, inputs.answers()?);
    let vocab = model.config().vocab_size;
    adapted(case, model, &inputs, |model| {
        let logits = Values::of(model.forward(&batch, &Pass::mean()));
        let logits = logits.keeping(|index| inputs.is_real(index, vocab));
        let mut values = vec![("logits", logits)];
        let answered = model.answer_logits(&batch, &answers, &Pass::mean());
        values.push(("answer_logits", Values::of(answered.clone())));
        Answer { values, loss: right.as_ref().map(|right| mean_loss(answered, right)) }
    })
}

/// Compares `model` without and with the adapter of the folder.
fn adapted<M: NamedModule>(
    case: &mut Case,
    mut model: M,
    inputs: &Inputs,
    answer: impl Fn(&M) -> Answer,
) -> Result<()> {
    case.require(&["logits"])?;
    inputs.describe(case)?;
    let adapter = read(case, "adapter")?;
    let (_, before) = answer(&model).values.swap_remove(0);
    if case.has("base_logits") {
        // Most folders state no tolerance for it: it is the same computation as `logits`.
        let limit = case.tolerance("base_logits").or_else(|_| case.tolerance("logits"))?;
        case.tensor("base_logits", &before, limit)?;
    }
    attach_peft(&mut model, &adapter, true)?;
    let Answer { values: mut found, loss } = answer(&model);
    let after = &found[0].1;
    case.tolerated("logits", after)?;
    if let Ok(entry) = case.json.at(&["adapter_changes_logits_by"]).cloned() {
        let pairs = before.values.iter().zip(&after.values).enumerate();
        let changes = pairs.filter(|(i, _)| after.is_kept(*i)).map(|(_, (a, b))| (a - b).abs());
        let change = changes.fold(0.0, f64::max);
        case.rounded("adapter_changes_logits_by", &entry, change, NO_CHANGE)?;
    }
    found.extend(loss.clone().map(|loss| ("loss", Values::of(loss))));
    let mut total = None;
    if let PeftMethod::AdaLora(settings) = &adapter.config.method
        && let Some(penalty) = mean_orthogonality(&model, &adapter)
    {
        found.push(("orthogonal_regularizer", Values::of(penalty.clone())));
        total = loss.clone().map(|loss| loss + penalty.mul_scalar(settings.orth_reg_weight));
        found.extend(total.clone().map(|total| ("total_loss", Values::of(total))));
    }
    case.found(&found)?;
    compare_modules(case, &adapter)?;
    compare_merged(case, &model, &adapter)?;
    compare_factors(case, &model, &adapter, loss, total)?;
    if case.dtype == DType::F32 {
        let back = peft_from_model(&model, &adapter.config)?;
        let each = |adapter: &PeftAdapter| -> Vec<_> {
            let modules = adapter.modules.clone().into_iter();
            modules.map(|(path, m)| (path, m.rank, m.scaling, m.a, m.b, m.e)).collect()
        };
        let same = each(&back) == each(&adapter) && back.saved == adapter.saved;
        case.statement("adapter taken off the model", same, String::new());
    }
    Ok(())
}

/// The adapter in a subfolder, of the method that the folder's kind names.
pub(crate) fn read(case: &Case, name: &str) -> Result<PeftAdapter> {
    let adapter = PeftAdapter::read(case.dir.join(name))?;
    let kind = case.json.at(&["kind"])?.text()?;
    let method = adapter.config.method.name();
    ensure!(kind.contains("adalora") == is_adalora(&adapter), "`{kind}` with a `{method}` adapter");
    Ok(adapter)
}

pub(crate) fn is_adalora(adapter: &PeftAdapter) -> bool {
    matches!(adapter.config.method, PeftMethod::AdaLora(_))
}

/// A parameter under its name in an adapter file and in the shape there: the diagonal is a column.
pub(crate) fn in_file(name: &str, values: Values, adalora: bool) -> (String, Values) {
    let factor = name.ends_with(".lora_A") || name.ends_with(".lora_B");
    let end = if factor && !adalora { ".weight" } else { "" };
    let diagonal = name.ends_with(".lora_E");
    let shape = if diagonal { vec![values.values.len(), 1] } else { values.shape };
    (format!("base_model.model.{name}{end}"), Values::new(&shape, values.values))
}

/// The penalty over all modules: one of rank 0 counts, with a deviation of 0.
fn mean_orthogonality(model: &impl NamedModule, adapter: &PeftAdapter) -> Option<Tensor<1>> {
    let modules = adapter.modules.len() as f64;
    let alive = adapter.modules.values().filter(|module| module.rank > 0).count() as f64;
    orthogonality(model).map(|mean| if alive < modules { mean * (alive / modules) } else { mean })
}

/// `grad.*`: of what the folder says was differentiated.
fn compare_factors(
    case: &mut Case,
    model: &impl NamedModule,
    adapter: &PeftAdapter,
    loss: Option<Tensor<1>>,
    total: Option<Tensor<1>>,
) -> Result<()> {
    if case.below("grad.").is_empty() {
        return Ok(());
    }
    let differentiated = match case.json.at(&["gradients"])?.text()? {
        words if words.starts_with("of total_loss") => total,
        words if words.starts_with("of loss") => loss,
        words => bail!("gradients `{words}`"),
    };
    let Some(differentiated) = differentiated else { return Ok(()) };
    let adalora = is_adalora(adapter);
    let mut found: BTreeMap<String, Values> = gradients(model, &differentiated)
        .into_iter()
        .map(|(name, values)| in_file(&name, values, adalora))
        .collect();
    for (path, module) in adapter.modules.iter().filter(|(_, module)| module.rank == 0) {
        let shapes = [("A", [0, module.d_input()]), ("B", [module.d_output(), 0]), ("E", [0, 1])];
        found.extend(shapes.map(|(factor, shape)| {
            in_file(&format!("{path}.lora_{factor}"), Values::new(&shape, Vec::new()), adalora)
        }));
    }
    compare_gradients(case, found)
}

/// `merged.<module>.weight`: the base weight with the update added; recorded for one module means for all.
fn compare_merged(case: &mut Case, model: &impl NamedModule, adapter: &PeftAdapter) -> Result<()> {
    let expected = case.below("merged.");
    if expected.is_empty() {
        return Ok(());
    }
    // `4e-6 absolute`, or a number.
    let limit = match case.json.at(&["merged_tolerance"]) {
        Err(_) => case.tolerance("merged")?,
        Ok(entry) => Limit::Absolute(match entry.as_str() {
            None => entry.number()?,
            Some(text) => text.trim_end_matches(" absolute").parse().context("merged_tolerance")?,
        }),
    };
    let mut merged = BTreeMap::new();
    model.visit_layers(&mut |path, layer| {
        if adapter.modules.contains_key(path) || expected.contains(&format!("{path}.weight")) {
            let weight = layer.clone().merge().weight.val();
            merged.insert(format!("merged.{path}.weight"), Values::of(weight.transpose()));
        }
    });
    merged.iter().try_for_each(|(name, values)| case.tensor(name, values, limit))
}

/// What `modules` says about ranks and scales.
fn compare_modules(case: &mut Case, adapter: &PeftAdapter) -> Result<()> {
    let Ok(modules) = case.json.at(&["modules"]).cloned() else { return Ok(()) };
    let stated = modules.entries()?;
    let paths = stated.iter().map(|(path, _)| *path).collect::<std::collections::BTreeSet<_>>();
    let same = paths.into_iter().eq(adapter.modules.keys());
    case.statement("modules", same, "paths of the adapted modules".to_owned());
    let scale = if is_adalora(adapter) { "effective_factor" } else { "scaling" };
    for (path, entry) in stated {
        let Some(module) = adapter.modules.get(path) else { continue };
        let mut pairs = vec![("r", module.rank as f64), ("nonzero_rank", nonzero(module) as f64)];
        // With no rank left the factor multiplies nothing, and PEFT forgets it.
        if module.rank > 0 {
            pairs.push((scale, module.scaling));
        }
        for (key, found) in pairs {
            if let Ok(entry) = entry.at(&[key]) {
                let name = format!("modules.{path}.{key}");
                case.numbers(&name, entry, &[found], Limit::Relative(ROUNDING))?;
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
