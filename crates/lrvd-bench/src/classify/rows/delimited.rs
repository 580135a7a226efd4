//! Tab- and comma-separated files with a header.

use std::path::Path;

use csv::{ErrorKind, ReaderBuilder, StringRecord};

use super::{Positions, Row, TextColumns, line};
use crate::classify::error::ClassifyError;

/// How fields are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// A tab always separates, and a quote is a letter.
    Tabs,
    /// A comma separates outside double quotes; a quote within is doubled.
    Commas,
}

pub(super) fn read(
    file: &Path,
    dialect: Dialect,
    columns: &TextColumns,
) -> Result<Vec<Row>, ClassifyError> {
    let (delimiter, quoting) = match dialect {
        Dialect::Tabs => (b'\t', false),
        Dialect::Commas => (b',', true),
    };
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .quoting(quoting)
        .from_path(file)
        .map_err(|error| refused(file, error))?;
    let header = reader.headers().map_err(|error| refused(file, error))?.clone();
    let names: Vec<&str> = header.iter().collect();
    let at = Positions::find(file, columns, &names)?;
    let mut rows = Vec::new();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| refused(file, error))? {
        let place = line(file, record.position().map_or(0, csv::Position::line));
        let field = |i: usize| record[i].to_owned();
        let (pair, label) = (at.pair.map(field), at.label.map(field));
        rows.push(Row::new(place, columns, field(at.text), pair, label)?);
    }
    Ok(rows)
}

fn refused(file: &Path, error: csv::Error) -> ClassifyError {
    let position = error.position().map(csv::Position::line);
    match (error.kind(), position) {
        (ErrorKind::UnequalLengths { expected_len, len, .. }, Some(number)) => {
            let place = line(file, number);
            ClassifyError::FieldCount { place, wanted: *expected_len, found: *len }
        }
        (_, Some(number)) => {
            ClassifyError::Row { place: line(file, number), source: Box::new(error) }
        }
        _ => ClassifyError::Decode { file: file.to_owned(), source: Box::new(error) },
    }
}
