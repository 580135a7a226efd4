//! Parquet, a row at a time, through the record interface, which needs no Arrow.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::ConvertedType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::{At, Cell, Place, Row, TableError};

/// Rows under a schema.
pub(super) struct Columnar {
    names: Arc<[String]>,
    /// Which of the columns are decoded, in ascending order.
    kept: Vec<usize>,
    rows: RowIter<'static>,
    number: usize,
}

impl Columnar {
    /// Decodes the `wanted` columns, or all if none are named.
    pub(super) fn new(opened: File, file: &Path, wanted: &[&str]) -> Result<Self, TableError> {
        let broken = |source| broken(file, source);
        let reader = SerializedFileReader::new(opened).map_err(broken)?;
        let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
        let fields = schema.get_fields();
        let names: Arc<[String]> = fields.iter().map(|field| field.name().to_owned()).collect();
        let needed = |i: &usize| wanted.is_empty() || wanted.contains(&names[*i].as_str());
        let kept: Vec<usize> = (0..names.len()).filter(needed).collect();
        if kept.is_empty() {
            let wanted = wanted.iter().map(|&name| name.to_owned()).collect();
            return Err(TableError::MissingColumn {
                file: file.into(),
                wanted,
                found: names.to_vec(),
            });
        }
        if let Some(&column) = kept.iter().find(|&&column| has_interval(&fields[column])) {
            return Err(TableError::Interval { file: file.into(), column: names[column].clone() });
        }
        let projection = Type::group_type_builder(schema.name())
            .with_fields(kept.iter().map(|&column| fields[column].clone()).collect())
            .build()
            .map_err(broken)?;
        let rows =
            RowIter::from_file_into(Box::new(reader)).project(Some(projection)).map_err(broken)?;
        Ok(Self { names, kept, rows, number: 0 })
    }

    pub(super) fn next_row(&mut self, file: &Path) -> Result<Option<Row>, TableError> {
        let Some(row) = self.rows.next() else { return Ok(None) };
        self.number += 1;
        let mut cells = vec![Cell::Null; self.names.len()];
        let fields = row.map_err(|source| broken(file, source))?.into_columns();
        for (&column, (_, field)) in self.kept.iter().zip(fields) {
            cells[column] = field.into();
        }
        let place = Place { file: file.into(), at: At::Row(self.number) };
        Ok(Some(Row::under(Arc::clone(&self.names), place, cells)))
    }
}

impl From<Field> for Cell {
    fn from(field: Field) -> Self {
        match field {
            Field::Null => Self::Null,
            Field::Bool(flag) => Self::Bool(flag),
            Field::Byte(number) => Self::Integer(number.into()),
            Field::Short(number) => Self::Integer(number.into()),
            Field::Int(number) => Self::Integer(number.into()),
            Field::Long(number) => Self::Integer(number),
            Field::UByte(number) => Self::Integer(number.into()),
            Field::UShort(number) => Self::Integer(number.into()),
            Field::UInt(number) => Self::Integer(number.into()),
            Field::ULong(number) => {
                i64::try_from(number).map_or(Self::Float(number as f64), Self::Integer)
            }
            Field::Float(number) => Self::Float(number.into()),
            Field::Double(number) => Self::Float(number),
            Field::Str(text) => Self::Text(text),
            Field::Group(row) => Self::Object(
                row.into_columns().into_iter().map(|(key, value)| (key, value.into())).collect(),
            ),
            Field::ListInternal(list) => {
                Self::List(list.elements().iter().cloned().map(Self::from).collect())
            }
            _ => Self::Other,
        }
    }
}

/// Whether a field is an interval or holds one, of which the record interface knows no value.
fn has_interval(field: &Type) -> bool {
    field.get_basic_info().converted_type() == ConvertedType::INTERVAL
        || field.is_group() && field.get_fields().iter().any(|inner| has_interval(inner))
}

fn broken(file: &Path, source: ParquetError) -> TableError {
    TableError::Parquet { file: file.into(), source: source.into() }
}
