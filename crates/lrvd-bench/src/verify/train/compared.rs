//! A recorded run against the recomputed one.

use std::collections::BTreeMap;

use lrvd_burn::files::HostTensor;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::parameters::Role;
use lrvd_burn::peft::{PeftAdapter, PeftMethod, PeftModule, attach_peft};

use super::super::inputs::Batch;
use super::super::model::Base;
use super::super::peft::{check_method, file_key, file_shape};
use super::super::{Comparison, Folder, Limit, Precision, Values, VerifyError, bound};
use super::settings::Settings;
use super::steps::{Run, run};
use super::words;

/// Relative error of a learning rate: one product and one quotient in double precision.
const RATE_ROUNDING: f64 = 1e-12;
/// Half a unit in the last place of a single-precision number of size 1, which a file rounds to.
const STORED_ROUNDING: f64 = 6e-8;
/// Recorded by another program in single precision; they show how far such a run may be off.
const INFORMATIVE: &str = "_f32_run";
/// Series compared within the tolerance of the loss.
const LOSSES: [&str; 3] = ["loss", "orthogonal_regularizer", "total_loss"];
/// Series compared within the relative tolerance of the gradient norm.
const NORMS: [&str; 2] = ["grad_norm", "clip_coefficient"];
/// Series that depend on the settings alone.
const RATES: [&str; 2] = ["lr_adapter", "lr_head"];

pub(crate) fn verify(comparison: &mut Comparison<'_>, adalora: bool) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    words::check(folder, adalora)?;
    let adapter = PeftAdapter::read(folder.dir.join("adapter_init"))?;
    check_method(folder, &adapter, adalora)?;
    let settings = Settings::read(folder, &adapter, adalora)?;
    let mut base = Base::load(&folder.dir.join("base"), comparison.options)?;
    comparison.note_unread(base.config.unrecognised());
    let batches = Batch::read_steps(folder, &base.config)?;
    check_batches(folder, &batches, settings.steps)?;
    attach_peft(&mut base.model, &adapter, true)?;
    check_trained(folder, &base)?;

    let stages = stages(comparison, settings.steps);
    let mut wanted: Vec<usize> = stages.iter().map(|(_, steps)| *steps).collect();
    wanted.extend([0, settings.steps]);
    let run = run(&mut base, &batches, &settings, &wanted)?;
    compare_series(comparison, &run, adalora)?;
    for (stage, steps) in &stages {
        compare_stage(comparison, stage, &run.snapshots[steps])?;
    }
    if let Some(decisions) = &run.decisions {
        decisions.compare(comparison)?;
    }
    compare_scalars(comparison, &run, settings.steps)?;
    let written = PeftAdapter::read(folder.dir.join("adapter_final"))?;
    check_method(folder, &written, adalora)?;
    compare_written(comparison, &run, settings.steps, &written)
}

/// One batch with labels for every step.
fn check_batches(folder: &Folder, batches: &[Batch], steps: usize) -> Result<(), VerifyError> {
    let entry = folder.get("hyperparameters")?.get("steps")?;
    if batches.len() != steps || steps == 0 {
        return Err(entry.wrong(format!("the number of batches, {}, above 0", batches.len())));
    }
    if batches.iter().any(|batch| batch.labels.is_none()) {
        return Err(VerifyError::unsupported("a training run without `labels`"));
    }
    Ok(())
}

/// The description says that the classifier is trained beside the adapter, and nothing else.
fn check_trained(folder: &Folder, base: &Base) -> Result<(), VerifyError> {
    let (mut others, mut head) = (Vec::new(), 0);
    base.model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && p.name.starts_with("classifier.") {
            head += 1;
        } else if p.value.is_trainable() && p.role != Role::AdapterMean {
            others.push(p.name.to_owned());
        }
    });
    let groups = folder.get("parameter_groups")?;
    if let Some(name) = others.first() {
        return Err(groups.wrong(format!("one that trains `{name}`, which the adapter stores")));
    }
    if head == 0 {
        return Err(groups.wrong("without the classifier, which the adapter does not store"));
    }
    Ok(())
}

/// Prefixes of the recorded parameters, with the number of steps that they follow.
fn stages(comparison: &Comparison<'_>, steps: usize) -> Vec<(String, usize)> {
    let mut found = BTreeMap::new();
    for name in comparison.names() {
        let stage = name.split('.').next().unwrap_or_default();
        let after = if stage == "final" {
            Some(steps)
        } else {
            stage.strip_prefix("after_").and_then(|n| n.parse().ok())
        };
        if let Some(after) = after.filter(|&after| after <= steps) {
            found.insert(stage.to_owned(), after);
        }
    }
    found.into_iter().collect()
}

fn compare_series(
    comparison: &mut Comparison<'_>,
    run: &Run,
    adalora: bool,
) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let loss = folder.tolerance("loss", comparison.precision)?;
    let key = format!("rtol_{}", comparison.precision.name());
    let norm = folder.get("tolerances")?.get("grad_norm")?.get(&key)?;
    let norm = Limit::Relative(bound(&norm)?);
    let rates = Limit::Relative(RATE_ROUNDING);
    for (names, limit) in [(&LOSSES[..], loss), (&NORMS[..], norm), (&RATES[..], rates)] {
        for name in names {
            let Some(found) = run.series.get(name) else { continue };
            // Without a penalty the total is the loss, and need not be recorded.
            if adalora || *name != "total_loss" || comparison.has(name) {
                comparison.required(name, &Values::list(found.clone()), limit)?;
            }
        }
    }
    for name in comparison.names() {
        if let Some(series) = name.strip_suffix(INFORMATIVE)
            && run.series.contains_key(series)
        {
            comparison.set_aside(&name, "it is another program's run in single precision");
        }
    }
    Ok(())
}

/// The tolerance of trained parameters after a stage.
fn parameter_limit(comparison: &Comparison<'_>, stage: &str) -> Result<f64, VerifyError> {
    let tolerances = comparison.folder.get("tolerances")?;
    let entry = match comparison.precision {
        Precision::F32 => tolerances.get("parameters")?.get(stage)?.get("atol_f32")?,
        Precision::F64 => tolerances.get("parameters_f64")?.get("atol_f64")?,
    };
    bound(&entry)
}

/// Every trained tensor must be recorded at every stage.
fn compare_stage(
    comparison: &mut Comparison<'_>,
    stage: &str,
    found: &BTreeMap<String, Values>,
) -> Result<(), VerifyError> {
    let limit = Limit::Absolute(parameter_limit(comparison, stage)?);
    for (key, values) in found {
        comparison.required(&format!("{stage}.{key}"), values, limit)?;
    }
    Ok(())
}

fn compare_scalars(
    comparison: &mut Comparison<'_>,
    run: &Run,
    steps: usize,
) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let limit = folder.tolerance("loss", comparison.precision)?;
    let Some(scalars) = folder.find("scalars") else { return Ok(()) };
    let losses = &run.series["loss"];
    for (name, entry) in scalars.entries()? {
        match name {
            "first_loss" => comparison.numbers(&entry, &losses[..1], limit)?,
            "last_loss" => comparison.numbers(&entry, &losses[losses.len() - 1..], limit)?,
            "largest_parameter_change" => {
                let floor = parameter_limit(comparison, "final")?;
                comparison.rounded(&entry, largest_change(run, steps), floor)?;
            }
            _ => return Err(entry.unknown()),
        }
    }
    Ok(())
}

fn largest_change(run: &Run, steps: usize) -> f64 {
    let (first, last) = (&run.snapshots[&0], &run.snapshots[&steps]);
    let changes = first.iter().map(|(name, before)| {
        let pairs = before.values.iter().zip(&last[name].values);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    });
    changes.fold(0.0, f64::max)
}

/// The adapter folder that the recorded run wrote: cut to the kept ranks, in single precision.
fn compare_written(
    comparison: &mut Comparison<'_>,
    run: &Run,
    steps: usize,
    written: &PeftAdapter,
) -> Result<(), VerifyError> {
    let tolerance = parameter_limit(comparison, "final")?;
    let last = &run.snapshots[&steps];
    let kept = run.decisions.as_ref().map(super::allocation::Decisions::kept);
    if let (Some(kept), PeftMethod::AdaLora(settings)) = (&kept, &written.config.method) {
        let stated: BTreeMap<&str, &Vec<bool>> =
            settings.kept.iter().flatten().map(|(path, flags)| (path.as_str(), flags)).collect();
        let all = vec![true; settings.init_r];
        let same = kept.iter().all(|(path, flags)| *stated.get(path).unwrap_or(&&all) == flags)
            && stated.keys().all(|path| kept.contains_key(path));
        comparison.exact("adapter_final.rank_pattern", same, None);
    }
    let adalora = kept.is_some();
    let mut found = BTreeMap::new();
    for (path, module) in &written.modules {
        let flags = kept.as_ref().and_then(|kept| kept.get(path.as_str()));
        for (factor, tensor) in factors(module) {
            let name = format!("{path}.{factor}");
            found.insert(file_key(&name, adalora), (host(&name, tensor)?, flags));
        }
    }
    for (name, tensor) in &written.saved {
        found.insert(file_key(name, adalora), (host(name, tensor)?, None));
    }
    let complete = found.keys().eq(last.keys());
    comparison.exact("adapter_final", complete, Some("names of the tensors".to_owned()));
    for (key, (stored, flags)) in found {
        let Some(values) = last.get(&key) else { continue };
        let cut = match flags {
            Some(flags) => cut(values, flags, key.ends_with(".lora_B")),
            None => values.clone(),
        };
        let limit = Limit::Absolute(tolerance + STORED_ROUNDING * stored.largest());
        comparison.pair(&format!("adapter_final.{key}"), &cut, &stored, limit, |_| true);
    }
    Ok(())
}

fn factors(module: &PeftModule) -> impl Iterator<Item = (&'static str, &HostTensor)> {
    let both = [("lora_A", &module.a), ("lora_B", &module.b)];
    both.into_iter().chain(module.e.as_ref().map(|e| ("lora_E", e)))
}

fn host(name: &str, tensor: &HostTensor) -> Result<Values, VerifyError> {
    let values = tensor.to_f64().map_err(|source| VerifyError::Tensor {
        file: "adapter_final".into(),
        name: name.to_owned(),
        source,
    })?;
    Ok(file_shape(name, Values::new(tensor.shape().to_vec(), values)))
}

/// The rows of a matrix whose flag is set, or its columns.
fn cut(matrix: &Values, flags: &[bool], columns: bool) -> Values {
    if columns {
        return cut(&matrix.transposed(), flags, false).transposed();
    }
    let &[rows, width] = matrix.shape.as_slice() else { return matrix.clone() };
    let kept: Vec<usize> = (0..rows).filter(|&row| flags.get(row) == Some(&true)).collect();
    let values = kept.iter().flat_map(|row| matrix.values[row * width..(row + 1) * width].to_vec());
    Values::new([kept.len(), width], values.collect())
}
