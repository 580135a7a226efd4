//! The loops that adapters with noise are compared with against PyTorch in float64: values, and gradients of autograd.

use crate::support::prelude::*;
use lrvd_core::baselines::ScaleMixture;
use serde_json::Value;

/// Of values: both sides are in double precision.
const EXACT: f64 = 1e-12;

fn document() -> (Value, Sizes) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../lrvd-core/tests/baselines/reference.json");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let of = |name: &str| document["shape"][name].as_f64().unwrap();
    let [d_input, rank, d_output] = ["d_input", "rank", "d_output"].map(|name| of(name) as usize);
    let sizes = Sizes { d_input, rank, d_output, scaling: of("scaling") };
    (document, sizes)
}

/// An entry of `case`: a list as it is, and a matrix of `rows` transposed.
fn read(case: &Value, name: &str, rows: usize) -> Vec<f64> {
    let values: Vec<f64> = match case[name].as_array() {
        Some(all) => all.iter().map(|v| v.as_f64().unwrap()).collect(),
        None => vec![case[name].as_f64().unwrap()],
    };
    if rows == 0 { values } else { transpose(&values, rows, values.len() / rows) }
}

/// Asserts that the gradients `grad_NAME` of `case` are the slopes of `loss` by `leaves`.
fn check_gradients(
    case: &Value,
    names: &[(&str, usize)],
    leaves: &[Vec<f64>],
    loss: impl Fn(&[Vec<f64>]) -> f64,
) {
    let of = |(name, rows): &(&str, usize)| read(case, &format!("grad_{name}"), *rows);
    close_to_slopes("PyTorch", &names.iter().map(of).collect::<Vec<_>>(), leaves, 0.0, loss);
}

#[rstest]
#[case("softplus", NoiseMap::Softplus)]
#[case("square", NoiseMap::Square)]
fn divergences_of_entries_are_pytorchs(#[case] name: &str, #[case] map: NoiseMap) {
    let (document, _) = document();
    let case = &document["element"];
    let of = |name| read(case, name, 0);
    let [mean, rho, eps, mixture, prior] =
        ["mean", "rho", "eps", "mixture", "prior_std_dev"].map(of);
    let std = std_devs(map, &rho);
    let expected = &case[name];
    close("KL", &[element_kl(&mean, &std, prior[0])], &read(expected, "kl", 0), EXACT);
    let mixture = ScaleMixture::new(mixture[0], mixture[1], mixture[2]).unwrap();
    let sampled = sampled_kl(&mean, &std, &eps, &mixture);
    close("sampled", &[sampled], &read(expected, "sampled", 0), EXACT);
}

#[rstest]
#[case("softplus", NoiseMap::Softplus)]
#[case("square", NoiseMap::Square)]
fn flipout_is_pytorchs(#[case] name: &str, #[case] map: NoiseMap) {
    let (document, sizes) = document();
    let case = &document["flipout"];
    let names = [("x", 0), ("a_mean", sizes.rank), ("a_rho", sizes.rank), ("b", 0)];
    let leaves = names.map(|(name, rows)| read(case, name, rows));
    // B is not random.
    let n = leaves[0].len() / sizes.d_input;
    let [none, no_h, no_y] =
        [sizes.rank * sizes.d_output, n * sizes.rank, n * sizes.d_output].map(|n| vec![0.0; n]);
    let flips = Flips {
        eps: [read(case, "eps", sizes.rank), none.clone()],
        input_sign: [read(case, "input_sign", 0), no_h],
        output_sign: [read(case, "rank_sign", 0), no_y],
    };
    let run = |leaves: &[Vec<f64>]| {
        let [x, a, rho, b] = leaves else { panic!("four leaves") };
        let std = std_devs(map, rho);
        flipout(sizes, [x, a, b], [&std, &none], &flips)
    };
    let (expected, g) = (&case[name], read(case, "grad_output", 0));
    close(name, &run(&leaves), &read(expected, "output", 0), EXACT);
    check_gradients(expected, &names, &leaves, |leaves| dot(&run(leaves), &g));
}
