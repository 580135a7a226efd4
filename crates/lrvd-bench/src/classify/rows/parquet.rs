//! Parquet files, read row by row; only the needed columns are decoded.

use std::fs::File;
use std::path::Path;

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use ::parquet::schema::types::Type;

use super::{Positions, Row, TextColumns};
use crate::classify::error::ClassifyError;
use crate::data::{At, Place};

pub(super) fn read(file: &Path, columns: &TextColumns) -> Result<Vec<Row>, ClassifyError> {
    let decode = |source: Box<dyn std::error::Error + Send + Sync>| ClassifyError::Decode {
        file: file.to_owned(),
        source,
    };
    let broken = |source: ParquetError| decode(source.into());
    let opened = File::open(file).map_err(|error| decode(error.into()))?;
    let reader = SerializedFileReader::new(opened).map_err(broken)?;
    let schema = reader.metadata().file_metadata().schema();
    let fields = schema.get_fields();
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let at = Positions::find(file, columns, &names)?;
    let mut kept: Vec<usize> = [Some(at.text), at.pair, at.label].into_iter().flatten().collect();
    kept.sort_unstable();
    kept.dedup();
    let moved = |column: usize| kept.binary_search(&column).unwrap_or_default();
    let projection = Type::group_type_builder(schema.name())
        .with_fields(kept.iter().map(|column| fields[*column].clone()).collect())
        .build()
        .map_err(broken)?;
    let mut rows = Vec::new();
    for row in reader.get_row_iter(Some(projection)).map_err(broken)? {
        let row = row.map_err(broken)?;
        let place = Place { file: file.to_owned(), at: At::Row(rows.len() + 1) };
        let cells: Vec<&Field> = row.get_column_iter().map(|(_, value)| value).collect();
        let read = |column: usize, label: bool| match (as_text(cells[moved(column)]), label) {
            (Some(text), true) => Ok(text),
            (Some(text), false) if matches!(cells[moved(column)], Field::Str(_)) => Ok(text),
            _ => Err(ClassifyError::Type {
                place: place.clone(),
                column: names[column].to_owned(),
                wanted: if label { "a string or a number" } else { "a string" },
                found: format!("`{}`", cells[moved(column)]),
            }),
        };
        let (pair, label) = (
            at.pair.map(|column| read(column, false)).transpose()?,
            at.label.map(|column| read(column, true)).transpose()?,
        );
        rows.push(Row::new(place.clone(), columns, read(at.text, false)?, pair, label)?);
    }
    Ok(rows)
}

/// Text, numbers and truth values as they would stand in a text file.
fn as_text(value: &Field) -> Option<String> {
    Some(match value {
        Field::Str(text) => text.clone(),
        Field::Bool(flag) => flag.to_string(),
        Field::Byte(v) => v.to_string(),
        Field::Short(v) => v.to_string(),
        Field::Int(v) => v.to_string(),
        Field::Long(v) => v.to_string(),
        Field::UByte(v) => v.to_string(),
        Field::UShort(v) => v.to_string(),
        Field::UInt(v) => v.to_string(),
        Field::ULong(v) => v.to_string(),
        Field::Float(v) => v.to_string(),
        Field::Double(v) => v.to_string(),
        _ => return None,
    })
}
