//! Accuracy, likelihood, calibration error and Brier score of recorded probabilities.

use lrvd_burn::files::TensorFile;
use lrvd_core::metrics::{Binning, DEFAULT_BINS, MetricError, Predictions};

use super::super::{
    Comparison, Entry, Limit, Values, VerifyError, bound, read_finite, read_indices, same_shape,
};
use super::each_item;

pub(in super::super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let limit = Limit::Absolute(bound(&folder.get("tolerances")?.get("atol_f64")?)?);
    each_item(comparison, |comparison, file, item| check_item(comparison, file, item, limit))
}

fn check_item(
    comparison: &mut Comparison<'_>,
    file: &TensorFile,
    item: &Entry<'_>,
    limit: Limit,
) -> Result<(), VerifyError> {
    let name = item.get("name")?.text()?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let failed = |source: MetricError| VerifyError::Metric { item: name.to_owned(), source };
    let probabilities = read_finite(file, &key("probs"))?;
    let [n, n_classes] = probabilities.matrix(file.path(), &key("probs"))?;
    let (shape, labels) = read_indices(file, &key("labels"), n_classes)?;
    same_shape(file, &key("labels"), &[n], &shape)?;
    let predictions =
        Predictions::new(&probabilities.values, n_classes, &labels).map_err(failed)?;
    let diagram = predictions.reliability(DEFAULT_BINS, Binning::RightClosed).map_err(failed)?;
    let scalars = [
        ("n", (n as f64, Limit::EXACT)),
        ("classes", (n_classes as f64, Limit::EXACT)),
        ("accuracy", (predictions.accuracy(), limit)),
        ("nll", (predictions.nll_unclamped(), limit)),
        ("nll_clamped_1e-12", (predictions.nll(), limit)),
        ("ece_15", (diagram.ece(), limit)),
        ("brier_sum_over_classes", (predictions.brier(), limit)),
        ("brier_mean_over_classes", (predictions.brier_mean_over_classes(), limit)),
    ];
    for (name, entry) in item.entries()? {
        if !matches!(name, "name" | "note" | "notes") {
            let &(found, limit) = entry.among(name, &scalars)?;
            comparison.numbers(&entry, &[found], limit)?;
        }
    }
    let bins = |of: fn(&lrvd_core::metrics::ReliabilityBin) -> f64| {
        Values::list(diagram.bins.iter().map(of).collect())
    };
    let classes = predictions.predicted().into_iter().map(|class| class as f64).collect();
    let tensors = [
        ("prediction", Values::list(classes), Limit::EXACT),
        ("confidence", Values::list(predictions.confidence()), limit),
        ("bin_count", bins(|bin| bin.count as f64), Limit::EXACT),
        ("bin_correct", bins(|bin| bin.correct as f64), Limit::EXACT),
        ("bin_confidence_sum", bins(|bin| bin.confidence_sum), limit),
    ];
    for (suffix, found, limit) in &tensors {
        comparison.required(&key(suffix), found, *limit)?;
    }
    Ok(())
}
