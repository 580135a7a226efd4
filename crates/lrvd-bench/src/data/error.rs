//! What is wrong with a data file, and where?

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::SplitName;
use crate::text::quoted;

/// A position within a data file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A line of a text file; the header is line 1.
    Line(usize),
    /// A row of a columnar file.
    Row(usize),
}

/// A file and a position in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The position.
    pub at: At,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.at {
            At::Line(number) => write!(f, "`{file}`, line {number}"),
            At::Row(number) => write!(f, "`{file}`, row {number}"),
        }
    }
}

/// Why a data set could not be found, read or generated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
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
    /// A file cannot be opened or read.
    #[error("cannot read `{}`", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write `{}`", .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A text file is not UTF-8.
    #[error("{place}: invalid UTF-8 at byte {offset} of the file")]
    Encoding {
        /// File and line.
        place: Place,
        /// Offset of the first bad byte from the start of the file, counted from 0.
        offset: usize,
    },
    /// A file has no rows.
    #[error("`{}` holds no examples", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The header or the schema lacks a column.
    #[error(
        "`{}` has no column {}; its columns are {}",
        .file.display(), any_of(.wanted), quoted(.found)
    )]
    MissingColumn {
        /// The file.
        file: PathBuf,
        /// Names that would have been accepted.
        wanted: Vec<&'static str>,
        /// Names that the file has.
        found: Vec<String>,
    },
    /// An object lacks a key.
    #[error("{place}: no key {}; the keys are {}", any_of(.wanted), quoted(.found))]
    MissingKey {
        /// File and line.
        place: Place,
        /// Names that would have been accepted.
        wanted: Vec<&'static str>,
        /// Names that the object has.
        found: Vec<String>,
    },
    /// A row has too few or too many fields.
    #[error("{place}: {found} tab-separated fields where {wanted} are expected ({})", .columns.join(", "))]
    FieldCount {
        /// File and line.
        place: Place,
        /// Number of columns.
        wanted: usize,
        /// Number of fields in the row.
        found: usize,
        /// Names of the columns.
        columns: Vec<String>,
    },
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
    /// A text is empty or holds only white space.
    #[error("{place}, column `{column}`: empty text")]
    EmptyText {
        /// File and line.
        place: Place,
        /// Column or key.
        column: String,
    },
    /// A value has the wrong type.
    #[error("{place}, column `{column}`: {found} where {wanted} is expected")]
    Type {
        /// File and line.
        place: Place,
        /// Column or key.
        column: String,
        /// What is expected.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// A line is no JSON object.
    #[error("{place}: not a JSON object")]
    Json {
        /// File and line.
        place: Place,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A parquet file cannot be decoded.
    #[error("cannot decode parquet file `{}`", .file.display())]
    Parquet {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
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
    /// A grammar has fewer distinct examples than asked for.
    #[error("the grammar of task `{task}` gave {found} distinct examples, {wanted} are wanted")]
    Exhausted {
        /// Command-line name of the task.
        task: &'static str,
        /// Number asked for.
        wanted: usize,
        /// Number found before giving up.
        found: usize,
    },
    /// A setting of the generator is out of range.
    #[error("`{name}` is {value}, wanted {wanted}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Value as given.
        value: f64,
        /// Allowed values in words.
        wanted: &'static str,
    },
}

fn any_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

fn allowed(classes: &[&str]) -> String {
    let each = classes.iter().enumerate().map(|(id, name)| format!("`{name}` ({id})"));
    each.collect::<Vec<_>>().join(", ")
}
