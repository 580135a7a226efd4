//! What is measured on and not trained on.

use std::path::PathBuf;

use super::load::drawn;

/// What a model is measured on.
#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    /// A file of its own.
    File(PathBuf),
    /// This share of the training file's rows, drawn once, the same ones for every seed.
    Share(f64),
}

impl Validation {
    /// The `rows` less `share` of them, and those; `None` if one side would be empty.
    pub(crate) fn split<T>(rows: Vec<T>, share: f64) -> Option<(Vec<T>, Vec<T>)> {
        let held = (share * rows.len() as f64).round() as usize;
        if held == 0 || held >= rows.len() {
            return None;
        }
        let (validation, train) = drawn(rows, held, 0);
        Some((train, validation))
    }
}
