//! CSV: commas separate outside double quotes, and a quote within is doubled.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::{At, Place, Row, TableError};

/// Records below a header.
pub(super) struct Commas {
    names: Arc<[String]>,
    records: csv::StringRecordsIntoIter<File>,
}

impl Commas {
    pub(super) fn new(opened: File, file: &Path) -> Result<Self, TableError> {
        // Too few or too many fields are our error, which names the columns.
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(opened);
        let header = reader.headers().map_err(|error| broken(file, error))?;
        let names = header.iter().map(str::to_owned).collect();
        Ok(Self { names, records: reader.into_records() })
    }

    pub(super) fn next_row(&mut self, file: &Path) -> Result<Option<Row>, TableError> {
        let Some(record) = self.records.next() else { return Ok(None) };
        let record = record.map_err(|error| broken(file, error))?;
        let line = record.position().map_or(0, |position| position.line() as usize);
        let place = Place { file: file.into(), at: At::Line(line) };
        Row::separated(&self.names, place, "comma", record.iter()).map(Some)
    }
}

fn broken(file: &Path, error: csv::Error) -> TableError {
    TableError::Csv { file: file.into(), source: error.into() }
}
