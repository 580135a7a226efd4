//! What can be wrong with a data set, and where.

use std::path::PathBuf;

use thiserror::Error;

use super::SplitName;
use super::table::{Place, TableError};
use crate::io::IoError;
use crate::text::quoted;

/// Why a data set could not be found or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file cannot be read as a table, or a row as an example.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The data directory itself is missing.
    #[error("data directory `{}` does not exist or is not a directory", .dir.display())]
    NoDirectory {
        /// The directory as given.
        dir: PathBuf,
    },
    /// No files of the task were found.
    #[error(
        "no {split} files of task `{task}` in `{}`; looked for {}", .dir.display(), quoted(.looked_for)
    )]
    NotFound {
        /// Command-line name of the task.
        task: &'static str,
        /// The split that has no file.
        split: SplitName,
        /// The data directory.
        dir: PathBuf,
        /// Every file name that would have served, in order of preference.
        looked_for: Vec<String>,
    },
    /// A sharded parquet split is incomplete.
    #[error(
        "`{}` has {found} of the {wanted} shards that its file names announce", .file.display()
    )]
    Shards {
        /// First shard.
        file: PathBuf,
        /// Announced number of shards.
        wanted: usize,
        /// Number of shards in the folder.
        found: usize,
    },
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A label is none of the classes.
    #[error("{place}, column `{column}`: unknown label `{found}`, wanted one of {}", allowed(.classes))]
    UnknownLabel {
        /// File and line.
        place: Place,
        /// Column or key.
        column: String,
        /// The label as found.
        found: String,
        /// Class names in id order.
        classes: &'static [&'static str],
    },
    /// A label is −1, the mark of a hidden test label.
    #[error(
        "{place}, column `{column}`: label -1 marks a hidden test label, wanted one of {}",
        allowed(.classes)
    )]
    HiddenLabel {
        /// File and line.
        place: Place,
        /// Column or key.
        column: String,
        /// Class names in id order.
        classes: &'static [&'static str],
    },
    /// A score is no number or out of range.
    #[error("{place}, column `{column}`: `{found}` is not a score within {low}..={high}")]
    Score {
        /// File and line.
        place: Place,
        /// Column or key.
        column: String,
        /// The score as found.
        found: String,
        /// Smallest score.
        low: f64,
        /// Largest score.
        high: f64,
    },
    /// The mark of a generated folder cannot be understood.
    #[error("`{}` does not describe a generated data set", .file.display())]
    GeneratedMark {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The list of paraphrase pairs names a pair that the corpus lacks.
    #[error("`{}` names {wanted} pairs, of which the corpus has {found}", .file.display())]
    PairIds {
        /// The list.
        file: PathBuf,
        /// Number of pairs listed.
        wanted: usize,
        /// Number of them found.
        found: usize,
    },
    /// A task is not among the shipped data.
    #[error(
        "task `{task}` is not among the shipped ones, {}: name a folder of its files with `--data-dir`", quoted(*.shipped)
    )]
    NotShipped {
        /// Command-line name of the task.
        task: &'static str,
        /// Command-line names of those that are.
        shipped: &'static [&'static str],
    },
}

fn allowed(classes: &[&str]) -> String {
    let each = classes.iter().enumerate().map(|(id, name)| format!("`{name}` ({id})"));
    each.collect::<Vec<_>>().join(", ")
}
