//! The path of `examples/planted_rank.rs`.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../examples/planted_rank.rs"]
mod example;

use example::{Config, InputLaw, recover, report};
use lrvd_burn::burn::tensor::Device;

const SMALL: Config =
    Config { rank: 1, n: 512, layers: 1, inputs: InputLaw::Independent, seed: 1, steps: 600 };

#[test]
fn a_planted_rank_is_found() {
    let run = recover(&SMALL, &Device::flex()).unwrap();
    assert_eq!(run.layers[0].rank, 1);
    // The planted singular value is 3; the others fade.
    let values = &run.layers[0].singular_values;
    assert!(values[0] > 1.5 && values[1] < 0.5 * values[0], "{values:?}");
    // ln 8 = 2.08 nats are a guess; without a direction the loss is that of the frozen network.
    assert!((0.7..1.2).contains(&run.nll_oracle), "{}", run.nll_oracle);
    assert!(run.nll_oracle < run.nll_mean && run.nll_mean < run.nll_by_rank[0]);
    assert!((run.nll_mc / run.nll_mean - 1.0).abs() < 0.05);

    let json = report(&SMALL, &[run]);
    assert_eq!((&json["planted_rank"], &json["found_rank"][0]), (&1.into(), &1.into()));
    assert_eq!(json["runs"][0]["nll_by_rank"].as_array().unwrap().len(), 17);
}

#[test]
fn two_layers_have_a_rank_each() {
    let config = Config { layers: 2, inputs: InputLaw::Decaying, n: 128, steps: 20, ..SMALL };
    let run = recover(&config, &Device::flex()).unwrap();
    let json = report(&config, &[run]);
    assert_eq!(json["runs"][0]["layers"].as_array().unwrap().len(), 2);
}
