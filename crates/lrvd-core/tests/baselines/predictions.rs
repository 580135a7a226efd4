//! From logits to probabilities: Laplace's three ways, and temperature scaling, against outside numbers.

use lrvd_core::baselines::laplace::{
    CurvatureBlock, LogitCovariance, laplace_bridge, monte_carlo_softmax, probit_softmax,
};
use lrvd_core::baselines::temperature_scaling;
use lrvd_core::linalg::{identity, times_transposed};

use crate::{assert_close, assert_reference, count, normals, number, numbers, reference};

#[test]
fn three_ways_to_probabilities() {
    let case = &reference()["predictive"];
    let [logits, covariance, normals] =
        ["logits", "covariance", "normals"].map(|k| numbers(&case[k]));
    let few = monte_carlo_softmax(&logits, &covariance, &normals).unwrap();
    assert_reference("few draws", &few, &case["monte_carlo"]);
    assert_reference("probit", &probit_softmax(&logits, &covariance).unwrap(), &case["probit"]);
    assert_reference("bridge", &laplace_bridge(&logits, &covariance).unwrap(), &case["bridge"]);
}

#[test]
fn the_covariance_of_logits_is_a_sum_over_blocks() {
    // Curvature 1 everywhere and prior 1: half of J Jᵀ.
    let first = CurvatureBlock::full(&identity(2), 2, &identity(3), 3).unwrap();
    let second = CurvatureBlock::full(&identity(1), 1, &identity(4), 4).unwrap();
    let (j1, j2) = (normals(59, 3 * 6), normals(60, 3 * 4));
    let mut sigma = LogitCovariance::new(3);
    sigma.add(&first, &j1, 1.0).unwrap();
    sigma.add(&second, &j2, 1.0).unwrap();
    let rows: Vec<f64> =
        (0..3).flat_map(|c| [&j1[c * 6..c * 6 + 6], &j2[c * 4..c * 4 + 4]].concat()).collect();
    let gram = times_transposed(&rows, &rows, 3, 10, 3);
    let expected: Vec<f64> = gram.iter().map(|v| 0.5 * v).collect();
    assert_close("sum", sigma.values(), &expected, 1e-14);
    assert!(sigma.add(&first, &j1[1..], 1.0).is_err());
}

#[test]
fn predictions_that_do_not_exist_are_errors() {
    let ways = [
        |f: &[f64], s: &[f64]| monte_carlo_softmax(f, s, &[0.1, 0.2]),
        |f: &[f64], s: &[f64]| probit_softmax(f, s),
        |f: &[f64], s: &[f64]| laplace_bridge(f, s),
    ];
    for way in ways {
        assert!(way(&[1.0, 2.0], &[1.0, 0.0, 0.0, 1.0]).is_ok());
        assert!(way(&[], &[]).is_err());
        assert!(way(&[1.0, f64::NAN], &[1.0, 0.0, 0.0, 1.0]).is_err());
        assert!(way(&[1.0, 2.0], &[1.0, 0.0, 0.0]).is_err());
        assert!(way(&[1.0, 2.0], &[-1.0, 0.0, 0.0, -1.0]).is_err());
    }
    assert!(laplace_bridge(&[1.0, 2.0], &[0.0; 4]).is_err());
    let covariance = [1.0, 0.0, 0.0, 1.0];
    assert!(monte_carlo_softmax(&[1.0, 2.0], &covariance, &[]).is_err());
    assert!(monte_carlo_softmax(&[1.0, 2.0], &covariance, &[0.1; 3]).is_err());
}

#[test]
fn temperature_of_forty_examples() {
    let case = &reference()["temperature"];
    let labels: Vec<usize> = case["labels"].as_array().unwrap().iter().map(count).collect();
    let shares = labels.iter().flat_map(|&label| (0..4).map(move |c| f64::from(c == label)));
    let shares: Vec<f64> = shares.collect();
    let fit = temperature_scaling(&numbers(&case["logits"]), 4, &shares).unwrap();
    assert_reference("nll", &[fit.nll], &case["nll"]);
    assert_reference("nll before", &[fit.nll_before], &case["nll_before"]);
    // L-BFGS stops where the objective is flat to rounding, at √ε.
    assert_close("temperature", &[fit.temperature], &[number(&case["temperature"])], 1e-7);
}
