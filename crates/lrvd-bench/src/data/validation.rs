//! What is measured on and not trained on.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::load::drawn;
use crate::error::Result;

#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    File(PathBuf),
    /// This share of the training file's rows, drawn once, the same ones for every seed.
    Share(f64),
}

impl Validation {
    pub(crate) fn split<T>(file: &Path, rows: Vec<T>, share: f64) -> Result<(Vec<T>, Vec<T>)> {
        let held = (share * rows.len() as f64).round() as usize;
        if held == 0 || held >= rows.len() {
            bail!(
                "`{}`: {share} of its {} rows leaves none to train on or none to measure on; pass another \
                 `--validation-split`, or `--validation FILE`",
                file.display(),
                rows.len()
            );
        }
        let (validation, train) = drawn(rows, held, 0);
        Ok((train, validation))
    }
}
