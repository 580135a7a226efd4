//! Parquet in a program that was built without it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;

use super::Row;
use crate::error::Result;

pub(super) struct Columnar {
    pub(super) names: Arc<[String]>,
    absent: std::convert::Infallible,
}

impl Columnar {
    pub(super) fn new(_: File, file: &Path) -> Result<Self> {
        Err(anyhow!(
            "`{}`: this program was built without its feature `parquet`; build with it (`--features parquet`), \
             or give the rows as `.csv`, `.tsv` or `.jsonl`",
            file.display()
        ))
    }

    pub(super) fn select(&mut self, _: &Path, _: &[&str]) -> Result<()> {
        match self.absent {}
    }

    pub(super) fn next_row(&mut self, _: &Path) -> Result<Option<Row>> {
        match self.absent {}
    }
}
