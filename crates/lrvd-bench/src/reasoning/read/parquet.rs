//! Columnar files of the public hub, a row at a time, as the objects that JSONL would hold.

use std::fs::File;
use std::path::Path;

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};
use serde_json::{Map, Value};

use super::record::Record;
use crate::data::{At, DataError, Place};

/// Every row as an object.
pub(super) fn records(file: &Path) -> Result<Vec<Record>, DataError> {
    let opened =
        File::open(file).map_err(|source| DataError::Read { file: file.into(), source })?;
    let broken =
        |source: ParquetError| DataError::Parquet { file: file.into(), source: source.into() };
    let reader = SerializedFileReader::new(opened).map_err(broken)?;
    let mut records = Vec::new();
    for row in reader.get_row_iter(None).map_err(broken)? {
        let row = row.map_err(broken)?;
        let place = Place { file: file.into(), at: At::Row(records.len() + 1) };
        records.push(Record { place, fields: object(&row) });
    }
    if records.is_empty() {
        return Err(DataError::Empty { file: file.into() });
    }
    Ok(records)
}

fn object(row: &Row) -> Map<String, Value> {
    row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
}

/// What the field is in JSON. Types that no set has (bytes, dates, maps) become null, which no reader accepts.
fn value(field: &Field) -> Value {
    match field {
        Field::Bool(flag) => Value::from(*flag),
        Field::Byte(number) => Value::from(*number),
        Field::Short(number) => Value::from(*number),
        Field::Int(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Float(number) => Value::from(*number),
        Field::Double(number) => Value::from(*number),
        Field::Str(text) => Value::from(text.as_str()),
        Field::Group(row) => Value::Object(object(row)),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        _ => Value::Null,
    }
}
