//! What can be wrong with a table, and where.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::MAX_ROW;
use crate::io::IoError;
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

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a table cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The file's name does not say how to read it.
    #[error(
        "`{}` is in no known format; wanted a name that ends in `.tsv`, `.csv`, `.jsonl` or `.parquet`",
        .file.display()
    )]
    Format {
        /// The file.
        file: PathBuf,
    },
    /// A file cannot be opened or read.
    #[error(transparent)]
    Read(#[from] IoError),
    /// A text file is not UTF-8.
    #[error("{place}: invalid UTF-8 at byte {offset} of the file")]
    Encoding {
        /// File and line.
        place: Place,
        /// Offset of the first bad byte from the start of the file, counted from 0.
        offset: usize,
    },
    /// A line, or a row of a CSV file, does not end.
    #[error("{place}: longer than {} MiB", MAX_ROW >> 20)]
    Long {
        /// File and line.
        place: Place,
    },
    /// A file has no rows.
    #[error("`{}` holds no examples", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A share that leaves no row on one side.
    #[error("`{}`: {share} of its {rows} rows leaves none to train on or none to measure on; pass another \
             `--validation-split`, or `--validation FILE`", file.display())]
    Share {
        /// The file.
        file: PathBuf,
        /// Its rows.
        rows: usize,
        /// The share.
        share: f64,
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
        wanted: Vec<String>,
        /// Names that the file has.
        found: Vec<String>,
    },
    /// An object lacks a key.
    #[error("{place}: no key {}; the keys are {}", any_of(.wanted), quoted(.found))]
    MissingKey {
        /// File and line.
        place: Place,
        /// Names that would have been accepted.
        wanted: Vec<String>,
        /// Names that the object has.
        found: Vec<String>,
    },
    /// Two columns or keys have the name that is looked for.
    #[error("{place}: `{column}` occurs {found} times, wanted one such column")]
    RepeatedColumn {
        /// File and line: of the header, or of the object.
        place: Place,
        /// The name.
        column: String,
        /// How often it occurs.
        found: usize,
    },
    /// A row has too few or too many fields.
    #[error(
        "{place}: {found} {separator}-separated fields where {wanted} are expected ({})", .columns.join(", ")
    )]
    FieldCount {
        /// File and line.
        place: Place,
        /// What separates them.
        separator: &'static str,
        /// Number of columns.
        wanted: usize,
        /// Number of fields in the row.
        found: usize,
        /// Names of the columns.
        columns: Vec<String>,
    },
    /// A field is empty or holds only white space.
    #[error("{place}, column `{column}`: empty {what}")]
    Blank {
        /// File and line.
        place: Place,
        /// Column or key.
        column: String,
        /// Text or label.
        what: &'static str,
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
        found: &'static str,
    },
    /// A line is no JSON object.
    #[error("{place}: not a JSON object")]
    Json {
        /// File and line.
        place: Place,
        /// Cause.
        source: Cause,
    },
    /// A CSV file cannot be decoded.
    #[error("cannot decode CSV file `{}`", .file.display())]
    Csv {
        /// The file.
        file: PathBuf,
        /// Cause, with its line.
        source: Cause,
    },
    /// A column that is read is of a type for which there is no value.
    #[error(
        "`{}`, column `{column}`: an INTERVAL where a text, a number or a truth value is expected",
        .file.display()
    )]
    Interval {
        /// The file.
        file: PathBuf,
        /// The column.
        column: String,
    },
    /// The program was built without parquet.
    #[error(
        "`{}`: this program was built without its feature `parquet`; build with it (`--features parquet`), or give \
         the rows as `.csv`, `.tsv` or `.jsonl`",
        .file.display()
    )]
    NoParquet {
        /// The file.
        file: PathBuf,
    },
    /// A parquet file cannot be decoded.
    #[error("cannot decode parquet file `{}`", .file.display())]
    Parquet {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: Cause,
    },
}

fn any_of(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}
