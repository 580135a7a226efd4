//! Data of the tasks: from rows on disk to batches of token ids.
//!
//! | File | Holds |
//! |---|---|
//! | `example` | [`Example`], [`Label`], [`Split`], [`Dataset`], [`Spread`], [`Validation`] |
//! | `table` | rows of typed values from TSV, CSV, JSONL and parquet |
//! | `read` | the examples of a task from such rows, and its columns |
//! | `locate` | which files of a data directory serve a task, in a fixed order of preference |
//! | `load` | counts, hashes and notes for the record; [`PreparedTask`]: token ids and labels of a task |
//! | `quick` | the shipped data of the quick profiles |
//! | `wording` | [`Wording`]: how a language model is asked for a class |
//! | `batch` | [`TokenExamples`](batch::TokenExamples): batches on the device; the longest beginning that fits |
//!
//! A bad row is an error that names file, line and column; no row is skipped.

pub mod batch;
mod example;
pub(crate) mod load;
pub(crate) mod locate;
pub(crate) mod quick;
mod read;
pub mod table;
mod wording;

pub use example::{
    Dataset, Example, Label, Origin, SourceFile, Split, SplitName, Spread, Texts, Validation,
};
pub use load::PreparedTask;
pub(crate) use load::{describe, held_out, held_out_rows, in_order, limit, load, sample};
pub(crate) use locate::locate;
pub use locate::{FileSet, Located};
pub use quick::write_generated;
pub(crate) use read::read_examples;
pub use table::{At, Format, Place};
pub use wording::{WordedTexts, Wording};
