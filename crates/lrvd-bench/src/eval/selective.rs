//! Selective prediction: which answers to give, and what that buys.

use std::collections::BTreeMap;

use lrvd_core::metrics::{Predictions, RiskCoverage};

use super::metrics::Scored;
use crate::data::PreparedTask;
use crate::error::Result;
use crate::record::{SelectiveRecord, SelectiveTarget};

/// Shares of wrong answers for which a threshold is looked up.
const TARGETS: [f64; 4] = [0.01, 0.05, 0.1, 0.2];
const POINTS: usize = 100;

/// Risk against coverage, by number of draws; empty for regression.
pub fn selective_records(
    scored: &BTreeMap<u32, Scored>,
    task: &PreparedTask,
) -> Result<BTreeMap<u32, SelectiveRecord>> {
    if task.goal.is_regression() {
        return Ok(BTreeMap::new());
    }
    let labels: Vec<usize> = task.validation.iter().filter_map(|e| e.label.class()).collect();
    let mut records = BTreeMap::new();
    for (&draws, scored) in scored {
        let predictions = Predictions::new(&scored.outputs, task.labels, &labels)?;
        let correct: Vec<bool> =
            predictions.predicted().iter().zip(&labels).map(|(p, y)| p == y).collect();
        let curve = RiskCoverage::new(&predictions.confidence(), &correct)?;
        let points = curve.points();
        let every = points.len().div_ceil(POINTS).max(1);
        // The last point, full coverage, is always there.
        let kept = points.iter().rev().step_by(every).map(|p| (p.coverage, p.risk));
        let mut thinned: Vec<(f64, f64)> = kept.collect();
        thinned.reverse();
        let targets = TARGETS.into_iter().map(|risk| {
            let found = curve.threshold_for_risk(risk);
            SelectiveTarget {
                risk,
                threshold: found.map(|point| point.threshold),
                coverage: found.map_or(0.0, |point| point.coverage),
            }
        });
        let record =
            SelectiveRecord { area: curve.area(), targets: targets.collect(), curve: thinned };
        records.insert(draws, record);
    }
    Ok(records)
}
