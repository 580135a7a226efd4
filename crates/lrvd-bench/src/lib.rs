//! Experiments with low-rank adapters: data, training, evaluation, reports.
//!
//! From the bottom up; a module uses those above it in this table and none below, which
//! `cargo xtask tidy module-directions` checks.
//!
//! | Module | What is in it |
//! |---|---|
//! | `error`, `text`, `io`, `unused` | errors and their kinds, words of messages, whole files, what is read and not used |
//! | `hub` | repositories of models and data sets, and their cache |
//! | [`answers`] | what a model answers, and where its answer is read; typed questions |
//! | [`settings`] | every setting of a run, the presets, the methods there are |
//! | [`record`] | what a run leaves behind |
//! | [`task`], [`data`] | the table of tasks; what is learnt, from which files; prompts and token ids |
//! | `backbone` | where the pretrained model comes from |
//! | [`eval`] | predictions and what is measured of them |
//! | [`method`] | what each fine-tuning method attaches, minimises and does to ranks |
//! | `memory` | what a run needs at its peak, and what the process may use |
//! | [`language`] | a user's texts as tokens |
//! | [`run`] | one run: beginning, loop, record, folder |
//! | `report` | tables, comparisons, the page that a person looks at |
//! | [`adapter`] | what is in an adapter folder; predictions, measurement, new texts of a saved model |
//! | `train` | [`train()`]: training into a folder |
//! | [`export`] | adapters for other programs, a model card; ranks and sizes |
//! | [`data_check`] | a report on data before anything is trained |
//! | [`suite`] | whole reproductions: GLUE and reasoning; plans and their workers; arms of settings, compared in pairs |
//!
//! The loop is [`lrvd_burn::train`]'s. Nothing here prints: callers pass a function of [`progress::Event`].

#![cfg_attr(docsrs, feature(doc_cfg))]
// The crate's only user is `lrvd-cli`: docs are where they say something.
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod adapter;
pub mod answers;
mod backbone;
pub mod data;
pub mod data_check;
mod error;
pub mod eval;
pub mod export;
mod hub;
mod io;
pub mod language;
mod memory;
pub mod method;
pub mod record;
mod report;
pub mod run;
pub mod settings;
pub mod suite;
pub mod task;
mod text;
mod train;
mod unused;

pub use error::{Error, Kind, Result, kind_of, left_out, no_threads, unreadable};
pub use io::{Unique, read_unique, whole_json};
pub use lrvd_models::Error as ModelsError;
pub use memory::PlannedMemory;
pub use report::Verdict;
pub use text::{UnknownName, decimals, grouped, percent, printable, printable_json};
pub use train::{
    PlannedSetting, TrainOptions, TrainOutcome, TrainPlan, cross_fitted_suspects, plan_training,
    train,
};
pub use unused::Unused;

pub mod progress {
    pub use lrvd_burn::train::Event;
}
