//! Parquet in a program that was built without it.

use std::fs::File;
use std::path::Path;

use anyhow::anyhow;

use super::Row;
use crate::error::Result;

pub(super) enum Columnar {}

impl Columnar {
    pub(super) fn new(_: File, file: &Path, _: &[&str]) -> Result<Self> {
        Err(anyhow!(
            "`{}`: this program was built without its feature `parquet`; build with it (`--features parquet`), \
             or give the rows as `.csv`, `.tsv` or `.jsonl`",
            file.display()
        ))
    }

    pub(super) fn next_row(&mut self, _: &Path) -> Result<Option<Row>> {
        match *self {}
    }
}
