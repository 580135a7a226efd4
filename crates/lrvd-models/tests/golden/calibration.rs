//! Accuracy, likelihood, calibration error and Brier score of recorded probabilities.

use anyhow::Result;
use lrvd_burn::files::WeightStore;
use lrvd_core::metrics::{Binning, DEFAULT_BINS, Predictions, ReliabilityBin};
use serde_json::Value;

use crate::case::{Case, Limit, Values};
use crate::json::Json;

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let file = case.inputs(&[])?;
    let limit = Limit::Absolute(case.json.at(&["tolerances", "atol_f64"])?.number()?);
    let items = case.json.at(&["items"])?.list()?.clone();
    items.iter().try_for_each(|item| check(case, &file, item, limit))
}

fn check(case: &mut Case, file: &WeightStore, item: &Value, limit: Limit) -> Result<()> {
    let name = item.at(&["name"])?.text()?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let probabilities = Values::read(file, &key("probs"))?;
    let labels = Values::read(file, &key("labels"))?.values;
    let labels: Vec<usize> = labels.into_iter().map(|label| label as usize).collect();
    let classes = probabilities.shape[1];
    let predictions = Predictions::new(&probabilities.values, classes, &labels)?;
    let diagram = predictions.reliability(DEFAULT_BINS, Binning::RightClosed)?;
    let scalars = [
        ("n", labels.len() as f64, Limit::EXACT),
        ("classes", classes as f64, Limit::EXACT),
        ("accuracy", predictions.accuracy(), limit),
        ("nll", predictions.nll_unclamped(), limit),
        ("nll_clamped_1e-12", predictions.nll(), limit),
        ("ece_15", diagram.ece(), limit),
        ("brier_sum_over_classes", predictions.brier(), limit),
        ("brier_mean_over_classes", predictions.brier() / classes as f64, limit),
    ];
    for (stated, entry) in item.entries()? {
        if !matches!(stated, "name" | "note" | "notes") {
            let found = scalars.iter().find(|(known, ..)| *known == stated);
            let (_, found, limit) = *found.unwrap_or(&("", f64::NAN, limit));
            case.numbers(&key(stated), entry, &[found], limit)?;
        }
    }
    let bins = |of: fn(&ReliabilityBin) -> f64| Values::list(diagram.bins.iter().map(of).collect());
    let predicted = predictions.predicted().into_iter().map(|class| class as f64).collect();
    for (suffix, found, limit) in [
        ("prediction", Values::list(predicted), Limit::EXACT),
        ("confidence", Values::list(predictions.confidence()), limit),
        ("bin_count", bins(|bin| bin.count as f64), Limit::EXACT),
        ("bin_correct", bins(|bin| bin.correct as f64), Limit::EXACT),
        ("bin_confidence_sum", bins(|bin| bin.confidence_sum), limit),
    ] {
        case.tensor(&key(suffix), &found, limit)?;
    }
    Ok(())
}
