//! Divergences and starting values of adapters with noise against PyTorch. Their gradients and the passes of C-LoRA are
//! compared in `lrvd-burn`, from the same file.

use lrvd_core::baselines::bayes_by_backprop::{element_kl, sampled_element_kl};
use lrvd_core::baselines::{
    ElementReduction, KlDirection, ScaleMixture, StdMap, context_kl, scala_bl_basis, scala_bl_kl,
};

use crate::{assert_close, assert_reference, number, numbers, reference};

#[test]
fn element_gaussian() {
    let case = &reference()["element"];
    let [mean, rho, eps, mixture] = ["mean", "rho", "eps", "mixture"].map(|k| numbers(&case[k]));
    let prior = ScaleMixture::new(mixture[0], mixture[1], mixture[2]).unwrap();
    for (name, map) in [("softplus", StdMap::Softplus), ("square", StdMap::Square)] {
        let expected = &case[name];
        let std_dev: Vec<f64> = rho.iter().map(|&rho| map.value(rho)).collect();
        let width = number(&case["prior_std_dev"]);
        let kl = element_kl(&mean, &std_dev, width, ElementReduction::Sum).unwrap();
        assert_reference("kl", &[kl], &expected["kl"]);
        let sum = ElementReduction::Sum;
        let kl = sampled_element_kl(&mean, &std_dev, &eps, &prior, sum).unwrap();
        assert_reference("sampled", &[kl], &expected["sampled"]);
    }
}

#[test]
fn the_divergence_of_scala_bl() {
    let case = &reference()["scala_bl"];
    let [log_mean, log_std_dev] = ["log_mean", "log_std_dev"].map(|k| numbers(&case[k]));
    for (name, direction) in [
        ("posterior-from-prior", KlDirection::PosteriorFromPrior),
        ("prior-from-posterior", KlDirection::PriorFromPosterior),
    ] {
        let per_rank = numbers(&case[name]["per_rank"]);
        let kl = scala_bl_kl(&log_mean, &log_std_dev, direction).unwrap();
        assert_close(name, &[kl], &[per_rank.iter().sum()], 1e-14);
        for (k, expected) in per_rank.iter().enumerate() {
            let kl = scala_bl_kl(&log_mean[k..=k], &log_std_dev[k..=k], direction).unwrap();
            assert_close(name, &[kl], &[*expected], 1e-12);
        }
    }
    assert!(scala_bl_kl(&log_mean, &log_std_dev[1..], KlDirection::default()).is_err());
}

#[test]
fn the_basis_of_scala_bl_is_an_svd() {
    let case = &reference()["scala_bl"]["basis"];
    let a = numbers(&case["a"]);
    let found = scala_bl_basis(&a, 3).unwrap();
    assert_reference("log_mean", &found.log_mean, &case["log_mean"]);
    for (found, expected) in found.v_h.chunks(7).zip(numbers(&case["v_h"]).chunks(7)) {
        // Singular vectors have arbitrary signs.
        let sign = (found[0] * expected[0]).signum();
        let turned: Vec<f64> = expected.iter().map(|v| sign * v).collect();
        assert_close("v_h", found, &turned, 1e-12);
    }
    for (wrong, rank) in [(&a[..], 7), (&[0.0; 6], 2), (&[f64::NAN; 6], 2)] {
        assert!(scala_bl_basis(wrong, rank).is_err());
    }
}

#[test]
fn the_divergence_of_c_lora() {
    let case = &reference()["c_lora"];
    let [mean, std_dev] = ["mean", "std_dev"].map(|k| numbers(&case[k]));
    let prior = number(&case["prior_std_dev"]);
    // std_dev = logistic(o)², so o = −ln(1/√std_dev − 1).
    let raw: Vec<f64> = std_dev.iter().map(|s| -(s.sqrt().recip() - 1.0).ln()).collect();
    let tokens = numbers(&case["kl"]);
    let square = mean.len() / tokens.len();
    for ((mean, raw), expected) in mean.chunks(square).zip(raw.chunks(square)).zip(tokens) {
        assert_close("kl", &[context_kl(mean, raw, prior).unwrap()], &[expected], 1e-11);
    }
}
