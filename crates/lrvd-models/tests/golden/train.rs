//! Whole training runs, step by step: series, trained tensors, decisions of AdaLoRA, the adapter at the end.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::DType;
use lrvd_burn::adapter::LowRankAdapter;
use lrvd_burn::model::NamedModule;
use lrvd_burn::optimizer::{AdamW, AdamWConfig, GroupRates, NamedGradients, ParameterGroups};
use lrvd_burn::parameters::values;
use lrvd_burn::peft::attach_peft;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{BudgetAllocator, orthogonality};
use lrvd_core::adalora::{AdaLoraConfig, Phase};
use lrvd_core::schedule::LrSchedule;
use lrvd_models::deberta::DebertaClassifier;

use crate::case::{Case, Json, Limit, Values};
use crate::models::{DEBERTA_INPUTS, Inputs, load_deberta, mean_loss, stored};
use crate::peft::{in_file, is_adalora, read};

/// Relative error of a learning rate: one product and one quotient in double precision.
const RATE_ROUNDING: f64 = 1e-12;
/// Half a unit in the last place of a single-precision number of size 1, which a file rounds to.
const STORED_ROUNDING: f64 = 6e-8;

/// Values of all trainable parameters by their name in an adapter file.
type Snapshot = BTreeMap<String, Values>;

/// The allocator of a run of AdaLoRA and what it decided, by step of the loop and in the model's order of modules.
struct Decisions {
    allocator: BudgetAllocator,
    config: AdaLoraConfig,
    /// Step of the schedule at which the loop starts.
    first: u32,
    budget: Vec<f64>,
    masked_now: Vec<bool>,
    /// Kept triplets of each module.
    mask: Vec<Vec<Vec<bool>>>,
    /// Singular values of each module that are not 0.
    nonzero: Vec<Vec<Vec<bool>>>,
    /// Scores at the steps that chose a mask.
    scores: BTreeMap<usize, Vec<Vec<f64>>>,
}

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let json = case.json.clone();
    let setting = |key: &str| json.read::<f64>(&format!("hyperparameters/{key}"));
    let count = |key: &str| json.read::<u32>(&format!("hyperparameters/{key}"));
    let adapter = read(case, "adapter_init")?;
    let adalora = is_adalora(&adapter);
    let (mut model, config) = load_deberta(&case.dir.join("base"), case.dtype)?;
    let inputs = Inputs::read(case, &DEBERTA_INPUTS)?;
    let (steps, dropout) = (count("steps")?, setting("dropout")?);
    ensure!(inputs.steps == steps as usize && steps > 0, "{} batches", inputs.steps);
    ensure!(dropout == 0.0, "`dropout` = {dropout}");
    attach_peft(&mut model, &adapter, true)?;

    let [beta1, beta2] = json.read("hyperparameters/betas")?;
    let group = |learning_rate, weight_decay| GroupRates { learning_rate, weight_decay };
    let (adapter_lr, head_lr) = (setting("adapter_lr")?, setting("head_lr")?);
    let mut optimizer = AdamW::new(
        AdamWConfig { beta1, beta2, epsilon: setting("eps")? },
        ParameterGroups {
            adapter: group(adapter_lr, 0.0),
            head: group(head_lr, setting("head_weight_decay")?),
            log_variance: group(0.0, 0.0),
            pooler: group(0.0, 0.0),
            backbone: group(0.0, 0.0),
        },
    );
    let schedule = LrSchedule::linear(count("warmup_steps")?, steps)?;
    // Null for no clipping.
    let clip = setting("clip").ok();
    let penalised = match json.read("differentiated")? {
        "loss" => false,
        "total_loss" if adalora => true,
        other => bail!("`differentiated` = `{other}`"),
    };
    let mut decisions = None;
    if adalora {
        let config = AdaLoraConfig {
            init_r: json.read("hyperparameters/init_r")?,
            target_r: json.read("hyperparameters/target_r")?,
            tinit: count("tinit")?,
            tfinal: count("tfinal")?,
            delta_t: count("deltaT")?,
            total_step: count("total_step")?,
            beta1: setting("beta1")?,
            beta2: setting("beta2")?,
            orth_reg_weight: setting("orth_reg_weight")?,
        };
        decisions = Some(Decisions {
            allocator: BudgetAllocator::new(config, &model)?,
            config,
            first: json.read("adalora/first_global_step")?,
            budget: Vec::new(),
            masked_now: Vec::new(),
            mask: Vec::new(),
            nonzero: Vec::new(),
            scores: BTreeMap::new(),
        });
    }
    let mut series: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut snapshots: Vec<Snapshot> = vec![snapshot(&model, adalora)];
    for step in 0..inputs.steps {
        let targets = inputs.targets(step, &config)?.context("no `labels`")?;
        let loss = mean_loss(model.forward(&inputs.batch(step)?, &Pass::mean()), &targets);
        let mut record = |name, value| series.entry(name).or_default().push(value);
        record("loss", values(loss.clone())[0]);
        let mut total = loss.clone();
        if let Some(decisions) = &decisions
            && let Some(penalty) = orthogonality(&model)
        {
            record("orthogonal_regularizer", values(penalty.clone())[0]);
            total = total + penalty.mul_scalar(decisions.config.orth_reg_weight);
            record("total_loss", values(total.clone())[0]);
        }
        let backward = if penalised { total.backward() } else { loss.backward() };
        let mut gradients = NamedGradients::collect(&model, &backward);
        let norm = gradients.global_norm();
        record("grad_norm", norm);
        record("clip_coefficient", clip.map_or(1.0, |limit| gradients.clip(norm, limit)));
        let factor = schedule.factor(step as u32);
        record("lr_adapter", adapter_lr * factor);
        record("lr_head", head_lr * factor);
        optimizer.step(&mut model, &gradients, factor);
        if let Some(decisions) = &mut decisions {
            decisions.update(step, &mut model, &gradients)?;
        }
        snapshots.push(snapshot(&model, adalora));
    }
    compare_series(case, &series)?;
    compare_stages(case, &snapshots)?;
    if let Some(decisions) = &decisions {
        decisions.compare(case)?;
        decisions.allocator.compact(&mut model);
    }
    compare_written(case, &model, adalora)
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

fn compare_series(case: &mut Case, series: &BTreeMap<&str, Vec<f64>>) -> Result<()> {
    let norm = case.json.read(&format!("tolerances/grad_norm/{}", case.key("rtol")))?;
    for (name, found) in series {
        let limit = match *name {
            "grad_norm" | "clip_coefficient" => Limit::Relative(norm),
            "lr_adapter" | "lr_head" => Limit::Relative(RATE_ROUNDING),
            _ => case.tolerance("loss")?,
        };
        case.tensor(name, &Values::list(found.clone()), limit)?;
        // The same of a run in single precision: it shows how far such a run may be off.
        let other = format!("{name}_f32_run");
        if case.has(&other) {
            case.recorded(&other)?;
        }
    }
    // Without a penalty the total is the loss, and need not be recorded.
    if case.has("total_loss") {
        case.tensor("total_loss", &Values::list(series["loss"].clone()), case.tolerance("loss")?)?;
    }
    Ok(())
}

/// The tolerance of trained parameters after a stage.
fn parameter_limit(case: &Case, stage: &str) -> Result<f64> {
    match case.dtype {
        DType::F64 => case.json.read("tolerances/parameters_f64/atol_f64"),
        _ => case.json.read(&format!("tolerances/parameters/{stage}/atol_f32")),
    }
}

/// `after_<steps>.<parameter>` and `final.<parameter>`, where a stage records every trained parameter.
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

impl Decisions {
    /// Decides after a step of the loop. All tables count these from 0; the schedule may start later.
    fn update(
        &mut self,
        step: usize,
        model: &mut DebertaClassifier,
        gradients: &NamedGradients,
    ) -> Result<()> {
        let of_schedule = self.first.saturating_add(step as u32);
        let phase = self.allocator.update(of_schedule, model, gradients)?;
        if phase == Phase::Choose {
            self.scores.insert(step, self.allocator.scores());
        }
        let modules = self.allocator.paths().len();
        self.budget.push(self.config.budget(of_schedule, modules) as f64);
        self.masked_now.push(phase != Phase::Rest);
        let all = || vec![vec![true; self.config.init_r]; modules];
        self.mask.push(self.allocator.mask().map_or_else(all, <[_]>::to_vec));
        let mut nonzero = Vec::new();
        model.visit_layers(&mut |_, layer| {
            if let Some(e) = layer.low_rank().and_then(LowRankAdapter::singular_values) {
                nonzero.push(values(e.val()).iter().map(|&e| e != 0.0).collect());
            }
        });
        self.nonzero.push(nonzero);
        Ok(())
    }

    /// Compares everything that a folder records of the decisions.
    fn compare(&self, case: &mut Case) -> Result<()> {
        // The folder's modules as places in the model's order.
        let place = |entry: &String| {
            let path = entry.trim_end_matches(".lora_E");
            let place = self.allocator.paths().iter().position(|known| known == path);
            place.with_context(|| format!("`adalora/modules`: `{path}` is not adapted"))
        };
        let names: Vec<String> = case.json.read("adalora/modules")?;
        let order = names.iter().map(place).collect::<Result<Vec<_>>>()?;
        let (steps, modules, rank) = (self.mask.len(), order.len(), self.config.init_r);
        let cells = |table: &[Vec<Vec<bool>>]| {
            let flags = table.iter().flat_map(|row| order.iter().flat_map(|&m| row[m].clone()));
            Values::flags(&[steps, modules, rank], flags)
        };
        let mask = cells(&self.mask);
        let ranks: Vec<f64> = mask.values.chunks(rank).map(|kept| kept.iter().sum()).collect();
        for (name, found) in [
            ("budget", Values::list(self.budget.clone())),
            ("masked_now", Values::flags(&[steps], self.masked_now.iter().copied())),
            ("mask", mask),
            ("nonzero_E", cells(&self.nonzero)),
            ("rank", Values::new(&[steps, modules], ranks)),
        ] {
            case.tensor(name, &found, Limit::EXACT)?;
        }
        // Scores are products of averages of gradients and have the gradients' relative error.
        let limit = case.json.read(match case.dtype {
            DType::F64 => "tolerances/grad_norm/rtol_f64",
            _ => "adalora/score_tolerance_relative_f32",
        })?;
        for (t, scores) in &self.scores {
            let found = order.iter().flat_map(|&m| scores[m].clone()).collect();
            let found = Values::new(&[modules, rank], found);
            case.tensor(&format!("score.{t}"), &found, Limit::Relative(limit))?;
        }
        Ok(())
    }
}

/// The adapter folder that the recorded run wrote, on its base: cut to the kept ranks, in single precision.
fn compare_written(case: &mut Case, model: &DebertaClassifier, adalora: bool) -> Result<()> {
    let tolerance = parameter_limit(case, "final")?;
    let (mut written, _) = load_deberta(&case.dir.join("base"), case.dtype)?;
    attach_peft(&mut written, &read(case, "adapter_final")?, true)?;
    let (found, expected) = (snapshot(model, adalora), snapshot(&written, adalora));
    let same = found.keys().eq(expected.keys());
    case.statement("adapter_final", same, "names of tensors".to_owned());
    for (name, expected) in &expected {
        let Some(found) = found.get(name) else { continue };
        let limit = Limit::Absolute(tolerance + STORED_ROUNDING * expected.largest());
        case.pair(&format!("adapter_final.{name}"), found, expected, limit);
    }
    Ok(())
}
