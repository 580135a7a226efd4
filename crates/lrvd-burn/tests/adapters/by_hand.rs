//! The loops that adapters with noise are compared with, and divergences, against PyTorch in float64: values, and
//! gradients of autograd.

use crate::support::by_hand::{Flips, Sizes, c_lora, flipout, scala_bl};
use crate::support::{
    close, close_to_slopes, dot, gradient, host, host_adapter, layer, of, parameter, transposed,
};
use burn::tensor::DType;
use lrvd_burn::adapter::{ElementGaussian, Extension, ScaleGaussian};
use lrvd_burn::host::HostAdapter;
use lrvd_core::baselines::{ElementReduction, KlDirection, StdMap};
use serde_json::Value;

/// Of values: both sides are in double precision.
const EXACT: f64 = 1e-12;

fn document() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../lrvd-core/tests/baselines/reference.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(all) => all.iter().map(|v| v.as_f64().unwrap()).collect(),
        None => vec![value.as_f64().unwrap()],
    }
}

fn sizes(document: &Value) -> Sizes {
    let of = |name: &str| document["shape"][name].as_f64().unwrap();
    let [d_input, rank, d_output] = ["d_input", "rank", "d_output"].map(|name| of(name) as usize);
    Sizes { d_input, rank, d_output, scaling: of("scaling") }
}

/// A matrix of the file, `[rows, columns]`, transposed.
fn turned(value: &Value, rows: usize) -> Vec<f64> {
    let values = numbers(value);
    transposed(&values, rows, values.len() / rows)
}

#[test]
fn scala_bl_is_pytorchs() {
    let document = document();
    let (sizes, case) = (sizes(&document), &document["scala_bl"]);
    let [x, log_mean, log_std, b, eps, g] =
        ["x", "log_mean", "log_std_dev", "b", "eps", "grad_output"].map(|k| numbers(&case[k]));
    let leaves = [x, turned(&case["v_h"], sizes.rank), log_mean, log_std, b];
    close("output", &scala_bl(sizes, &leaves, Some(&eps)), &numbers(&case["output"]), EXACT);
    let gradients = [
        ("x", numbers(&case["grad_x"])),
        ("V", turned(&case["grad_v_h"], sizes.rank)),
        ("mean", numbers(&case["grad_log_mean"])),
        ("std", numbers(&case["grad_log_std_dev"])),
        ("B", numbers(&case["grad_b"])),
    ];
    let loss = |leaves: &[Vec<f64>]| dot(&scala_bl(sizes, leaves, Some(&eps)), &g);
    close_to_slopes("ScalaBL", &gradients, &leaves, 0.0, loss);
}

#[test]
fn c_lora_is_pytorchs() {
    let document = document();
    let (sizes, case) = (sizes(&document), &document["c_lora"]);
    let (r, hidden) = (sizes.rank, document["shape"]["hidden"].as_f64().unwrap() as usize);
    let [x, b, b1, b2, eps, input_sign, output_sign, g, kl_weight, prior] = [
        "x",
        "b",
        "b1",
        "b2",
        "eps",
        "input_sign",
        "output_sign",
        "grad_output",
        "kl_weight",
        "prior_std_dev",
    ]
    .map(|k| numbers(&case[k]));
    let of_weights = |prefix: &str| {
        let of = |name: &str, rows| turned(&case[format!("{prefix}{name}")], rows);
        [of("a", r), of("w1", hidden), of("w2", 2 * r * r)]
    };
    let [a, w1, w2] = of_weights("");
    // The published code turns the noise by signs, which is noise of other signs.
    let eps: Vec<f64> = eps
        .iter()
        .enumerate()
        .map(|(at, e)| {
            let (token, i, j) = (at / (r * r), at / r % r, at % r);
            output_sign[token * r + i] * e * input_sign[token * r + j]
        })
        .collect();
    let leaves = [x, a, b, w1, b1, w2, b2];
    let run = |leaves: &[Vec<f64>]| c_lora(sizes, leaves, Some(&eps), prior[0]);
    let (output, kl) = run(&leaves);
    close("output", &output, &numbers(&case["output"]), EXACT);
    close("KL", &kl, &numbers(&case["kl"]), EXACT);
    let (mean, _) = c_lora(sizes, &leaves, None, prior[0]);
    close("mean output", &mean, &numbers(&case["mean_output"]), EXACT);
    let [a, w1, w2] = of_weights("grad_");
    let of = |name: &str| numbers(&case[format!("grad_{name}")]);
    let gradients = [
        ("x", of("x")),
        ("A", a),
        ("B", of("b")),
        ("w1", w1),
        ("b1", of("b1")),
        ("w2", w2),
        ("b2", of("b2")),
    ];
    close_to_slopes("C-LoRA", &gradients, &leaves, 0.0, |leaves| {
        let (output, kl) = run(leaves);
        dot(&output, &g) + dot(&kl, &kl_weight)
    });
}

#[test]
fn flipout_is_pytorchs() {
    let document = document();
    let (sizes, case) = (sizes(&document), &document["flipout"]);
    let [x, b, input_sign, rank_sign, g] =
        ["x", "b", "input_sign", "rank_sign", "grad_output"].map(|k| numbers(&case[k]));
    let [a, rho, eps] = ["a_mean", "a_rho", "eps"].map(|k| turned(&case[k], sizes.rank));
    let flips = Flips { eps: &eps, input_sign: &input_sign, rank_sign: &rank_sign };
    let leaves = [x, a, rho, b];
    for (name, map) in [("softplus", StdMap::Softplus), ("square", StdMap::Square)] {
        let expected = &case[name];
        let run = |leaves: &[Vec<f64>]| flipout(sizes, map, leaves, &flips);
        close(name, &run(&leaves), &numbers(&expected["output"]), EXACT);
        let gradients = [
            ("x", numbers(&expected["grad_x"])),
            ("A", turned(&expected["grad_a_mean"], sizes.rank)),
            ("rho", turned(&expected["grad_a_rho"], sizes.rank)),
            ("B", numbers(&expected["grad_b"])),
        ];
        close_to_slopes(name, &gradients, &leaves, 0.0, |leaves| dot(&run(leaves), &g));
    }
}

/// The divergence of an adapter's weights and of its scales with their gradients, by the adapters themselves.
#[test]
fn divergences_are_pytorchs() {
    let document = document();
    let case = &document["element"];
    let [mean, rho] = ["mean", "rho"].map(|k| numbers(&case[k]));
    let n = mean.len();
    for (name, map) in [("softplus", StdMap::Softplus), ("square", StdMap::Square)] {
        // Of one rank, so that the file's order is that of memory.
        let plain = HostAdapter {
            rank: 1,
            d_input: n,
            a: mean.clone(),
            b: vec![0.5; 7],
            ..host_adapter(None, 10)
        };
        let mut layer = layer("net.first", &plain, DType::F64);
        let noise = ElementGaussian::new(map, parameter(&rho, [n, 1], DType::F64), None);
        let of_rho = noise.a.val();
        layer.extend(Some(Extension::Gaussian(noise))).unwrap();
        let prior = case["prior_std_dev"].as_f64().unwrap();
        let kl = layer.kl_elements(prior, ElementReduction::Sum).unwrap();
        let expected = &case[name];
        close(name, &host(kl.clone()), &numbers(&expected["kl"]), EXACT);
        let gradients = kl.backward();
        let by_mean = gradient(&of(&layer).a.val(), &gradients);
        close(name, &by_mean, &numbers(&expected["kl_by_mean"]), EXACT);
        close(name, &gradient(&of_rho, &gradients), &numbers(&expected["kl_by_rho"]), EXACT);
    }
    let case = &document["scala_bl"];
    let [log_mean, log_std] = ["log_mean", "log_std_dev"].map(|k| numbers(&case[k]));
    let rank = log_mean.len();
    for (name, direction) in [
        ("posterior-from-prior", KlDirection::PosteriorFromPrior),
        ("prior-from-posterior", KlDirection::PriorFromPosterior),
    ] {
        let plain = HostAdapter {
            rank,
            a: vec![0.5; rank * 5],
            b: vec![0.5; rank * 7],
            ..host_adapter(None, 10)
        };
        let mut layer = layer("net.first", &plain, DType::F64);
        let scales = ScaleGaussian {
            log_mean: parameter(&log_mean, [rank], DType::F64),
            log_std: parameter(&log_std, [rank], DType::F64),
        };
        let (of_mean, of_std) = (scales.log_mean.val(), scales.log_std.val());
        layer.extend(Some(Extension::Scale(scales))).unwrap();
        let kl = layer.kl_scale(direction).unwrap();
        let expected = &case[name];
        let total = numbers(&expected["per_rank"]).iter().sum();
        close(name, &host(kl.clone()), &[total], EXACT);
        let gradients = kl.backward();
        close(name, &gradient(&of_mean, &gradients), &numbers(&expected["by_log_mean"]), EXACT);
        close(name, &gradient(&of_std, &gradients), &numbers(&expected["by_log_std_dev"]), EXACT);
    }
}
