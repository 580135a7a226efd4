//! The path of `examples/learner.rs`.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../examples/learner.rs"]
mod example;

#[test]
fn burn_trains_learner_prunes_and_trains_on() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = example::train(folder.path(), 12).unwrap();
    assert_eq!(ranks.len(), 2);
    let total: usize = ranks.iter().map(|(_, rank)| rank).sum();
    assert!((1..16).contains(&total), "{ranks:?}");
}
