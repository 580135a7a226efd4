//! The start of `ScalaBL` against PyTorch. Divergences, passes and their gradients are compared in `lrvd-burn`, from the same
//! file.

use lrvd_core::baselines::scala_bl_basis;

use crate::{assert_close, assert_reference, numbers, reference};

#[test]
fn the_basis_of_scala_bl_is_an_svd() {
    let case = &reference()["scala_bl"]["basis"];
    let a = numbers(&case["a"]);
    let found = scala_bl_basis(&a, 3).unwrap();
    assert_reference("log_mean", &found.log_mean, &case["log_mean"]);
    for (found, expected) in found.v_h.chunks(7).zip(numbers(&case["v_h"]).chunks(7)) {
        // Singular vectors have arbitrary signs.
        let sign = (found[0] * expected[0]).signum();
        let expected: Vec<f64> = expected.iter().map(|v| sign * v).collect();
        assert_close("v_h", found, &expected, 1e-12);
    }
    for (wrong, rank) in [(&a[..], 7), (&[0.0; 6], 2), (&[f64::NAN; 6], 2)] {
        assert!(scala_bl_basis(wrong, rank).is_err());
    }
}
