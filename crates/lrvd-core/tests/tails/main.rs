//! Tail probabilities and sums of exponentials at the ends of their ranges, against outside numbers: `reference.json`, which
//! `reference.py` wrote with mpmath 1.4.1 (60 digits).

#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::slice::from_ref;

use lrvd_core::kl::{ArdPrior, kl_fit, scale_kl};
use lrvd_core::metrics::{Aurocs, RiskCoverage, auroc, log_softmax, mean_probability};
use lrvd_core::special::{binomial_cdf, digamma, ln_gamma, logistic, softplus};
use serde_json::Value;

fn reference(name: &str) -> Vec<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tails/reference.json");
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    serde_json::from_value(all[name].clone()).unwrap()
}

fn rows(name: &str) -> Vec<Vec<f64>> {
    let number = |value: &Value| value.as_f64().unwrap();
    reference(name).iter().map(|row| row.iter().map(number).collect()).collect()
}

fn list(value: &Value) -> Vec<f64> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Asserts `f(x) = y` for every row `[x, y]`, relative to `y`.
#[track_caller]
fn assert_values(name: &str, relative: f64, f: impl Fn(f64) -> f64) {
    for row in rows(name) {
        let (found, expected) = (f(row[0]), row[1]);
        let allowed = relative * expected.abs();
        assert!((found - expected).abs() <= allowed, "{name}({}): {found}, {expected}", row[0]);
    }
}

/// `n` rows of falling confidence, of which `errors` are wrong, spread evenly.
fn spread(n: usize, errors: usize) -> RiskCoverage {
    let confidence: Vec<f64> = (0..n).map(|i| -(i as f64)).collect();
    let correct: Vec<bool> = (0..n).map(|i| (i + 1) * errors / n == i * errors / n).collect();
    RiskCoverage::new(&confidence, &correct).unwrap()
}

#[test]
fn binomial_tails_on_the_grid_of_sizes_rates_and_targets() {
    for row in rows("binomial") {
        let (k, n, p, expected) = (row[0] as usize, row[1] as usize, row[2], row[3]);
        let found = binomial_cdf(k, n, p);
        // A lower tail keeps its relative accuracy; what is below the range of `f64` is 0.
        let allowed = if expected < 0.5 { 1e-7 * expected + 1e-300 } else { 1e-8 };
        assert!((found - expected).abs() <= allowed, "{k} of {n} at {p}: {found}, {expected}");
    }
}

#[test]
fn what_the_grid_certifies_is_below_its_target() {
    for row in rows("binomial") {
        let (errors, n, target, tail) = (row[0] as usize, row[1] as usize, row[2], row[3]);
        // A curve of a million points takes seconds in a debug build.
        if n > 100_000 {
            continue;
        }
        let curve = spread(n, errors);
        let deltas = if n > 10_000 { &[0.05][..] } else { &[0.0, 0.05, 0.5, 0.9, 1.0] };
        for &delta in deltas {
            let found = curve.certified(target, delta).unwrap();
            if let Some(point) = found {
                let tail = binomial_cdf(point.errors, point.accepted, target);
                assert!(point.risk <= target && delta > 0.0, "{n} {errors} {target} {delta}");
                assert!(tail <= delta, "{n} {errors} {target} {delta}: {tail}");
            }
            // Errors are spread, so that a part is as wrong as the whole.
            let is_worse = errors as f64 > 1.5 * target * n as f64;
            assert!(!(is_worse && delta <= 0.05 && found.is_some()), "{n} {errors} {target}");
            let all_pass = delta == 0.05 && tail < 1e-6;
            let all = found.is_some_and(|point| point.accepted == n);
            assert!(all || !all_pass, "{n} {errors} {target}: {found:?}");
        }
    }
}

#[test]
fn a_model_that_is_wrong_on_two_fifths_of_the_rows_certifies_nothing() {
    for (n, errors, target) in [
        (10_000, 3_962, 0.05),
        (300, 150, 0.001),
        (2_000, 400, 0.01),
        (3_000, 600, 0.02),
        (6_000, 1_200, 0.05),
        (9_815, 1_963, 0.05),
        (3_000, 900, 0.05),
        (9_815, 1_472, 0.05),
    ] {
        for delta in [0.0, 1e-12, 0.05, 0.5] {
            let found = spread(n, errors).certified(target, delta).unwrap();
            assert_eq!(found, None, "{errors} of {n} at {target}, {delta}");
        }
        // All of one confidence: a single threshold.
        let correct: Vec<bool> = (0..n).map(|i| i >= errors).collect();
        let flat = RiskCoverage::new(&vec![0.5; n], &correct).unwrap();
        assert_eq!(flat.certified(target, 0.05).unwrap(), None);
    }
    // As many right rows as make (1 − p)^n underflow say nothing for certain.
    assert_eq!(spread(200_000, 0).certified(0.01, 0.0).unwrap(), None);
}

#[test]
fn functions_of_one_number() {
    assert_values("logistic", 1e-15, logistic);
    assert_values("softplus", 1e-15, softplus);
    assert_values("ln_gamma", 1e-14, ln_gamma);
    assert_values("digamma", 1e-14, digamma);
    assert_values("kl_fit", 1e-14, kl_fit);
}

#[test]
fn sums_of_exponentials() {
    for row in reference("log_softmax") {
        let (logits, expected) = (list(&row[0]), list(&row[1]));
        let found = log_softmax(&logits, logits.len()).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            let allowed = 1e-15 * (1.0 + expected.abs());
            assert!((found - expected).abs() <= allowed, "{logits:?}: {found}, {expected}");
        }
        let mean = mean_probability(&found, 1, logits.len()).unwrap();
        assert!((mean.iter().sum::<f64>() - 1.0).abs() < 1e-14);
    }
}

#[test]
fn divergences_of_a_hierarchical_prior() {
    for row in rows("scale_kl") {
        let prior = ArdPrior::InverseGamma { shape: row[3], rate: row[4] };
        let found = scale_kl(prior, row[0] as usize, row[1], row[2]).unwrap();
        let allowed = 1e-9 * (1.0 + row[5].abs());
        assert!((found - row[5]).abs() <= allowed, "{row:?}: {found}");
    }
    assert!(scale_kl(ArdPrior::InverseGamma { shape: 1e7, rate: 1.0 }, 1, 1.0, 0.0).is_err());
}

#[test]
fn areas_of_scores_that_are_far_apart_or_nearly_equal() {
    for row in reference("areas") {
        let (inside, outside) = (list(&row[0]), list(&row[1]));
        let (area, error) = (row[2].as_f64().unwrap(), row[3].as_f64().unwrap());
        let found = Aurocs::new(from_ref(&inside), from_ref(&outside)).unwrap();
        assert!((found.areas[0] - area).abs() < 1e-14, "{}, {area}", found.areas[0]);
        assert!((auroc(&inside, &outside).unwrap() - area).abs() < 1e-14);
        assert!(
            (found.standard_error(0) - error).abs() < 1e-9,
            "{} {error}",
            found.standard_error(0)
        );
    }
}
