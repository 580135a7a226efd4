//! Physical pruning: smaller tensors, smaller optimizer state, the same schedule and scale.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::Tensor;
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};

use crate::adapter::{Attached, Extension, LowRankAdapter, NoiseMap};
use crate::error::Error;
use crate::model::{NamedModule, adapters};
use crate::optimizer::{AdamW, NamedGradients};

/// Ranks that a prune keeps, with the statistics that decided.
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
pub fn statistics(
    model: &impl NamedModule,
    options: StatisticOptions,
) -> Result<BTreeMap<String, Vec<f64>>, Error> {
    let mut found = BTreeMap::new();
    for attached in adapters(model) {
        let adapter = attached.adapter.as_ref();
        let posterior = adapter.map(LowRankAdapter::host_posterior).transpose()?;
        if let Some(posterior) = posterior.flatten() {
            found.insert(attached.path.to_string(), rank_statistic(&posterior, options)?);
        }
    }
    Ok(found)
}

/// Moves the noise of every rank to where its statistic is `log_alpha`, the means as they are:
/// `ℓ ← clamp(ℓ + log_alpha − statistic)`, over all entries of the rank alike.
///
/// A rank without a mean has an infinite statistic and gets the least noise. On an error the model is unchanged.
pub(crate) fn set_relevance(
    model: &mut impl NamedModule,
    log_alpha: f64,
    options: StatisticOptions,
) -> Result<(), Error> {
    let statistics = statistics(model, options)?;
    for attached in adapters(model) {
        let Some(found) = statistics.get(&*attached.path) else { continue };
        // A parameter is finite; noise relative to the energy of a mean of zero is not.
        let posterior = attached.adapter.as_ref().and_then(LowRankAdapter::posterior);
        let is_parameter = posterior.is_some_and(|noise| noise.map() == NoiseMap::Relative);
        let most = if is_parameter { f64::MAX } else { f64::INFINITY };
        if let Some(rank) = found.iter().position(|found| !(f64::MIN..=most).contains(found)) {
            let name = format!("relevance statistic of {}", attached.path);
            return Err(lrvd_core::Error::entry(name, rank, found[rank], "a finite number").into());
        }
    }
    model.visit_layers_mut(&mut |path, layer| {
        let Some(statistic) = statistics.get(path) else { return };
        layer.edit(|adapter| {
            if let Some(Extension::Gaussian(posterior)) = &mut adapter.extension {
                let shift: Vec<f64> = statistic.iter().map(|found| log_alpha - found).collect();
                posterior.shift(&shift);
            }
        });
    });
    Ok(())
}

/// Decides what `rule` keeps of every adapter with a posterior.
pub fn plan(
    model: &impl NamedModule,
    rule: &PruneRule,
    options: StatisticOptions,
) -> Result<PruneEvent, Error> {
    let statistics = statistics(model, options)?;
    let mut event = PruneEvent::default();
    for (path, statistic) in &statistics {
        let kept = rule.kept(statistic)?;
        if kept.len() < statistic.len() {
            event.changed.insert(path.clone());
        }
        event.kept.insert(path.clone(), kept);
    }
    event.statistics = statistics;
    Ok(event)
}

/// Shrinks the changed adapters of `model` to what `event` keeps, and with them the moments and, for
/// a prune between backward pass and update, the `gradients` of the step.
///
/// Kept values, their moments, counts and gradients are unchanged, the scaling stays
/// `lora_alpha / r0`, and an adapter without ranks is gone: its layer does the base product alone.
/// Training on equals training a model of the pruned size with the same state, bit for bit on the
/// CPU.
pub fn apply(
    model: &mut impl NamedModule,
    event: &PruneEvent,
    mut optimizer: Option<&mut AdamW>,
    mut gradients: Option<&mut NamedGradients>,
) {
    for Attached { path, adapter, .. } in adapters(model) {
        let Some(mut adapter) = adapter.filter(|_| event.changed.contains(&*path)) else {
            continue;
        };
        let kept = event.kept[&*path].as_slice();
        adapter.each(&mut |schema, value| {
            let (name, shape) = (format!("{path}.{}", schema.name), value.shape());
            let cut = |flat: Tensor<1>| schema.cut_flat(flat, &shape, kept);
            if let Some(optimizer) = &mut optimizer {
                optimizer.cut(&name, cut);
            }
            if let Some(gradients) = &mut gradients {
                gradients.cut(&name, cut);
            }
        });
    }
    model.visit_layers_mut(&mut |path, layer| {
        if event.changed.contains(path) {
            layer.select_ranks(&event.kept[path]);
        }
    });
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::module::Param;
    use burn::tensor::Device;
    use lrvd_core::prune::StatisticAggregate;

    use super::*;
    use crate::adapter::{AdaptedLinear, Gaussian};

    /// A layer of rank 2 with `noise`.
    fn layer(map: NoiseMap, noise: [f64; 2]) -> AdaptedLinear {
        let device = Device::flex();
        let value = Param::from_tensor(Tensor::from_data(noise, &device));
        let ones = |shape: [usize; 2]| Param::from_tensor(Tensor::ones(shape, &device));
        let mut adapter = LowRankAdapter::new(ones([3, 2]), ones([2, 4]), 1.0);
        adapter.extension = Some(Extension::Gaussian(Gaussian::per_rank(map, true, value)));
        let mut layer = AdaptedLinear::new(Tensor::ones([3, 4], &device), None);
        layer.attach("", adapter, 2).unwrap();
        layer
    }

    fn noise(layer: &AdaptedLinear) -> Vec<f64> {
        layer.low_rank().unwrap().host_posterior().unwrap().unwrap().noise().a.clone()
    }

    #[test]
    fn a_relevance_is_set_within_the_range_of_the_family() {
        let maps = [NoiseMap::Relative, NoiseMap::Additive];
        let [mut ratio, mut variance] = maps.map(|map| layer(map, [-1.0, 0.5]));
        for (layer, log_alpha, expected) in
            [(&mut ratio, -30.0, -30.0), (&mut variance, -30.0, -20.0)]
        {
            set_relevance(layer, log_alpha, StatisticOptions::default()).unwrap();
            assert_eq!(noise(layer), [expected; 2]);
        }
        set_relevance(&mut ratio, 50.0, StatisticOptions::default()).unwrap();
        assert_eq!(noise(&ratio), [40.0; 2]);
    }

    #[test]
    fn a_statistic_without_a_value_is_an_error_and_changes_nothing() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut ratio = layer(NoiseMap::Relative, [-1.0, value]);
            let outcome = set_relevance(&mut ratio, -8.0, StatisticOptions::default());
            assert!(outcome.unwrap_err().to_string().contains("at index 1, expected a finite"));
            assert_eq!(noise(&ratio)[0], -1.0);
        }
    }

    #[test]
    fn a_rank_without_a_mean_gets_the_least_noise() {
        let energy = StatisticAggregate::Energy;
        let options = StatisticOptions { aggregate: energy, ..StatisticOptions::default() };
        let mut layer = layer(NoiseMap::Additive, [-1.0, 0.5]);
        let device = Device::flex();
        layer.edit(|adapter| {
            adapter.a = Param::from_tensor(Tensor::from_data([[1.0, 0.0]; 3], &device));
            adapter.b = Param::from_tensor(Tensor::from_data([[1.0; 4], [0.0; 4]], &device));
        });
        set_relevance(&mut layer, -8.0, options).unwrap();
        assert_eq!(noise(&layer)[1], -20.0);
        assert!((noise(&layer)[0] + 8.0).abs() < 1e-5);
    }
}
