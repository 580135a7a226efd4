//! PEFT adapters on a base model: logits, loss, gradients, also under dropout, merged weights, and the adapter taken off
//! again.

use anyhow::{Context, Result, ensure};
use burn::tensor::{DType, Tensor};
use lrvd_burn::model::NamedModule;
use lrvd_burn::peft::{PeftAdapter, PeftMethod, attach_peft, peft_from_model};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::orthogonality;
use lrvd_core::noise::NoiseKey;

use crate::case::{Case, Json, Limit, Values};
use crate::models::{
    DEBERTA_INPUTS, Inputs, LLAMA_INPUTS, compare_gradients, gradients, load_deberta, load_llama,
    mean_loss,
};

/// Outputs of a model, of which `logits` is the first.
struct PeftOutputs {
    values: Vec<(&'static str, Values)>,
    loss: Option<Tensor<1>>,
}

pub(crate) fn deberta(case: &mut Case) -> Result<()> {
    let (model, config) = load_deberta(&case.dir.join("base"), case.dtype)?;
    let inputs = Inputs::read(case, &DEBERTA_INPUTS)?;
    let (batch, targets) = (inputs.batch(0)?, inputs.targets(0, &config)?);
    adapted(case, model, |model, pass| {
        let logits = model.forward(&batch, pass);
        let loss = targets.as_ref().map(|targets| mean_loss(logits.clone(), targets));
        PeftOutputs { values: vec![("logits", Values::of(logits))], loss }
    })
}

pub(crate) fn llama(case: &mut Case) -> Result<()> {
    let model = load_llama(&case.dir.join("base"), case.dtype)?;
    let saved = read(case, "adapter")?.saved;
    let model = model.untied_for(saved.keys().map(String::as_str));
    let inputs = Inputs::read(case, &LLAMA_INPUTS)?;
    let (batch, (answers, right)) = (inputs.batch(0)?, inputs.answers()?);
    adapted(case, model, |model, pass| {
        let logits = inputs.real(Values::of(model.forward(&batch, pass)), 0);
        let answered = model.answer_logits(&batch, &answers, pass);
        let values = vec![("logits", logits), ("answer_logits", Values::of(answered.clone()))];
        PeftOutputs { values, loss: right.as_ref().map(|right| mean_loss(answered, right)) }
    })
}

/// Compares `model` without and with the adapter of the folder.
fn adapted<M: NamedModule>(
    case: &mut Case,
    mut model: M,
    answer: impl Fn(&M, &Pass) -> PeftOutputs,
) -> Result<()> {
    case.require_tolerated()?;
    let (adapter, mean) = (read(case, "adapter")?, Pass::mean());
    if case.has("base_logits") {
        // Most folders state no tolerance for it: it is the same computation as `logits`.
        let limit = case.tolerance("base_logits").or_else(|_| case.tolerance("logits"))?;
        case.tensor("base_logits", &answer(&model, &mean).values[0].1, limit)?;
    }
    attach_peft(&mut model, &adapter, true)?;
    let PeftOutputs { values: mut found, loss } = answer(&model, &mean);
    found.extend(loss.clone().map(|loss| ("loss", Values::of(loss))));
    let mut total = None;
    if let PeftMethod::AdaLora(settings) = &adapter.config.method
        && let Some(mean) = orthogonality(&model)
    {
        // A module of rank 0 counts, with a deviation of 0.
        let alive = adapter.modules.values().filter(|module| module.rank > 0).count();
        let penalty = mean.mul_scalar(alive as f64 / adapter.modules.len() as f64);
        found.push(("orthogonal_regularizer", Values::of(penalty.clone())));
        total = loss.clone().map(|loss| loss + penalty.mul_scalar(settings.orth_reg_weight));
        found.extend(total.clone().map(|total| ("total_loss", Values::of(total))));
    }
    case.found(&found)?;

    if !case.below("merged.").is_empty() {
        // The base weight with the update added, of every module; each has its own tolerance where there is none for all.
        let text: Option<&str> = case.json.read("merged_tolerance").ok();
        let limit = text.map(|text| text.trim_end_matches(" absolute").parse());
        let limit = limit.transpose().context("`merged_tolerance`")?.map(Limit::Absolute);
        let mut merged = Vec::new();
        model.visit_layers(&mut |path, layer| {
            if adapter.modules.contains_key(path) {
                let weight = layer.clone().merge().unwrap().weight.val();
                merged.push((format!("merged.{path}.weight"), Values::of(weight.transpose())));
            }
        });
        for (name, values) in &merged {
            let limit = limit.map_or_else(|| case.tolerance(name), Ok)?;
            case.tensor(name, values, limit)?;
        }
    }
    if !case.below("grad.").is_empty() {
        let of_total =
            case.json["gradients"].as_str().unwrap_or("of loss").starts_with("of total_loss");
        let loss = if of_total { total } else { loss }.context("no loss")?;
        let adalora = is_adalora(&adapter);
        let mut found = gradients(&model, &loss);
        for (path, module) in adapter.modules.iter().filter(|(_, module)| module.rank == 0) {
            for (factor, shape) in
                [("A", [0, module.d_input()]), ("B", [module.d_output(), 0]), ("E", [0, 1])]
            {
                found.insert(format!("{path}.lora_{factor}"), Values::new(&shape, Vec::new()));
            }
        }
        let found = found.into_iter().map(|(name, values)| in_file(&name, values, adalora));
        compare_gradients(case, "grad.", found.collect())?;
    }
    if case.has("dropped.logits") {
        model.visit_layers_mut(&mut |_, layer| {
            layer.edit(|factors| factors.dropout = adapter.config.lora_dropout);
        });
        // Seed and step of the recorded masks.
        let PeftOutputs { values, loss } =
            answer(&model, &mean.with_dropout(NoiseKey::new(3).at_step(5)));
        let loss = loss.context("no loss")?;
        case.tolerated("dropped.logits", &values[0].1)?;
        case.tolerated("dropped.loss", &Values::of(loss.clone()))?;
        let found = gradients(&model, &loss).into_iter();
        let found = found.map(|(name, values)| in_file(&name, values, false)).collect();
        compare_gradients(case, "dropped.grad.", found)?;
    }
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
    let kind: &str = case.json.read("kind")?;
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
