//! Experiments with low-rank adapters: data, training, evaluation, reports.
//!
//! | Module | What it answers |
//! |---|---|
//! | [`task`], [`data`] | what is learnt, from which files |
//! | [`experiment`] | every setting of a run, and the presets |
//! | [`method`] | what each fine-tuning method attaches, minimises and does to ranks |
//! | [`train`], [`eval`] | the loop, its checkpoints, and what is measured |
//! | [`backbone`] | where the pretrained model comes from |
//! | [`classify`] | a classifier on a user's own data: train, save, load, evaluate, predict |
//! | [`reasoning`] | the six multiple-choice sets: files, prompts, answer tokens |
//! | [`suite`] | whole reproductions: GLUE and reasoning |
//! | [`report`] | records, tables, the page that a person looks at |
//! | [`progress`] | what happens meanwhile |
//!
//! Nothing here prints: callers pass a [`progress::ProgressSink`].

pub mod backbone;
pub mod classify;
pub mod data;
mod error;
pub mod eval;
pub mod experiment;
mod json;
pub mod method;
pub mod progress;
pub mod reasoning;
pub mod report;
pub mod suite;
pub mod task;
mod text;
pub mod train;
pub mod verify;

pub use error::BenchError;
pub use text::grouped;
