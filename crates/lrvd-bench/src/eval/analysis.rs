//! What the learned ranks look like: relevance statistics and energy curves of every module.

use std::collections::BTreeMap;

use lrvd_burn::adapter::Extension;
use lrvd_burn::host::HostAdapter;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::prune::statistics;
use lrvd_core::energy::{AucRule, Capture, UpdateEnergy, normalised_gap, order_by_statistic};

use crate::error::Result;
use crate::record::{EnergyAuc, EnergyRecord, StatisticRecord};
use crate::settings::ExperimentConfig;

/// The statistic `log α̂` of every rank direction of `model`; `None` without a posterior.
///
/// `removed` are the values that pruned directions had when they went, by module path.
pub fn statistic_record(
    model: &impl AdaptedModel,
    config: &ExperimentConfig,
    removed: &BTreeMap<String, Vec<f64>>,
) -> Result<Option<StatisticRecord>> {
    let present = statistics(model, config.statistic_options())?;
    if present.is_empty() && removed.is_empty() {
        return Ok(None);
    }
    let sorted = |map: BTreeMap<String, Vec<f64>>| {
        map.into_iter()
            .map(|(path, mut values)| {
                values.sort_by(f64::total_cmp);
                (path, values)
            })
            .collect()
    };
    Ok(Some(StatisticRecord {
        name: "log_alpha".to_owned(),
        threshold: Some(config.prune.log_alpha_threshold),
        present: sorted(present),
        removed: sorted(removed.clone()),
    }))
}

/// Energy of the mean update that the first `k` directions capture, for every module of rank 2 or
/// more; the learned order is by the statistic, or by factor norms where there is no posterior.
pub fn energy_records(
    model: &impl AdaptedModel,
    config: &ExperimentConfig,
) -> Result<BTreeMap<String, EnergyRecord>> {
    let learned = statistics(model, config.statistic_options())?;
    let mut hosts = Vec::new();
    model.visit_layers(&mut |path, layer| {
        // The noise of the baselines changes what the factors mean: their product alone is not the
        // update.
        let plain = matches!(
            layer.extension(),
            None | Some(Extension::Posterior(_) | Extension::SingularValues(_))
        );
        if let Some(adapter) = layer.low_rank().filter(|a| plain && a.rank() >= 2) {
            hosts.push((path.to_owned(), HostAdapter::read(adapter)));
        }
    });
    let mut records = BTreeMap::new();
    for (path, host) in hosts {
        let folded = folded(&host);
        let (a, b) = folded.factors()?;
        let Ok(energy) = UpdateEnergy::new(a, b) else {
            // Shares are undefined for an update of norm 0.
            continue;
        };
        let magnitude = energy.order_by_norm_product();
        let order = match learned.get(&path) {
            Some(statistic) => order_by_statistic(statistic),
            None => magnitude.clone(),
        };
        let curve = |order: &[usize]| energy.curve(Capture::Residual, order);
        let (svd, learned) = (energy.singular_value_curve(), curve(&order)?);
        let (by_norm, random) = (curve(&magnitude)?, energy.permutation_mean(Capture::Residual));
        let area = |curve: &[f64]| AucRule::Trapezoid.area(curve);
        let auc = EnergyAuc {
            svd: area(&svd)?,
            learned: area(&learned)?,
            magnitude: area(&by_norm)?,
            random: area(&random)?,
            normalised_gap: normalised_gap(area(&learned)?, area(&random)?, area(&svd)?).ok(),
        };
        records.insert(
            path,
            EnergyRecord {
                definition: "residual".to_owned(),
                svd: from_zero(svd),
                learned: from_zero(learned),
                magnitude: from_zero(by_norm),
                random_mean: from_zero(random),
                auc,
            },
        );
    }
    Ok(records)
}

fn folded(host: &HostAdapter) -> HostAdapter {
    let mut folded = host.clone();
    if let Some(e) = folded.e.take() {
        for (row, e) in folded.a.chunks_mut(folded.d_input).zip(e) {
            for value in row {
                *value *= e;
            }
        }
    }
    folded
}

/// The curve with its value 0 at `k = 0`.
fn from_zero(curve: Vec<f64>) -> Vec<f64> {
    std::iter::once(0.0).chain(curve).collect()
}
