//! The program of a new user: a transformer of `burn::nn` layers, unchanged.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

#[path = "../examples/any_model.rs"]
#[allow(dead_code, reason = "its `main` starts a fresh process")]
mod example;

#[test]
fn a_model_of_burns_own_layers_is_tuned_pruned_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("adapter");
    let shown = example::run(&folder).unwrap();
    let [first, last] = shown.losses;
    assert!(last < 0.5 * first, "loss {first} -> {last}");
    let ranks: Vec<usize> = shown.ranks.iter().map(|(_, rank)| *rank).collect();
    let total: usize = ranks.iter().sum();
    assert!(ranks.len() == 6 && total > 0 && total < 6 * 8, "{:?}", shown.ranks);
    assert!(shown.difference < 1e-6, "{}", shown.difference);
    assert_eq!(example::answers(&folder).unwrap(), shown.answers);
}
