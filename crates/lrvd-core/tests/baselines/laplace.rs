//! Curvature blocks and evidence against dense matrices.

use lrvd_core::baselines::laplace::{
    CurvatureBlock, Evidence, EvidenceOptions, LOW_RANK, WideFactor, WideSide,
};
use serde_json::Value;

use crate::{assert_close, assert_reference, normals, number, numbers, reference};

fn full_block(case: &Value) -> CurvatureBlock {
    let (s, a) = (numbers(&case["output_factor"]), numbers(&case["input_factor"]));
    CurvatureBlock::full(&s, 4, &a, 9).unwrap()
}

fn low_rank_block(case: &Value, side: WideSide) -> CurvatureBlock {
    let mut wide = WideFactor::new(12, LOW_RANK).unwrap();
    let vectors = numbers(&case["vectors"]);
    // Two batches, so that the incremental update is part of what is checked.
    wide.add(1.0, &vectors[..36]).unwrap();
    wide.add(1.0, &vectors[36..]).unwrap();
    CurvatureBlock::low_rank(&wide, side, &numbers(&case["small_factor"]), 3).unwrap()
}

#[test]
fn kronecker_block_of_36_parameters() {
    let case = &reference()["laplace"];
    let delta = number(&case["prior_precision"]);
    let (case, block) = (&case["full"], full_block(&case["full"]));
    assert_eq!((block.n_parameters(), block.n_factor_entries()), (36, 4 * 4 + 9 * 9));
    assert_reference("log det", &[block.log_det(delta).unwrap()], &case["log_det"]);
    let found = block.covariance(&numbers(&case["gradients"]), 3, delta).unwrap();
    assert_reference("covariance", &found, &case["covariance"]);
}

#[test]
fn woodbury_block_of_36_parameters_on_either_side() {
    let case = &reference()["laplace"];
    let delta = number(&case["prior_precision"]);
    let case = &case["low_rank"];
    for (side, name) in [(WideSide::Input, "input"), (WideSide::Output, "output")] {
        let block = low_rank_block(case, side);
        // Four vectors span no more than four columns.
        let kept = 4 * 12 + 3 * 3;
        assert_eq!((block.n_parameters(), block.n_factor_entries()), (36, kept));
        let expected = &case[name];
        assert_reference("log det", &[block.log_det(delta).unwrap()], &expected["log_det"]);
        let gradients = numbers(&case[format!("gradients_{name}")]);
        let found = block.covariance(&gradients, 3, delta).unwrap();
        assert_reference("covariance", &found, &expected["covariance"]);
    }
}

#[test]
fn a_variance_is_not_negative_where_curvature_exceeds_the_prior_by_far() {
    // Along the columns the variance is |G|²/(curvature + δ), which is lost in |G|²/δ − |G|²/δ.
    let (d, r, delta) = (8, 2, 1e-13);
    let mut wide = WideFactor::new(d, 1).unwrap();
    let column: Vec<f64> = normals(23, d).iter().map(|v| 100.0 * v).collect();
    wide.add(1.0, &column).unwrap();
    let small = [1.0, 0.0, 0.0, 1.0];
    let block = CurvatureBlock::low_rank(&wide, WideSide::Output, &small, r).unwrap();
    for seed in 24..74 {
        let of_rank = normals(seed, r);
        let gradient: Vec<f64> =
            column.iter().flat_map(|q| of_rank.iter().map(move |g| q * g)).collect();
        let variance = block.covariance(&gradient, 1, delta).unwrap()[0];
        assert!(variance >= 0.0, "{variance}");
    }
}

#[test]
fn singular_and_empty_factors() {
    // One column, a small factor of rank 1, and no data at all.
    let mut wide = WideFactor::new(3, 2).unwrap();
    let new = |wide: &WideFactor| {
        CurvatureBlock::low_rank(wide, WideSide::Input, &[1.0, 2.0, 2.0, 4.0], 2).unwrap()
    };
    let empty = new(&wide);
    assert!((empty.log_det(0.5).unwrap() - 6.0 * 0.5_f64.ln()).abs() < 1e-14);
    assert_eq!(empty.log_det_slope(0.5), Ok(6.0));
    let covariance = empty.covariance(&[1.0, 0.0, 2.0, 0.0, 0.0, 0.0], 1, 0.5).unwrap();
    assert!((covariance[0] - 10.0).abs() < 1e-14);
    wide.add(1.0, &[1.0, 2.0, 2.0]).unwrap();
    // One eigenvalue 9·5, five of 0.
    let expected = 45.5_f64.ln() + 5.0 * 0.5_f64.ln();
    assert!((new(&wide).log_det(0.5).unwrap() - expected).abs() < 1e-13);
}

#[test]
fn wrong_arguments_are_errors() {
    assert!(CurvatureBlock::full(&[1.0; 3], 2, &[1.0; 4], 2).is_err());
    assert!(CurvatureBlock::full(&[1.0; 4], 2, &[1.0; 3], 2).is_err());
    let wide = WideFactor::new(3, 2).unwrap();
    assert!(CurvatureBlock::low_rank(&wide, WideSide::Input, &[1.0; 3], 2).is_err());
    let block = CurvatureBlock::full(&[1.0], 1, &[2.0], 1).unwrap();
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(block.log_det(wrong).is_err() && block.log_det_slope(wrong).is_err());
        assert!(block.covariance(&[1.0], 1, wrong).is_err());
    }
    assert!(block.covariance(&[1.0; 3], 2, 1.0).is_err());
    let blocks = [block];
    assert!(Evidence::new(&blocks, -1.0, 0.0).is_err());
    assert!(Evidence::new(&blocks, 1.0, f64::NAN).is_err());
    let evidence = Evidence::new(&blocks, 1.0, 0.0).unwrap();
    assert!(evidence.fit(EvidenceOptions { start: 0.0, ..Default::default() }).is_err());
    let still = EvidenceOptions { learning_rate: 0.0, ..Default::default() };
    assert!(evidence.fit(still).is_err());
}

#[test]
fn evidence_and_its_climb() {
    let case = &reference()["laplace"];
    let blocks = [full_block(&case["full"]), low_rank_block(&case["low_rank"], WideSide::Input)];
    let case = &case["evidence"];
    let (squared_norm, log_likelihood) =
        (number(&case["squared_norm"]), number(&case["log_likelihood"]));
    let evidence = Evidence::new(&blocks, squared_norm, log_likelihood).unwrap();
    assert_eq!(evidence.n_parameters(), 72);
    for row in case["curve"].as_array().unwrap() {
        let row = numbers(row);
        assert_close("value", &[evidence.log_evidence(row[0]).unwrap()], &[row[1]], 1e-12);
        assert_close("slope", &[evidence.slope(row[0]).unwrap()], &[row[2]], 1e-11);
    }
    let fit = evidence.fit(EvidenceOptions::default()).unwrap();
    assert_close("Adam", &[fit.prior_precision], &[number(&case["adam_100"])], 1e-9);
    assert_eq!(fit.log_evidence, evidence.log_evidence(fit.prior_precision).unwrap());
    let none =
        evidence.fit(EvidenceOptions { steps: 0, start: 7.0, ..Default::default() }).unwrap();
    assert!((none.prior_precision - 7.0).abs() < 1e-14);
}
