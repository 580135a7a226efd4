//! JSON files, with errors that name the file.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::BenchError;
use crate::report::write_text;

/// How a file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonLayout {
    /// One line.
    Compact,
    /// Indented, for people.
    Pretty,
}

/// Reads the value in `path`.
///
/// # Errors
///
/// [`BenchError::Io`] if it cannot be read, [`BenchError::Json`] if it is not what is wanted.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, BenchError> {
    parse_json(path, &read_text(path)?)
}

/// The text of `path`.
///
/// # Errors
///
/// [`BenchError::Io`] if it cannot be read.
pub(crate) fn read_text(path: &Path) -> Result<String, BenchError> {
    std::fs::read_to_string(path).map_err(|source| BenchError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

/// The value in `text`, which was read from `path`.
///
/// # Errors
///
/// [`BenchError::Json`] if it is not what is wanted.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, BenchError> {
    serde_json::from_str(text).map_err(|source| BenchError::Json { path: path.to_owned(), source })
}

/// The values of a file that holds one on each line.
///
/// # Errors
///
/// As [`read_json`].
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, BenchError> {
    read_text(path)?.lines().map(|line| parse_json(path, line)).collect()
}

/// Writes `value` to `path`, whole or not at all.
///
/// # Errors
///
/// [`BenchError::Json`] if it has no JSON form, [`BenchError::Report`] if it cannot be written.
pub(crate) fn write_json(
    path: &Path,
    value: &impl Serialize,
    layout: JsonLayout,
) -> Result<(), BenchError> {
    let text = match layout {
        JsonLayout::Compact => serde_json::to_string(value),
        JsonLayout::Pretty => serde_json::to_string_pretty(value),
    };
    let text = text.map_err(|source| BenchError::Json { path: path.to_owned(), source })?;
    Ok(write_text(path, &text)?)
}
