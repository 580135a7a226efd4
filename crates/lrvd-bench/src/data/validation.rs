//! What is measured on and not trained on.

use std::path::{Path, PathBuf};

use super::load::drawn;
use super::table::TableError;

#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    File(PathBuf),
    /// This share of the training file's rows, drawn once, the same ones for every seed.
    Share(f64),
}

impl Validation {
    /// The `rows` of `file` less `share` of them, and those.
    pub(crate) fn split<T>(
        file: &Path,
        rows: Vec<T>,
        share: f64,
    ) -> Result<(Vec<T>, Vec<T>), TableError> {
        let held = (share * rows.len() as f64).round() as usize;
        if held == 0 || held >= rows.len() {
            let (file, rows) = (file.to_owned(), rows.len());
            return Err(TableError::Share { file, rows, share });
        }
        let (validation, train) = drawn(rows, held, 0);
        Ok((train, validation))
    }
}
