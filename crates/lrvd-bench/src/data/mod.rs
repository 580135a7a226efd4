//! Data of the tasks: from rows on disk to batches of token ids.
//!
//! | File        | Holds                                                                          |
//! |-------------|--------------------------------------------------------------------------------|
//! | `example`   | [`Example`], [`Split`], [`Dataset`]: what every reader returns                   |
//! | `columns`   | which column or key holds what, by task                                        |
//! | `label`     | a field's text or number to a [`Label`]                                        |
//! | `table`     | rows of typed values from TSV, CSV, JSONL and parquet                          |
//! | `read`      | the examples of a task from such rows                                          |
//! | `locate`    | which files of a data directory serve a task, in a fixed order of preference   |
//! | `search`    | the search itself, also for the reasoning sets                                 |
//! | `folder`    | names and shards of a folder, also for the reasoning sets                      |
//! | `mark`      | what a folder of generated data says of itself                                 |
//! | `load`      | reads what was located; counts, hashes and notes for the record                |
//! | `quick`     | the shipped data of the quick profiles                                         |
//! | `bare`      | the tokens of a text without those around it; the longest beginning that fits  |
//! | `wording`   | [`Wording`]: how a language model is asked for a class                         |
//! | `prepared`  | [`PreparedTask`]: token ids and labels of a task                               |
//! | `spread`    | [`Spread`]: least, median, 95 %, most                                          |
//! | `validation` | [`Validation`]: which rows are measured on                                    |
//! | `batch`     | [`TokenExamples`](batch::TokenExamples): batches on the device                 |
//!
//! A bad row is an error that names file, line and column; no row is skipped.

pub(crate) mod bare;
pub mod batch;
mod columns;
mod example;
pub(crate) mod folder;
mod label;
mod load;
mod locate;
pub(crate) mod mark;
mod prepared;
pub(crate) mod quick;
mod read;
pub(crate) mod search;
#[cfg(test)]
mod smoke;
mod spread;
pub mod table;
mod validation;
mod wording;

pub use example::{Dataset, Example, Label, Origin, SourceFile, Split, SplitName, Texts};
pub(crate) use load::{describe, drawn, limit, load, sample};
pub(crate) use locate::locate;
pub use prepared::PreparedTask;
pub(crate) use prepared::{held_out, held_out_rows, in_order};
pub use quick::write_generated;
pub(crate) use read::read_examples;
pub use search::{FileSet, Located};
pub use spread::Spread;
pub use table::{At, Format, Place};
pub use validation::Validation;
pub use wording::{WordedTexts, Wording};
