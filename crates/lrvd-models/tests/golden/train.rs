//! Whole training runs, step by step: series, trained tensors, decisions of AdaLoRA, the adapter at the end.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::DType;
use lrvd_burn::adalora::{AdaLora, orthogonality};
use lrvd_burn::host::values;
use lrvd_burn::model::NamedModule;
use lrvd_burn::optimizer::{AdamW, AdamWConfig, GroupRates, NamedGradients, ParameterGroups};
use lrvd_burn::parameters::Group;
use lrvd_burn::peft::{PeftAdapter, PeftMethod, PeftModule, attach_peft, peft_from_model};
use lrvd_burn::sampling::Pass;
use lrvd_core::adalora::AdaLoraConfig;
use lrvd_core::schedule::LrSchedule;
use lrvd_models::deberta::DebertaClassifier;
use serde::Deserialize;

use crate::allocation::Decisions;
use crate::case::{Case, Limit, Values};
use crate::inputs::{Inputs, mean_loss};
use crate::json::Json;
use crate::models::{DEBERTA_INPUTS, load_deberta, stored};
use crate::peft::{in_file, is_adalora, read};

/// Relative error of a learning rate: one product and one quotient in double precision.
const RATE_ROUNDING: f64 = 1e-12;
/// Half a unit in the last place of a single-precision number of size 1, which a file rounds to.
const STORED_ROUNDING: f64 = 6e-8;
/// What the prose of each description must contain: a folder that describes another procedure must not be
/// recomputed by this one.
const DESCRIPTIONS: [(&str, &[&str]); 4] = [
    ("optimizer", &["AdamW, decoupled: p -= lr*wd*p;", "t counts from 1"]),
    ("schedule", &["t/warmup for t < warmup", "max(0, (steps-t)/(steps-warmup))"]),
    ("clipping", &["total L2 norm over all trainable tensors", "min(1, clip/(norm+1e-6))"]),
    (
        "parameter_groups",
        &[
            "lora_*: lr adapter_lr, weight decay 0",
            "classifier.weight: lr head_lr, weight decay head_weight_decay",
            "classifier.bias: lr head_lr, weight decay 0",
            "everything else frozen",
        ],
    ),
];
/// The same of a run of AdaLoRA.
const UPDATE_ORDER: &str =
    "forward, backward, clip, optimizer step, scheduler step, update_and_allocate(global_step)";

/// `hyperparameters`, all of them read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    adapter_lr: f64,
    head_lr: f64,
    head_weight_decay: f64,
    betas: [f64; 2],
    eps: f64,
    /// Largest gradient norm; null for no clipping.
    clip: Option<f64>,
    steps: u32,
    warmup_steps: u32,
    lora_alpha: f64,
    #[serde(rename = "target_modules")]
    _target_modules: serde_json::Value,
    dropout: f64,
    r: Option<usize>,
    init_r: Option<usize>,
    target_r: Option<usize>,
    tinit: Option<u32>,
    tfinal: Option<u32>,
    #[serde(rename = "deltaT")]
    delta_t: Option<u32>,
    total_step: Option<u32>,
    orth_reg_weight: Option<f64>,
    beta1: Option<f64>,
    beta2: Option<f64>,
}

impl Settings {
    fn read(case: &Case) -> Result<Self> {
        let settings = case.json.at(&["hyperparameters"])?.clone();
        let settings: Self = serde_json::from_value(settings).context("hyperparameters")?;
        ensure!(settings.dropout == 0.0, "`dropout` = {}", settings.dropout);
        for (key, parts) in DESCRIPTIONS {
            let text = plain(&case.json.at(&[key])?.to_string());
            let absent = parts.iter().find(|part| !text.contains(**part));
            ensure!(absent.is_none(), "`{key}` describes another procedure: {text}");
        }
        Ok(settings)
    }

    fn allocation(&self) -> Option<AdaLoraConfig> {
        Some(AdaLoraConfig {
            init_r: self.init_r?,
            target_r: self.target_r?,
            tinit: self.tinit?,
            tfinal: self.tfinal?,
            delta_t: self.delta_t?,
            total_step: self.total_step?,
            beta1: self.beta1?,
            beta2: self.beta2?,
            orth_reg_weight: self.orth_reg_weight?,
        })
    }

    fn groups(&self) -> ParameterGroups {
        let group = |learning_rate, weight_decay| GroupRates { learning_rate, weight_decay };
        let frozen = group(0.0, 0.0);
        ParameterGroups {
            adapter: group(self.adapter_lr, 0.0),
            head: group(self.head_lr, self.head_weight_decay),
            log_variance: frozen,
            pooler: frozen,
            backbone: frozen,
        }
    }
}

/// Values of all trainable parameters by their name in an adapter file.
type Snapshot = BTreeMap<String, Values>;

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let settings = Settings::read(case)?;
    let adapter = read(case, "adapter_init")?;
    let adalora = is_adalora(&adapter);
    let rank = if adalora { settings.init_r } else { settings.r };
    let start = match &adapter.config.method {
        PeftMethod::AdaLora(config) => config.init_r,
        _ => adapter.config.r,
    };
    let alpha = adapter.config.lora_alpha;
    ensure!(
        (rank, settings.lora_alpha) == (Some(start), alpha),
        "another rank or alpha in the adapter"
    );
    let (mut model, config) = load_deberta(&case.dir.join("base"), case.dtype)?;
    let inputs = Inputs::read(case, &DEBERTA_INPUTS)?;
    ensure!(
        inputs.steps == settings.steps as usize && inputs.steps > 0,
        "{} batches",
        inputs.steps
    );
    attach_peft(&mut model, &adapter, true)?;
    check_trained(&model)?;

    let mut optimizer = AdamW::new(
        AdamWConfig { beta1: settings.betas[0], beta2: settings.betas[1], epsilon: settings.eps },
        settings.groups(),
    );
    let schedule = LrSchedule::linear(settings.warmup_steps, settings.steps)?;
    let penalised = match case.json.at(&["differentiated"])?.text()? {
        "loss" => false,
        "total_loss" if adalora => true,
        other => bail!("`differentiated` = `{other}`"),
    };
    let mut allocator = None;
    if adalora {
        let config = settings.allocation().context("`hyperparameters` lack some of AdaLoRA's")?;
        let order = case.json.at(&["adalora", "update_order"])?.text()?;
        ensure!(plain(order).starts_with(UPDATE_ORDER), "`adalora.update_order` = `{order}`");
        let first = case.json.at(&["adalora", "first_global_step"])?.count()? as u32;
        let allocation = AdaLora::new(config, &model)?;
        let decisions = Decisions::new(allocation.paths(), config);
        allocator = Some((allocation, config.orth_reg_weight, first, decisions));
    }
    let mut series: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut snapshots: Vec<Snapshot> = vec![snapshot(&model, adalora)];
    for step in 0..inputs.steps {
        let targets = inputs.targets(step, &config)?.context("no `labels`")?;
        let loss = mean_loss(model.forward(&inputs.batch(step)?, &Pass::mean()), &targets);
        let mut record = |name, value| series.entry(name).or_default().push(value);
        record("loss", values(loss.clone())[0]);
        let mut total = loss.clone();
        if let Some((_, weight, ..)) = &allocator
            && let Some(penalty) = orthogonality(&model)
        {
            record("orthogonal_regularizer", values(penalty.clone())[0]);
            total = total + penalty.mul_scalar(*weight);
        }
        record("total_loss", values(total.clone())[0]);
        let backward = if penalised { total.backward() } else { loss.backward() };
        let mut gradients = NamedGradients::collect(&model, &backward);
        let norm = gradients.global_norm();
        record("grad_norm", norm);
        record("clip_coefficient", settings.clip.map_or(1.0, |limit| gradients.clip(norm, limit)));
        let factor = schedule.factor(step as u32);
        record("lr_adapter", settings.adapter_lr * factor);
        record("lr_head", settings.head_lr * factor);
        optimizer.step(&mut model, &gradients, factor);
        if let Some((allocator, _, first, decisions)) = &mut allocator {
            let step = first.saturating_add(step as u32);
            let made = allocator.update(step, &mut model, &gradients)?;
            decisions.record(step, &made, allocator, &model);
        }
        snapshots.push(snapshot(&model, adalora));
    }
    compare_series(case, &series, adalora)?;
    compare_stages(case, &snapshots)?;
    compare_scalars(case, &series["loss"], &snapshots)?;
    if let Some((allocator, _, _, decisions)) = &allocator {
        decisions.compare(case)?;
        allocator.compact(&mut model);
    }
    compare_written(case, &model, allocator.as_ref().map(|(.., decisions)| decisions))
}

/// One blank between words.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The description says that the classifier is trained beside the adapter, and nothing else.
fn check_trained(model: &impl NamedModule) -> Result<()> {
    let mut trained = Vec::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && p.group != Group::AdapterMean {
            trained.push(p.name.to_owned());
        }
    });
    trained.sort();
    ensure!(trained == ["classifier.bias", "classifier.weight"], "trained as well: {trained:?}");
    Ok(())
}

fn snapshot(model: &impl NamedModule, adalora: bool) -> Snapshot {
    let mut found = Snapshot::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let values = stored(&p.value.shape(), values(p.value.flat()), p.transposed);
            found.extend([in_file(p.name, values, adalora)]);
        }
    });
    found
}

fn compare_series(case: &mut Case, series: &BTreeMap<&str, Vec<f64>>, adalora: bool) -> Result<()> {
    let norm = case.json.at(&["tolerances", "grad_norm", &case.key("rtol")])?.number()?;
    for (name, found) in series {
        let limit = match *name {
            "grad_norm" | "clip_coefficient" => Limit::Relative(norm),
            "lr_adapter" | "lr_head" => Limit::Relative(RATE_ROUNDING),
            _ => case.tolerance("loss")?,
        };
        // Without a penalty the total is the loss, and need not be recorded.
        if adalora || *name != "total_loss" || case.has(name) {
            case.tensor(name, &Values::list(found.clone()), limit)?;
        }
        // The same of a run in single precision: it shows how far such a run may be off.
        let other = format!("{name}_f32_run");
        if case.has(&other) {
            case.recorded(&other)?;
        }
    }
    Ok(())
}

/// The tolerance of trained parameters after a stage.
fn parameter_limit(case: &Case, stage: &str) -> Result<f64> {
    let keys = match case.dtype {
        DType::F64 => &["tolerances", "parameters_f64", "atol_f64"][..],
        _ => &["tolerances", "parameters", stage, "atol_f32"],
    };
    case.json.at(keys)?.number()
}

/// `after_<steps>.<parameter>` and `final.<parameter>`; a stage records every trained parameter.
fn compare_stages(case: &mut Case, snapshots: &[Snapshot]) -> Result<()> {
    for (steps, found) in snapshots.iter().enumerate() {
        let last = (steps + 1 == snapshots.len()).then(|| "final".to_owned());
        for stage in last.into_iter().chain([format!("after_{steps}")]) {
            if case.below(&format!("{stage}.")).is_empty() {
                continue;
            }
            let limit = Limit::Absolute(parameter_limit(case, &stage)?);
            for (key, values) in found {
                case.tensor(&format!("{stage}.{key}"), values, limit)?;
            }
        }
    }
    Ok(())
}

fn compare_scalars(case: &mut Case, losses: &[f64], snapshots: &[Snapshot]) -> Result<()> {
    let limit = case.tolerance("loss")?;
    let Ok(scalars) = case.json.at(&["scalars"]).cloned() else { return Ok(()) };
    for (name, entry) in scalars.entries()? {
        let path = format!("scalars.{name}");
        match name {
            "first_loss" => case.numbers(&path, entry, &losses[..1], limit)?,
            "last_loss" => case.numbers(&path, entry, &losses[losses.len() - 1..], limit)?,
            "largest_parameter_change" => {
                let (first, last) = (&snapshots[0], &snapshots[snapshots.len() - 1]);
                let pairs =
                    first.iter().flat_map(|(name, old)| old.values.iter().zip(&last[name].values));
                let change = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                let floor = parameter_limit(case, "final")?;
                case.rounded(&path, entry, change, floor)?;
            }
            _ => bail!("unknown entry `{path}`"),
        }
    }
    Ok(())
}

/// The adapter folder that the recorded run wrote: cut to the kept ranks, in single precision.
fn compare_written(
    case: &mut Case,
    model: &DebertaClassifier,
    decisions: Option<&Decisions>,
) -> Result<()> {
    let written = read(case, "adapter_final")?;
    let tolerance = parameter_limit(case, "final")?;
    if let (Some(decisions), PeftMethod::AdaLora(config)) = (decisions, &written.config.method) {
        let stated: BTreeMap<_, _> = config.kept.iter().flatten().cloned().collect();
        let all = vec![true; config.init_r];
        let kept = decisions.kept();
        let same = kept.iter().all(|(path, flags)| stated.get(*path).unwrap_or(&all) == *flags)
            && stated.keys().all(|path| kept.contains_key(path.as_str()));
        case.statement("adapter_final.rank_pattern", same, String::new());
    }
    let found = tensors(&peft_from_model(model, &written.config)?)?;
    let expected = tensors(&written)?;
    case.statement(
        "adapter_final",
        found.keys().eq(expected.keys()),
        "names of tensors".to_owned(),
    );
    for (name, expected) in &expected {
        let Some(found) = found.get(name) else { continue };
        let limit = Limit::Absolute(tolerance + STORED_ROUNDING * expected.largest());
        case.pair(&format!("adapter_final.{name}"), found, expected, limit);
    }
    Ok(())
}

/// Every tensor of an adapter on the host.
fn tensors(adapter: &PeftAdapter) -> Result<Snapshot> {
    let mut all = Vec::new();
    for (path, PeftModule { a, b, e, .. }) in &adapter.modules {
        all.extend([(format!("{path}.lora_A"), a), (format!("{path}.lora_B"), b)]);
        all.extend(e.as_ref().map(|e| (format!("{path}.lora_E"), e)));
    }
    all.extend(adapter.saved.iter().map(|(name, tensor)| (name.clone(), tensor)));
    all.into_iter().map(|(name, tensor)| Ok((name, Values::host(tensor)?))).collect()
}
