//! Metrics of the golden case `bayes/calibration`: every item and every tensor, at the tolerance it states.
//!
//! The folder comes from another implementation (float64); definitions and versions are in its `expected.json`.

#![allow(missing_docs, clippy::unwrap_used)]

use lrvd_core::metrics::{Binning, DEFAULT_BINS, Predictions};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

const FOLDER: &str = "tests/golden/bayes/calibration";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(name)
}

fn words(file: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Vec<[u8; 8]> {
    let tensor = file.tensor(name).unwrap();
    assert_eq!(tensor.dtype(), dtype, "{name}");
    tensor.data().chunks_exact(8).map(|bytes| bytes.try_into().unwrap()).collect()
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    words(file, name, Dtype::F64).into_iter().map(f64::from_le_bytes).collect()
}

fn counts(file: &SafeTensors<'_>, name: &str) -> Vec<usize> {
    let integers = words(file, name, Dtype::I64).into_iter().map(i64::from_le_bytes);
    integers.map(|value| usize::try_from(value).unwrap()).collect()
}

/// A number of the JSON file, where an infinite one is the text `"inf"`.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

fn check(what: &str, found: f64, wanted: f64, tolerance: f64) {
    let close = found == wanted || (found - wanted).abs() <= tolerance;
    assert!(close, "{what}: {found} instead of {wanted}");
}

#[test]
fn every_item_matches() {
    let expected: Value =
        serde_json::from_slice(&std::fs::read(path("expected.json")).unwrap()).unwrap();
    let tolerance = expected["tolerances"]["atol_f64"].as_f64().unwrap();
    let (inputs, tensors) = (
        std::fs::read(path("inputs.safetensors")).unwrap(),
        std::fs::read(path("expected.safetensors")).unwrap(),
    );
    let inputs = SafeTensors::deserialize(&inputs).unwrap();
    let tensors = SafeTensors::deserialize(&tensors).unwrap();
    let items = expected["items"].as_array().unwrap();
    assert_eq!(items.len(), 11);
    for item in items {
        let name = item["name"].as_str().unwrap();
        let n_classes = usize::try_from(item["classes"].as_u64().unwrap()).unwrap();
        let probabilities = floats(&inputs, &format!("{name}.probs"));
        let labels = counts(&inputs, &format!("{name}.labels"));
        let predictions = Predictions::new(&probabilities, n_classes, &labels).unwrap();
        assert_eq!(predictions.len() as u64, item["n"].as_u64().unwrap());

        let diagram = predictions.reliability(DEFAULT_BINS, Binning::RightClosed).unwrap();
        for (key, found) in [
            ("accuracy", predictions.accuracy()),
            ("nll", predictions.nll_unclamped()),
            ("nll_clamped_1e-12", predictions.nll()),
            ("ece_15", diagram.ece()),
            ("brier_sum_over_classes", predictions.brier()),
            ("brier_mean_over_classes", predictions.brier_mean_over_classes()),
        ] {
            check(&format!("{name}.{key}"), found, number(&item[key]), tolerance);
        }

        assert_eq!(predictions.predicted(), counts(&tensors, &format!("{name}.prediction")));
        assert_eq!(predictions.confidence(), floats(&tensors, &format!("{name}.confidence")));
        let bin_counts: Vec<_> = diagram.bins.iter().map(|bin| bin.count).collect();
        assert_eq!(bin_counts, counts(&tensors, &format!("{name}.bin_count")), "{name}");
        let correct = floats(&tensors, &format!("{name}.bin_correct"));
        let sums = floats(&tensors, &format!("{name}.bin_confidence_sum"));
        for (bin, (correct, sum)) in diagram.bins.iter().zip(correct.into_iter().zip(sums)) {
            check(&format!("{name}.bin_correct"), bin.correct as f64, correct, 0.0);
            check(&format!("{name}.bin_confidence_sum"), bin.confidence_sum, sum, tolerance);
        }
    }
}

#[test]
fn the_other_edge_convention_differs_where_the_notes_say_so() {
    // `notes` of the golden file: with [lo, hi) the item gives 0.182666666667.
    let inputs = std::fs::read(path("inputs.safetensors")).unwrap();
    let inputs = SafeTensors::deserialize(&inputs).unwrap();
    let probabilities = floats(&inputs, "confidence_on_bin_edges.probs");
    let labels = counts(&inputs, "confidence_on_bin_edges.labels");
    let predictions = Predictions::new(&probabilities, 2, &labels).unwrap();
    let found = predictions.ece(DEFAULT_BINS, Binning::LeftClosed).unwrap();
    check("confidence_on_bin_edges, left closed", found, 0.182_666_666_667, 5e-13);
}
