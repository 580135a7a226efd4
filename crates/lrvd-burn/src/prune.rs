//! Physical pruning: smaller tensors, smaller optimiser state, the same schedule and scale.

use std::collections::{BTreeMap, BTreeSet};

use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};

use crate::adapter_axes::RankAxis;
use crate::error::AdapterError;
use crate::host::HostAdapter;
use crate::model::AdaptedModel;
use crate::optimizer::AdamW;

/// What one prune event keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PruneEvent {
    /// Kept rank directions by module path, for every adapter with a posterior that has ranks left.
    pub kept: BTreeMap<String, Vec<usize>>,
    /// The statistic of every direction before the event.
    pub statistics: BTreeMap<String, Vec<f64>>,
    /// Paths that lost at least one direction.
    pub changed: BTreeSet<String>,
}

/// The relevance statistic `log α̂` of every rank direction, by module path.
///
/// # Errors
///
/// [`AdapterError::Core`] only for adapters whose fields do not belong together.
pub fn statistics(
    model: &impl AdaptedModel,
    options: StatisticOptions,
) -> Result<BTreeMap<String, Vec<f64>>, AdapterError> {
    let mut found = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = &layer.adapter else { return };
        let host = HostAdapter::read(adapter);
        let statistic = host
            .posterior()
            .map_err(lrvd_core::Error::from)
            .and_then(|posterior| posterior.map(|p| rank_statistic(&p, options)).transpose());
        match statistic {
            Ok(Some(statistic)) => {
                found.insert(path.to_owned(), statistic);
            }
            Ok(None) => {}
            Err(error) => outcome = Err(error),
        }
    });
    outcome?;
    Ok(found)
}

/// Decides what `rule` keeps of every adapter with a posterior.
///
/// # Errors
///
/// As [`statistics`].
pub fn plan(
    model: &impl AdaptedModel,
    rule: &PruneRule,
    options: StatisticOptions,
) -> Result<PruneEvent, AdapterError> {
    let statistics = statistics(model, options)?;
    let mut event = PruneEvent::default();
    for (path, statistic) in &statistics {
        let kept = rule.plan_adapter(statistic)?.kept().to_vec();
        if kept.len() < statistic.len() {
            event.changed.insert(path.clone());
        }
        event.kept.insert(path.clone(), kept);
    }
    event.statistics = statistics;
    Ok(event)
}

/// Shrinks the changed adapters of `model` to what `event` keeps, and with them the moments.
///
/// Kept values, their moments and counts are unchanged, the scaling stays `lora_alpha / r0`, and
/// an adapter without ranks is gone: its layer does the base product alone. Training on equals
/// training a model of the pruned size with the same state, bit for bit on the CPU.
pub fn apply(model: &mut impl AdaptedModel, event: &PruneEvent, optimizer: Option<&mut AdamW>) {
    if let Some(optimizer) = optimizer {
        let mut axes: BTreeMap<String, Vec<(String, RankAxis, Vec<usize>)>> = BTreeMap::new();
        model.visit_parameters(&mut |p| {
            if let Some((path, suffix)) = p.name.rsplit_once('.')
                && event.changed.contains(path)
                && let Some(axis) = RankAxis::of(suffix)
            {
                let entry = (p.name.to_owned(), axis, p.value.shape());
                axes.entry(path.to_owned()).or_default().push(entry);
            }
        });
        for (path, axes) in axes {
            optimizer.select_ranks(&axes, &event.kept[&path]);
        }
    }
    model.visit_layers_mut(&mut |path, layer| {
        if event.changed.contains(path) {
            layer.select_ranks(&event.kept[path]);
        }
    });
}
