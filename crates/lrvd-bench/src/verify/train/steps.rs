//! The loop: forward, backward, clip, update, allocate.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use lrvd_burn::adalora::{AdaLora, orthogonality};
use lrvd_burn::optimizer::{AdamW, NamedGradients};
use lrvd_burn::sampling::Pass;

use super::super::inputs::Batch;
use super::super::model::Base;
use super::super::peft::trained_values;
use super::super::{Values, VerifyError};
use super::allocation::Decisions;
use super::settings::Settings;

/// What a run leaves behind.
pub(super) struct Run {
    /// One value per step, by name of the recorded tensor.
    pub(super) series: BTreeMap<&'static str, Vec<f64>>,
    /// All trained tensors after the step counts asked for, by name in an adapter file.
    pub(super) snapshots: BTreeMap<usize, BTreeMap<String, Values>>,
    pub(super) decisions: Option<Decisions>,
}

/// Trains `base`, whose adapter is attached, on `batches`.
///
/// `wanted` are the step counts after which the trained tensors are kept.
pub(super) fn run(
    base: &mut Base,
    batches: &[Batch],
    settings: &Settings,
    wanted: &[usize],
) -> Result<Run, VerifyError> {
    let Base { model, device, dtype, .. } = base;
    let adalora = settings.allocation.is_some();
    let mut optimizer = AdamW::new(settings.adamw, settings.groups);
    let mut allocator = match &settings.allocation {
        Some(allocation) => {
            let allocator = AdaLora::new(allocation.config, model)?;
            let decisions = Decisions::new(allocator.paths(), allocation.config);
            Some((allocator, allocation, decisions))
        }
        None => None,
    };
    let mut series: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    let mut snapshots = BTreeMap::new();
    if wanted.contains(&0) {
        snapshots.insert(0, trained_values(model, adalora));
    }
    for (t, batch) in batches.iter().enumerate() {
        let mut record = |name, value| series.entry(name).or_default().push(value);
        let logits = model.forward(&batch.upload(device, *dtype), &Pass::mean());
        let loss = batch.loss(logits).expect("the caller checks that there are labels");
        record("loss", scalar(&loss));
        let mut total = loss.clone();
        if let Some((_, allocation, _)) = &allocator
            && let Some(penalty) = orthogonality(model)
        {
            record("orthogonal_regularizer", scalar(&penalty));
            total = total + penalty.mul_scalar(allocation.config.orth_reg_weight);
        }
        record("total_loss", scalar(&total));
        let penalised = settings.allocation.as_ref().is_some_and(|a| a.penalised);
        let gradients = if penalised { total.backward() } else { loss.backward() };
        let mut gradients = NamedGradients::collect(model, &gradients);
        let norm = gradients.global_norm();
        record("grad_norm", norm);
        let coefficient = settings.clip.map_or(1.0, |limit| gradients.clip(norm, limit));
        record("clip_coefficient", coefficient);
        let factor = settings.schedule.factor(t as u32);
        record("lr_adapter", settings.groups.adapter.learning_rate * factor);
        record("lr_head", settings.groups.head.learning_rate * factor);
        optimizer.step(model, &gradients, factor);
        if let Some((allocator, allocation, decisions)) = &mut allocator {
            let step = allocation.first_step.saturating_add(t as u32);
            let made = allocator.update(step, model, &gradients)?;
            decisions.record(step, &made, allocator, model);
        }
        if wanted.contains(&(t + 1)) {
            snapshots.insert(t + 1, trained_values(model, adalora));
        }
    }
    Ok(Run { series, snapshots, decisions: allocator.map(|(_, _, decisions)| decisions) })
}

fn scalar(tensor: &Tensor<1>) -> f64 {
    tensor.clone().into_scalar::<f64>()
}
