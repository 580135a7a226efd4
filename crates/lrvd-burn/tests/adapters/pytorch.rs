//! The loops that adapters with noise are compared with, and divergences, against PyTorch in float64: values, and
//! gradients of autograd.

use crate::support::prelude::*;
use lrvd_burn::adapter::ScaleGaussian;
use lrvd_core::baselines::{ElementReduction, KlDirection};
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

/// Entries of `case` by `prefix` and name: lists as they are, and matrices of `rows` transposed.
fn read(case: &Value, prefix: &str, names: &[(&'static str, usize)]) -> Vec<Vec<f64>> {
    let one = |&(name, rows): &(&str, usize)| {
        let values = numbers(&case[format!("{prefix}{name}")]);
        if rows == 0 { values } else { transposed(&values, rows, values.len() / rows) }
    };
    names.iter().map(one).collect()
}

/// Asserts that the gradients `grad_NAME` of `case` are the slopes of `loss` by `leaves`.
fn check_gradients(
    case: &Value,
    names: &[(&'static str, usize)],
    leaves: &[Vec<f64>],
    loss: impl Fn(&[Vec<f64>]) -> f64,
) {
    let gradients = names.iter().map(|(name, _)| *name).zip(read(case, "grad_", names));
    close_to_slopes("PyTorch", &gradients.collect::<Vec<_>>(), leaves, 0.0, loss);
}

#[test]
fn scala_bl_is_pytorchs() {
    let document = document();
    let (sizes, case) = (sizes(&document), &document["scala_bl"]);
    let names = [("x", 0), ("v_h", sizes.rank), ("b", 0), ("log_mean", 0), ("log_std_dev", 0)];
    let leaves = read(case, "", &names);
    let [eps, g] = ["eps", "grad_output"].map(|k| numbers(&case[k]));
    close("output", &scala_bl(sizes, &leaves, Some(&eps)), &numbers(&case["output"]), EXACT);
    check_gradients(case, &names, &leaves, |l| dot(&scala_bl(sizes, l, Some(&eps)), &g));
}

#[test]
fn c_lora_is_pytorchs() {
    let document = document();
    let (sizes, case) = (sizes(&document), &document["c_lora"]);
    let (r, hidden) = (sizes.rank, document["shape"]["hidden"].as_f64().unwrap() as usize);
    let names =
        [("x", 0), ("a", r), ("b", 0), ("w1", hidden), ("b1", 0), ("w2", 2 * r * r), ("b2", 0)];
    let leaves = read(case, "", &names);
    let [eps, input_sign, output_sign, g, kl_weight, prior] =
        ["eps", "input_sign", "output_sign", "grad_output", "kl_weight", "prior_std_dev"]
            .map(|k| numbers(&case[k]));
    // The published code turns the noise by signs, which is noise of other signs.
    let eps: Vec<f64> = eps
        .iter()
        .enumerate()
        .map(|(at, e)| {
            let (token, i, j) = (at / (r * r), at / r % r, at % r);
            output_sign[token * r + i] * e * input_sign[token * r + j]
        })
        .collect();
    let run = |leaves: &[Vec<f64>]| c_lora(sizes, leaves, Some(&eps), prior[0]);
    let (output, kl) = run(&leaves);
    close("output", &output, &numbers(&case["output"]), EXACT);
    close("KL", &kl, &numbers(&case["kl"]), EXACT);
    let (mean, _) = c_lora(sizes, &leaves, None, prior[0]);
    close("mean output", &mean, &numbers(&case["mean_output"]), EXACT);
    check_gradients(case, &names, &leaves, |leaves| {
        let (output, kl) = run(leaves);
        dot(&output, &g) + dot(&kl, &kl_weight)
    });
}

#[rstest]
#[case("softplus", StdMap::Softplus)]
#[case("square", StdMap::Square)]
fn flipout_is_pytorchs(#[case] name: &str, #[case] map: StdMap) {
    let document = document();
    let (sizes, case) = (sizes(&document), &document["flipout"]);
    let names = [("x", 0), ("a_mean", sizes.rank), ("a_rho", sizes.rank), ("b", 0)];
    let leaves = read(case, "", &names);
    let of = |name: &'static str, rows| [read(case, "", &[(name, rows)]).remove(0), Vec::new()];
    let flips = Flips {
        eps: of("eps", sizes.rank),
        input_sign: of("input_sign", 0),
        output_sign: of("rank_sign", 0),
    };
    let run = |leaves: &[Vec<f64>]| {
        let [x, a, rho, b] = leaves else { panic!("four leaves") };
        let std: Vec<f64> = rho.iter().map(|&rho| map.value(rho)).collect();
        flipout(sizes, [x, a, b], [&std, &[]], &flips)
    };
    let (expected, g) = (&case[name], numbers(&case["grad_output"]));
    close(name, &run(&leaves), &numbers(&expected["output"]), EXACT);
    check_gradients(expected, &names, &leaves, |leaves| dot(&run(leaves), &g));
}

/// Asserts value and gradients of a divergence; `leaves` are the last of the layer's.
fn check_divergence(kl: Tensor<1>, value: f64, leaves: &[Tracked], expected: [&Value; 2]) {
    close("KL", &host(kl.clone()), &[value], EXACT);
    let gradients = kl.backward();
    for (leaf, expected) in leaves.iter().zip(expected) {
        close(leaf.name, &leaf.gradient(&gradients), &numbers(expected), EXACT);
    }
}

/// The divergence of an adapter's weights with its gradients, by the adapter itself.
#[rstest]
#[case("softplus", StdMap::Softplus)]
#[case("square", StdMap::Square)]
fn divergences_of_entries_are_pytorchs(#[case] name: &str, #[case] map: StdMap) {
    let document = document();
    let case = &document["element"];
    let [a, rho] = ["mean", "rho"].map(|k| numbers(&case[k]));
    // Of one rank, so that the file's order is that of memory.
    let n = a.len();
    let plain = HostAdapter { rank: 1, d_input: n, a, b: vec![0.5; 7], ..plain() };
    let mut layer = layer(&plain, DType::F64);
    let noise = ElementGaussian::new(map, parameter(&rho, [n, 1], DType::F64), None);
    layer.extend(Some(Extension::Gaussian(noise))).unwrap();
    let prior = case["prior_std_dev"].as_f64().unwrap();
    let kl = layer.kl_elements(prior, ElementReduction::Sum).unwrap();
    let expected = &case[name];
    let mut leaves = leaves_of(&layer);
    leaves.remove(1);
    let value = expected["kl"].as_f64().unwrap();
    check_divergence(kl, value, &leaves, [&expected["kl_by_mean"], &expected["kl_by_rho"]]);
}

/// The divergence of an adapter's scales with its gradients, by the adapter itself.
#[rstest]
#[case("posterior-from-prior", KlDirection::PosteriorFromPrior)]
#[case("prior-from-posterior", KlDirection::PriorFromPosterior)]
fn divergences_of_scales_are_pytorchs(#[case] name: &str, #[case] direction: KlDirection) {
    let document = document();
    let case = &document["scala_bl"];
    let [log_mean, log_std] = ["log_mean", "log_std_dev"].map(|k| numbers(&case[k]));
    let rank = log_mean.len();
    let (a, b) = (vec![0.5; rank * 5], vec![0.5; rank * 7]);
    let mut layer = layer(&HostAdapter { rank, a, b, ..plain() }, DType::F64);
    let [log_mean, log_std] = [log_mean, log_std].map(|v| parameter(&v, [rank], DType::F64));
    layer.extend(Some(Extension::Scale(ScaleGaussian { log_mean, log_std }))).unwrap();
    let expected = &case[name];
    let value = numbers(&expected["per_rank"]).iter().sum();
    let slopes = [&expected["by_log_mean"], &expected["by_log_std_dev"]];
    check_divergence(layer.kl_scale(direction).unwrap(), value, &leaves_of(&layer)[2..], slopes);
}
