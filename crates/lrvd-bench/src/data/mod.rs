//! Data of the tasks: from rows on disk to batches of token ids.
//!
//! | File        | Holds                                                                          |
//! |-------------|--------------------------------------------------------------------------------|
//! | `example`   | [`Example`], [`Split`], [`Dataset`]: what every reader returns                   |
//! | `columns`   | which column or key holds what, by task                                        |
//! | `label`     | a field's text or number to a [`Label`]                                        |
//! | `tsv`, `jsonl`, `parquet` | one reader for each file format                                  |
//! | `locate`    | which files of a data directory serve a task, in a fixed order of preference   |
//! | `folder`    | names, shards and marks of a folder, also for the reasoning sets               |
//! | `load`      | reads what was located; counts, hashes and notes for the record                |
//! | `generate`  | GLUE-like tasks from small grammars, for runs without any data                 |
//! | `prepared`  | [`PreparedTask`]: token ids and labels of a task                               |
//! | `batch`     | orders, buckets, padding; batches on the device                                |
//!
//! A bad row is an error that names file, line and column; no row is skipped.

pub mod batch;
mod columns;
mod error;
mod example;
pub(crate) mod folder;
pub mod generate;
mod jsonl;
mod label;
mod load;
mod locate;
mod parquet;
mod prepared;
#[cfg(test)]
mod smoke;
mod tsv;

pub use error::{At, DataError, Place};
pub use example::{Dataset, Example, Label, Origin, SourceFile, Split, SplitName};
pub use jsonl::{parse_jsonl, read_jsonl};
pub(crate) use load::{describe, limit};
pub use load::{load, read_files};
pub use locate::{FileSet, Format, Located, locate};
pub use parquet::read_parquet;
pub use prepared::PreparedTask;
pub use tsv::{parse_tsv, read_tsv};
