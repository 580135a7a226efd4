//! Curvature blocks, evidence and their derivatives against dense matrices.

use lrvd_core::baselines::laplace::{
    CurvatureBlock, Evidence, EvidenceOptions, KronBlock, LOW_RANK, LowRankBlock, WideFactor,
    WideSide,
};
use lrvd_core::numeric::Cholesky;
use lrvd_core::numeric::dense::{identity, inverse, transposed_times};
use serde_json::Value;

use crate::support::{
    TestRng, assert_close, assert_reference, gradient_error, number, numbers, reference,
};

fn full_block(case: &Value) -> CurvatureBlock {
    let (s, a) = (numbers(&case["output_factor"]), numbers(&case["input_factor"]));
    KronBlock::new(&s, 4, &a, 9).unwrap().into()
}

fn low_rank_block(case: &Value, side: WideSide) -> CurvatureBlock {
    let mut wide = WideFactor::new(12, LOW_RANK).unwrap();
    let vectors = numbers(&case["vectors"]);
    // Two batches, so that the incremental update is part of what is checked.
    wide.add(1.0, &vectors[..36]).unwrap();
    wide.add(1.0, &vectors[36..]).unwrap();
    LowRankBlock::new(&wide, side, &numbers(&case["small_factor"]), 3).unwrap().into()
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

/// The published formula as it stands: Cholesky root, dense `K`.
#[test]
fn woodbury_with_a_cholesky_root_and_a_dense_k() {
    let mut rng = TestRng::new(19);
    let (d, r, k, delta) = (7, 3, 2, 0.4);
    let vectors = rng.normals(k * d);
    let root = rng.normals(5 * r);
    let small = transposed_times(&root, &root, 5, r, r);
    let mut wide = WideFactor::new(d, k).unwrap();
    wide.add(1.0, &vectors).unwrap();
    let block =
        CurvatureBlock::from(LowRankBlock::new(&wide, WideSide::Output, &small, r).unwrap());
    let gradients = rng.normals(2 * d * r);

    let lower = Cholesky::new("small", &small, r).unwrap();
    let l = lower.lower();
    let q = wide.columns();
    let s2 = 1.0 / delta;
    let inner = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let gram_q = |p: usize, s: usize| inner(&q[p * d..(p + 1) * d], &q[s * d..(s + 1) * d]);
    let gram_l = transposed_times(l, l, r, r, r);
    let size = k * r;
    let mut big = identity(size);
    for (at, value) in big.iter_mut().enumerate() {
        let (row, col) = (at / size, at % size);
        *value += s2 * gram_q(row / r, col / r) * gram_l[(row % r) * r + col % r];
    }
    let solver = Cholesky::new("k", &big, size).unwrap();
    let expected = solver.log_det() - (d * r) as f64 * s2.ln();
    assert!((block.log_det(delta).unwrap() - expected).abs() < 1e-12 * expected.abs());

    // vec(Qᵀ G L).
    let projected = |g: &[f64]| -> Vec<f64> {
        (0..size)
            .map(|at| {
                let (p, c) = (at / r, at % r);
                let entry = |i: usize, j: usize| q[p * d + i] * g[i * r + j] * l[j * r + c];
                (0..d).map(|i| (0..r).map(|j| entry(i, j)).sum::<f64>()).sum()
            })
            .collect()
    };
    let (first, second) = gradients.split_at(d * r);
    let known = inner(&projected(first), &solver.solve(&projected(second)));
    let expected = s2 * inner(first, second) - s2 * s2 * known;
    let found = block.covariance(&gradients, 2, delta).unwrap();
    assert!((found[1] - expected).abs() < 1e-12, "{} {expected}", found[1]);
}

#[test]
fn a_variance_is_not_negative_where_curvature_exceeds_the_prior_by_far() {
    // Along the columns the variance is |G|²/(curvature + δ), which is lost in |G|²/δ − |G|²/δ.
    let mut rng = TestRng::new(23);
    let (d, r, delta) = (8, 2, 1e-13);
    let mut wide = WideFactor::new(d, 1).unwrap();
    let column: Vec<f64> = rng.normals(d).iter().map(|v| 100.0 * v).collect();
    wide.add(1.0, &column).unwrap();
    let small = [1.0, 0.0, 0.0, 1.0];
    let block = LowRankBlock::new(&wide, WideSide::Output, &small, r).unwrap();
    let block = CurvatureBlock::from(block);
    for _ in 0..50 {
        let of_rank = rng.normals(r);
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
    let empty = LowRankBlock::new(&wide, WideSide::Input, &[1.0, 2.0, 2.0, 4.0], 2).unwrap();
    let empty = CurvatureBlock::from(empty);
    assert!((empty.log_det(0.5).unwrap() - 6.0 * 0.5_f64.ln()).abs() < 1e-14);
    assert_eq!(empty.log_det_slope(0.5), Ok(6.0));
    let covariance = empty.covariance(&[1.0, 0.0, 2.0, 0.0, 0.0, 0.0], 1, 0.5).unwrap();
    assert!((covariance[0] - 10.0).abs() < 1e-14);
    wide.add(1.0, &[1.0, 2.0, 2.0]).unwrap();
    let block = LowRankBlock::new(&wide, WideSide::Input, &[1.0, 2.0, 2.0, 4.0], 2).unwrap();
    // One eigenvalue 9·5, five of 0.
    let expected = 45.5_f64.ln() + 5.0 * 0.5_f64.ln();
    assert!((CurvatureBlock::from(block).log_det(0.5).unwrap() - expected).abs() < 1e-13);
}

#[test]
fn wrong_arguments_are_errors() {
    assert!(KronBlock::new(&[1.0; 3], 2, &[1.0; 4], 2).is_err());
    assert!(KronBlock::new(&[1.0; 4], 2, &[1.0; 3], 2).is_err());
    let wide = WideFactor::new(3, 2).unwrap();
    assert!(LowRankBlock::new(&wide, WideSide::Input, &[1.0; 3], 2).is_err());
    let block = CurvatureBlock::from(KronBlock::new(&[1.0], 1, &[2.0], 1).unwrap());
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
        let at = row[0].ln();
        let error = gradient_error(&[evidence.slope(row[0]).unwrap()], &[at], |at| {
            evidence.log_evidence(at[0].exp()).unwrap()
        });
        assert!(error < 1e-8, "{error}");
    }
    let fit = evidence.fit(EvidenceOptions::default()).unwrap();
    assert_close("Adam", &[fit.prior_precision], &[number(&case["adam_100"])], 1e-9);
    assert_eq!(fit.log_evidence, evidence.log_evidence(fit.prior_precision).unwrap());
}

#[test]
fn the_best_prior_of_equal_eigenvalues_in_closed_form() {
    // t·δ² + t·λ·δ − P·λ = 0 with t = ‖θ‖², P parameters of curvature λ.
    let (lambda, t) = (3.0, 2.5);
    let blocks = [KronBlock::new(&[lambda, 0.0, 0.0, lambda], 2, &[1.0], 1).unwrap().into()];
    let expected =
        (-t * lambda + (t * t * lambda * lambda + 4.0 * t * 2.0 * lambda).sqrt()) / (2.0 * t);
    let evidence = Evidence::new(&blocks, t, 0.0).unwrap();
    assert!(evidence.slope(expected).unwrap().abs() < 1e-14);
    let options = EvidenceOptions { steps: 2000, learning_rate: 0.01, ..Default::default() };
    let fit = evidence.fit(options).unwrap();
    assert!((fit.prior_precision / expected - 1.0).abs() < 1e-6, "{fit:?} {expected}");
    let none = evidence.fit(EvidenceOptions { steps: 0, start: 7.0, ..options }).unwrap();
    assert!((none.prior_precision - 7.0).abs() < 1e-14);
}

#[test]
fn a_small_inverse_by_hand() {
    // S = [2], A = [[1, 1], [1, 2]], δ = ½: P = [[2.5, 2], [2, 4.5]].
    let block = CurvatureBlock::from(KronBlock::new(&[2.0], 1, &[1.0, 1.0, 1.0, 2.0], 2).unwrap());
    let expected = inverse("p", &[2.5, 2.0, 2.0, 4.5], 2).unwrap();
    let found = block.covariance(&identity(2), 2, 0.5).unwrap();
    assert_close("inverse", &found, &expected, 1e-14);
    assert!((block.log_det(0.5).unwrap() - 7.25_f64.ln()).abs() < 1e-14);
}
