//! What can go wrong with published numbers.

/// A table of published numbers that cannot be used; lines count from 1, the header included.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// The file cannot be opened or read.
    #[error("cannot read `{file}`: {message}")]
    Unreadable {
        /// The file.
        file: String,
        /// The operating system's answer.
        message: String,
    },
    /// The first line is not the expected header.
    #[error("`{file}`:1: the header is `{found}`, expected `{wanted}`")]
    Header {
        /// The file.
        file: String,
        /// The columns wanted.
        wanted: &'static str,
        /// The columns found.
        found: String,
    },
    /// A line is not text that a CSV reader can split.
    #[error("`{file}`:{line}: {message}")]
    Malformed {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// What the reader says.
        message: String,
    },
    /// A row with too few or too many cells.
    #[error("`{file}`:{line}: {found} cells in this row, expected {wanted}")]
    Width {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// Cells wanted.
        wanted: usize,
        /// Cells found.
        found: usize,
    },
    /// A cell that must hold text is empty.
    #[error("`{file}`:{line}: column `{column}` is empty")]
    Empty {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
    },
    /// A cell that must hold a finite number does not.
    #[error("`{file}`:{line}: column `{column}` holds `{found}`, expected {wanted}")]
    Number {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// What a good cell holds.
        wanted: &'static str,
        /// The cell.
        found: String,
    },
    /// The same metric, method and task twice.
    #[error(
        "`{file}`:{line}: `{metric}`, `{method}`, `{task}` is already given on line {first_line}"
    )]
    Duplicate {
        /// The file.
        file: String,
        /// The second line.
        line: u64,
        /// The first line.
        first_line: u64,
        /// The metric.
        metric: String,
        /// The method.
        method: String,
        /// The task.
        task: String,
    },
    /// A header and nothing below it.
    #[error("`{file}` has a header but no rows")]
    NoRows {
        /// The file.
        file: String,
    },
}
