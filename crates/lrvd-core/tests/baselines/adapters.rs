//! Posteriors on adapters against PyTorch: values, divergences and gradients of autograd.

use lrvd_core::baselines::{
    ContextAdapter, ContextNetwork, ContextNoise, ContextPass, ElementGaussian, ElementReduction,
    FlipoutAdapter, FlipoutNoise, FlipoutPass, KlDirection, ScalaBlAdapter, ScalaBlPass,
    ScaleMixture, StdMap, scala_bl_basis, scala_bl_kl,
};
use lrvd_core::factor::FactorView;
use serde_json::Value;

use crate::support::{assert_close, assert_reference, count, number, numbers, reference};

const MAPS: [(&str, StdMap); 2] = [("softplus", StdMap::Softplus), ("square", StdMap::Square)];

fn sizes(document: &Value) -> ([usize; 4], f64) {
    let shape = &document["shape"];
    (["tokens", "rank", "d_input", "d_output"].map(|k| count(&shape[k])), number(&shape["scaling"]))
}

#[test]
fn element_gaussian() {
    let case = &reference()["element"];
    let [mean, rho, eps, mixture] = ["mean", "rho", "eps", "mixture"].map(|k| numbers(&case[k]));
    let prior = ScaleMixture::new(mixture[0], mixture[1], mixture[2]).unwrap();
    for (name, map) in MAPS {
        let wanted = &case[name];
        let q = ElementGaussian::new(&mean, &rho, map).unwrap();
        let kl = q.kl(number(&case["prior_std_dev"]), ElementReduction::Sum).unwrap();
        assert_reference("kl", &[kl.value], &wanted["kl"]);
        assert_reference("kl by mean", &kl.by_mean, &wanted["kl_by_mean"]);
        assert_reference("kl by rho", &kl.by_rho, &wanted["kl_by_rho"]);
        let kl = q.sampled_kl(&prior, &eps, ElementReduction::Sum).unwrap();
        assert_reference("sampled", &[kl.value], &wanted["sampled"]);
        assert_reference("sampled by mean", &kl.by_mean, &wanted["sampled_by_mean"]);
        assert_reference("sampled by rho", &kl.by_rho, &wanted["sampled_by_rho"]);
    }
}

#[test]
fn flipout() {
    let document = reference();
    let ([_, rank, d_in, d_out], scaling) = sizes(&document);
    let case = &document["flipout"];
    let [x, a_mean, a_rho, b] = ["x", "a_mean", "a_rho", "b"].map(|k| numbers(&case[k]));
    let [eps, input_sign, rank_sign, grad_output] =
        ["eps", "input_sign", "rank_sign", "grad_output"].map(|k| numbers(&case[k]));
    for (name, map) in MAPS {
        let wanted = &case[name];
        let a = FactorView::new("a", &a_mean, rank, d_in).unwrap();
        let b = FactorView::new("b", &b, rank, d_out).unwrap();
        let adapter = FlipoutAdapter::new(a, &a_rho, map, b, scaling).unwrap();
        let noise = FlipoutNoise { eps: &eps, input_sign: &input_sign, rank_sign: &rank_sign };
        let pass = FlipoutPass::new(adapter, &x, noise).unwrap();
        assert_reference("output", pass.output(), &wanted["output"]);
        let gradient = pass.backward(&grad_output).unwrap();
        assert_reference("x", &gradient.x, &wanted["grad_x"]);
        assert_reference("a_mean", &gradient.a_mean, &wanted["grad_a_mean"]);
        assert_reference("a_rho", &gradient.a_rho, &wanted["grad_a_rho"]);
        assert_reference("b", &gradient.b, &wanted["grad_b"]);
    }
}

#[test]
fn scala_bl() {
    let document = reference();
    let ([_, rank, d_in, d_out], scaling) = sizes(&document);
    let case = &document["scala_bl"];
    let [x, v_h, log_mean, log_std_dev, b, eps, grad_output] =
        ["x", "v_h", "log_mean", "log_std_dev", "b", "eps", "grad_output"]
            .map(|k| numbers(&case[k]));
    let basis = FactorView::new("v_h", &v_h, rank, d_in).unwrap();
    let b = FactorView::new("b", &b, rank, d_out).unwrap();
    let adapter = ScalaBlAdapter::new(basis, &log_mean, &log_std_dev, b, scaling).unwrap();
    let pass = ScalaBlPass::new(adapter, &x, Some(&eps)).unwrap();
    assert_reference("output", pass.output(), &case["output"]);
    let gradient = pass.backward(&grad_output).unwrap();
    assert_reference("x", &gradient.x, &case["grad_x"]);
    assert_reference("v_h", &gradient.v_h, &case["grad_v_h"]);
    assert_reference("log_mean", &gradient.log_mean, &case["grad_log_mean"]);
    assert_reference("log_std_dev", &gradient.log_std_dev, &case["grad_log_std_dev"]);
    assert_reference("b", &gradient.b, &case["grad_b"]);
    for (name, direction) in [
        ("posterior-from-prior", KlDirection::PosteriorFromPrior),
        ("prior-from-posterior", KlDirection::PriorFromPosterior),
    ] {
        let (wanted, kl) = (&case[name], scala_bl_kl(&log_mean, &log_std_dev, direction).unwrap());
        assert_reference(name, &kl.per_rank, &wanted["per_rank"]);
        assert_reference(name, &kl.by_log_mean, &wanted["by_log_mean"]);
        assert_reference(name, &kl.by_log_std_dev, &wanted["by_log_std_dev"]);
    }
}

#[test]
fn the_basis_of_scala_bl_is_an_svd() {
    let case = &reference()["scala_bl"]["basis"];
    let a = numbers(&case["a"]);
    let found = scala_bl_basis(FactorView::new("a", &a, 3, 7).unwrap()).unwrap();
    assert_reference("log_mean", &found.log_mean, &case["log_mean"]);
    for (found, wanted) in found.v_h.chunks(7).zip(numbers(&case["v_h"]).chunks(7)) {
        // Singular vectors have arbitrary signs.
        let sign = (found[0] * wanted[0]).signum();
        let turned: Vec<f64> = wanted.iter().map(|v| sign * v).collect();
        assert_close("v_h", found, &turned, 1e-12);
    }
    assert!(scala_bl_basis(FactorView::new("a", &a, 7, 3).unwrap()).is_err());
    assert!(scala_bl_basis(FactorView::new("a", &[0.0; 6], 2, 3).unwrap()).is_err());
    assert!(scala_bl_basis(FactorView::new("a", &[f64::NAN; 6], 2, 3).unwrap()).is_err());
}

#[test]
fn c_lora() {
    let document = reference();
    let ([_, rank, d_in, d_out], scaling) = sizes(&document);
    let hidden = count(&document["shape"]["hidden"]);
    let case = &document["c_lora"];
    let [x, a, b, w1, b1, w2, b2] =
        ["x", "a", "b", "w1", "b1", "w2", "b2"].map(|k| numbers(&case[k]));
    let [eps, input_sign, output_sign, grad_output, kl_weight] =
        ["eps", "input_sign", "output_sign", "grad_output", "kl_weight"].map(|k| numbers(&case[k]));
    let network = ContextNetwork {
        w1: FactorView::new("w1", &w1, hidden, rank).unwrap(),
        b1: &b1,
        w2: FactorView::new("w2", &w2, 2 * rank * rank, hidden).unwrap(),
        b2: &b2,
    };
    let a = FactorView::new("a", &a, rank, d_in).unwrap();
    let b = FactorView::new("b", &b, rank, d_out).unwrap();
    let adapter = ContextAdapter::new(a, b, network, scaling).unwrap();
    let noise = ContextNoise { eps: &eps, input_sign: &input_sign, output_sign: &output_sign };
    let prior = number(&case["prior_std_dev"]);
    let pass = ContextPass::new(adapter, &x, Some(noise)).unwrap();
    assert_reference("mean", &pass.mean(), &case["mean"]);
    assert_reference("std_dev", &pass.std_dev(), &case["std_dev"]);
    assert_reference("output", pass.output(), &case["output"]);
    assert_reference("kl", &pass.kl_per_token(prior).unwrap(), &case["kl"]);
    let gradient = pass.backward(&grad_output, &kl_weight, prior).unwrap();
    for (name, found) in [
        ("x", gradient.x),
        ("a", gradient.a),
        ("b", gradient.b),
        ("w1", gradient.w1),
        ("b1", gradient.b1),
        ("w2", gradient.w2),
        ("b2", gradient.b2),
    ] {
        assert_reference(name, &found, &case[format!("grad_{name}")]);
    }
    let mean = ContextPass::new(adapter, &x, None).unwrap();
    assert_reference("mean output", mean.output(), &case["mean_output"]);
}
