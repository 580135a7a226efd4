//! Physical pruning: smaller tensors, smaller optimiser state, the same schedule and scale.

use std::collections::{BTreeMap, BTreeSet};

use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};

use crate::adapter::{Extension, Posterior, RankCut};
use crate::error::Error;
use crate::host::HostAdapter;
use crate::model::NamedModule;
use crate::optimizer::{AdamW, NamedGradients};

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
pub fn statistics(
    model: &impl NamedModule,
    options: StatisticOptions,
) -> Result<BTreeMap<String, Vec<f64>>, Error> {
    let mut found = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let host = HostAdapter::read(adapter);
        let statistic = host
            .posterior()
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
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        let Some((adapter, of_layer)) = layer.low_rank().zip(statistics.get(path)) else { return };
        // A parameter is finite; noise relative to the energy of a mean of zero is not.
        let is_parameter = matches!(adapter.posterior(), Some(Posterior::NoiseToSignal(_)));
        let most = if is_parameter { f64::MAX } else { f64::INFINITY };
        if let Some(rank) = of_layer.iter().position(|found| !(f64::MIN..=most).contains(found)) {
            let value = of_layer[rank];
            outcome = Err(Error::Undefined(format!(
                "the relevance statistic of rank {rank} of adapter `{path}` is {value}, expected a finite number"
            )));
        }
    });
    outcome?;
    model.visit_layers_mut(&mut |path, layer| {
        let Some(statistic) = statistics.get(path).filter(|found| !found.is_empty()) else {
            return;
        };
        layer.edit(|adapter| {
            if let Some(Extension::Posterior(posterior)) = &mut adapter.extension {
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
    optimizer: Option<&mut AdamW>,
    gradients: Option<&mut NamedGradients>,
) {
    let mut cuts = Vec::new();
    model.visit_layers(&mut |path, layer| {
        if event.changed.contains(path) {
            layer.each_adapter_parameter(&mut |schema, value| {
                let name = format!("{path}.{}", schema.name);
                let (shape, kept) = (value.shape(), event.kept[path].as_slice());
                cuts.push(RankCut { name, schema, shape, kept });
            });
        }
    });
    if let Some(optimizer) = optimizer {
        optimizer.cut(&cuts);
    }
    if let Some(gradients) = gradients {
        gradients.cut(&cuts);
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
    use burn::tensor::{Device, Tensor};
    use lrvd_core::family::VariationalFamily;
    use lrvd_core::prune::StatisticAggregate;

    use super::*;
    use crate::adapter::{AdaptedLinear, LowRankAdapter, RankParameters};
    use crate::host::values;

    /// A layer of rank 2 with `noise`.
    fn layer(family: VariationalFamily, noise: [f64; 2]) -> AdaptedLinear {
        let device = Device::flex();
        let parameters =
            RankParameters { value: Param::from_tensor(Tensor::from_data(noise, &device)) };
        let posterior = match family {
            VariationalFamily::NoiseToSignal => Posterior::NoiseToSignal(parameters),
            _ => Posterior::RankVariance(parameters),
        };
        let ones = |shape: [usize; 2]| Param::from_tensor(Tensor::ones(shape, &device));
        let mut adapter = LowRankAdapter::new(ones([3, 2]), ones([2, 4]), 1.0);
        adapter.extension = Some(Extension::Posterior(posterior));
        let mut layer = AdaptedLinear::new(Tensor::ones([3, 4], &device), None);
        layer.attach("layer", adapter, 2).unwrap();
        layer
    }

    fn noise(layer: &AdaptedLinear) -> Vec<f64> {
        match layer.low_rank().unwrap().posterior().unwrap() {
            Posterior::RankVariance(p) | Posterior::NoiseToSignal(p) => values(p.value.val()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_relevance_is_set_within_the_range_of_the_family() {
        let options = StatisticOptions::default();
        let mut ratio = layer(VariationalFamily::NoiseToSignal, [-1.0, 3.0]);
        set_relevance(&mut ratio, -30.0, options).unwrap();
        assert_eq!(noise(&ratio), [-30.0; 2]);
        set_relevance(&mut ratio, 50.0, options).unwrap();
        assert_eq!(noise(&ratio), [40.0; 2]);
        let mut variance = layer(VariationalFamily::RankVariance, [-1.0, 0.5]);
        set_relevance(&mut variance, -30.0, options).unwrap();
        assert_eq!(noise(&variance), [-20.0; 2]);
    }

    #[test]
    fn a_statistic_without_a_value_is_an_error_and_changes_nothing() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut ratio = layer(VariationalFamily::NoiseToSignal, [-1.0, value]);
            let outcome = set_relevance(&mut ratio, -8.0, StatisticOptions::default());
            assert!(outcome.unwrap_err().to_string().contains("statistic of rank 1 of adapter"));
            assert_eq!(noise(&ratio)[0], -1.0);
        }
    }

    #[test]
    fn a_rank_without_a_mean_gets_the_least_noise() {
        let energy = StatisticAggregate::Energy;
        let options = StatisticOptions { aggregate: energy, ..StatisticOptions::default() };
        let mut layer = layer(VariationalFamily::RankVariance, [-1.0, 0.5]);
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
