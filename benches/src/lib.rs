//! Speed: models, batches and steps that the benches and `cargo xtask bench` time.
//!
//! | file | what |
//! |---|---|
//! | `model` | the architectures, with random weights, their adapters, and a prune |
//! | `trainer` | one training step |
//! | `encoder` | the same of an encoder of Burn's parts, with Burn's own LoRA and with ours |
//! | `recipe` | the loop that users run: its steps, and whole runs |
//! | `ceiling` | what the processor can do at most |
//! | `device` | what a device is, and its operators, proved and timed |
//! | `operations` | floating-point operations of a step, by the shapes of the model |
//! | `generation` | continuations by a language model |
//! | `predict` | predictions with draws, by each way of drawing |
//! | `classifier` | a trained model whose predictions are worth something |
//! | `process` | how the `lrvd` command runs, so that what is timed is what users run |
//!
//! `cargo xtask bench` runs the program `step` beside its peers; `cargo bench -p lrvd-perf` times operators; the program
//! `load` is for `lrvd serve`.

mod ceiling;
mod classifier;
mod device;
mod encoder;
mod generation;
mod model;
mod operations;
#[path = "../../crates/lrvd-burn/tests/ops_checks/mod.rs"]
mod ops_checks;
mod predict;
#[path = "../../crates/lrvd-cli/src/process.rs"]
mod process;
mod recipe;
mod trainer;

pub use ceiling::{product, read_bandwidth};
pub use classifier::Held;
pub use device::{facts, operators};
pub use encoder::EncoderTrainer;
pub use generation::Generation;
pub use model::{Architecture, batch, keep_last_layers, model, prune_to};
pub use operations::{Operations, Reading};
pub use predict::{Way, predict, prove};
pub use recipe::{Recipe, Task, Timed, estimated_memory, train};
pub use trainer::{Method, Trainer};

/// Runs `program` as the command runs: allocator and threads.
pub fn as_command<R: Send>(program: impl FnOnce() -> R + Send) -> lrvd_bench::Result<R> {
    process::run(None, program)
}
