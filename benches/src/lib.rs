//! Speed: models, batches and steps that the benches and `cargo xtask bench` time.
//!
//! | file | what |
//! |---|---|
//! | `model` | the architectures, with random weights, their adapters, and a prune |
//! | `trainer` | one training step, ours and that of Burn's own LoRA |
//! | `predict` | predictions with draws, by each way of drawing |
//! | `allocator` | that of the `lrvd` command, so that what is timed is what users run |
//!
//! `cargo xtask bench` runs the program `step` beside its peers; `cargo bench -p lrvd-perf` times operators.

#[path = "../../crates/lrvd-cli/src/allocator.rs"]
mod allocator;
mod model;
mod predict;
mod trainer;

pub use model::{Architecture, batch, keep_last_layers, model, prune_to};
pub use predict::{Way, predict, prove};
pub use trainer::{Method, Trainer};

/// Starts the program anew with the allocator's settings of the command, as the command does.
pub fn keep_pages() {
    allocator::keep_pages();
}

/// The first page, whose program is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct FirstPage;
