//! The programs of a new user, run on small tasks.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

#[path = "../examples/any_model.rs"]
#[allow(dead_code, reason = "its `main` starts a fresh process")]
mod any_model;
#[path = "../examples/planted_rank.rs"]
#[allow(dead_code, reason = "its `main` reads arguments")]
mod planted_rank;

use lrvd_burn::burn::tensor::Device;
use planted_rank::{Config, InputLaw, recover, report};

#[test]
fn a_model_of_burns_own_layers_is_tuned_pruned_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("adapter");
    let (losses, tuned) = any_model::train(&folder).unwrap();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let [first, last] = [&losses[..10], &losses[losses.len() - 10..]].map(mean);
    assert!(last < 0.5 * first, "loss {first} -> {last}");
    let ranks = tuned.ranks();
    let total: usize = ranks.iter().map(|(_, rank)| rank).sum();
    assert!(ranks.len() == 6 && total > 0 && total < 6 * 8, "{ranks:?}");
    let loaded = any_model::loaded(&folder).unwrap();
    let [trained, loaded] = [&tuned, &loaded].map(|tuned| any_model::answers(tuned).unwrap());
    assert_eq!(trained, loaded);
}

#[test]
fn a_planted_rank_is_found() {
    let inputs = InputLaw::Independent;
    let small = Config { rank: 1, n: 512, layers: 1, inputs, seed: 1, steps: 600 };
    let run = recover(&small, &Device::flex()).unwrap();
    assert_eq!(run.layers[0].rank, 1);
    // The planted singular value is 3; the others fade.
    let values = &run.layers[0].singular_values;
    assert!(values[0] > 1.5 && values[1] < 0.5 * values[0], "{values:?}");
    // ln 8 = 2.08 nats are a guess; without a direction the loss is that of the frozen network.
    assert!((0.7..1.2).contains(&run.nll_oracle), "{}", run.nll_oracle);
    assert!(run.nll_oracle < run.nll_mean && run.nll_mean < run.nll_by_rank[0]);
    assert!((run.nll_mc / run.nll_mean - 1.0).abs() < 0.05);
    let json = report(&small, &[run]);
    assert_eq!((&json["planted_rank"], &json["found_rank"][0]), (&1.into(), &1.into()));
    assert_eq!(json["runs"][0]["nll_by_rank"].as_array().unwrap().len(), 17);

    // Two layers have a rank each.
    let two = Config { layers: 2, inputs: InputLaw::Decaying, n: 128, steps: 20, ..small };
    let json = report(&two, &[recover(&two, &Device::flex()).unwrap()]);
    assert_eq!(json["runs"][0]["layers"].as_array().unwrap().len(), 2);
}
