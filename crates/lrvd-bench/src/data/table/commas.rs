//! CSV: commas separate outside double quotes, and a quote within is doubled.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;

use super::{At, Place, Row, TableError};
use crate::io::IoError;

/// Records below a header.
pub(super) struct Commas {
    names: Arc<[String]>,
    records: csv::StringRecordsIntoIter<BufReader<File>>,
    /// The reader leaves the LF of CRLF for the next record, whose line it counts too low by 1.
    before: usize,
}

impl Commas {
    pub(super) fn new(opened: File, file: &Path) -> Result<Self, TableError> {
        let mut opened = BufReader::new(opened);
        let head = opened.fill_buf().map_err(IoError::at("read", file))?;
        let end = head.iter().position(|&byte| byte == b'\n');
        let crlf = end.is_some_and(|end| head[..end].ends_with(b"\r"));
        // Too few or too many fields are our error, which names the columns.
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(opened);
        let header = reader.headers().map_err(|error| broken(file, error))?;
        let names = header.iter().map(str::to_owned).collect();
        Ok(Self { names, records: reader.into_records(), before: usize::from(crlf) })
    }

    pub(super) fn next_row(&mut self, file: &Path) -> Result<Option<Row>, TableError> {
        let Some(record) = self.records.next() else { return Ok(None) };
        let record = record.map_err(|error| broken(file, error))?;
        let line = record.position().map_or(0, |position| position.line() as usize) + self.before;
        let place = Place { file: file.into(), at: At::Line(line) };
        Row::separated(&self.names, place, "comma", record.iter()).map(Some)
    }
}

fn broken(file: &Path, error: csv::Error) -> TableError {
    TableError::Csv { file: file.into(), source: error.into() }
}
