//! Experiments with low-rank adapters: data, training, evaluation, reports.
//!
//! From the bottom up; a module uses those above it in this table and none below, which
//! `cargo xtask tidy module-directions` checks.
//!
//! | Module | What is in it |
//! |---|---|
//! | `error`, `text`, `io` | errors and their kinds, words of messages, whole files |
//! | [`settings`] | every setting of a run, the presets, the methods there are |
//! | [`record`] | what a run leaves behind |
//! | [`task`], [`data`] | the table of tasks; what is learnt, from which files; prompts and token ids |
//! | `backbone` | where the pretrained model comes from |
//! | [`eval`] | predictions and what is measured of them |
//! | [`method`] | what each fine-tuning method attaches, minimises and does to ranks |
//! | [`run`] | one run: beginning, loop, record, folder |
//! | `report` | tables, comparisons, the page that a person looks at |
//! | `saved` | where a trained adapter lies, and the base model that it belongs to |
//! | [`language`] | a language model on a user's own texts: train, save, load, measure, continue |
//! | [`classify`] | a classifier on a user's own data: train, save, load, evaluate, predict |
//! | [`check`] | a report on data before anything is trained |
//! | [`suite`] | whole reproductions: GLUE and reasoning; arms of settings, compared in pairs |
//!
//! The loop is [`lrvd_burn::train`]'s. Nothing here prints: callers pass a [`progress::ProgressSink`].

// The crate's only user is `lrvd-cli`: docs are where they say something.
#![allow(missing_docs, clippy::missing_errors_doc)]

mod backbone;
pub mod check;
pub mod classify;
pub mod data;
mod error;
pub mod eval;
mod io;
pub mod language;
pub mod method;
pub mod record;
mod report;
pub mod run;
mod saved;
pub mod settings;
pub mod suite;
pub mod task;
mod text;

pub use error::{Error, Kind, Result, kind_of};
pub use lrvd_models::Error as ModelsError;
pub use report::Judged;
pub use saved::FileHashes;
pub use text::{UnknownName, decimals, grouped, printable, printable_json};

pub mod progress {
    pub use lrvd_burn::train::{Event, ProgressSink, Silent};
}
