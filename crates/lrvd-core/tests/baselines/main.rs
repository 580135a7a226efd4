//! The baselines against outside numbers.

#![allow(missing_docs, clippy::unwrap_used)]

mod adalora;
mod laplace;
mod predictions;

use std::path::Path;

use lrvd_core::noise::{NoiseKey, fill_normal_f64};
use serde_json::Value;

/// The file that `reference.py` wrote.
fn reference() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baselines/reference.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn normals(seed: u64, n: usize) -> Vec<f64> {
    let mut values = vec![0.0; n];
    fill_normal_f64(NoiseKey::new(seed), 0, &mut values);
    values
}

/// Asserts equality relative to the largest expected entry.
#[track_caller]
fn assert_close(what: &str, found: &[f64], expected: &[f64], relative: f64) {
    assert_eq!(found.len(), expected.len(), "length of {what}");
    let scale = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let allowed = if scale > 0.0 { relative * scale } else { 1e-300 };
    for (i, (f, w)) in found.iter().zip(expected).enumerate() {
        assert!((f - w).abs() <= allowed, "{what}[{i}]: {f}, expected {w} (allowed {allowed:e})");
    }
}

/// Both sides compute in float64; the largest entry sets the scale of rounding.
const REFERENCE: f64 = 1e-12;

/// [`assert_close`] against an entry of the reference, a number or a list of them.
#[track_caller]
fn assert_reference(what: &str, found: &[f64], expected: &Value) {
    let expected = if expected.is_number() { vec![number(expected)] } else { numbers(expected) };
    assert_close(what, found, &expected, REFERENCE);
}
