//! Parquet, a row at a time, through the record interface, which needs no Arrow.

use std::cell::Cell as ThreadCell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::{Arc, Once};

use anyhow::bail;
use parquet::basic::ConvertedType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::row::any_of;
use super::{At, Cell, Place, Row};
use crate::error::{Error, Result};
use crate::text::quoted;

pub(super) struct Columnar {
    pub(super) names: Arc<[String]>,
    /// Until the columns are chosen.
    reader: Option<SerializedFileReader<File>>,
    /// Which of the columns are decoded, in ascending order, and their rows.
    kept: Vec<usize>,
    rows: Option<RowIter<'static>>,
    number: usize,
}

impl Columnar {
    pub(super) fn new(opened: File, file: &Path) -> Result<Self> {
        let reader = decoded(file, || SerializedFileReader::new(opened))?;
        let schema = reader.metadata().file_metadata().schema_descr().root_schema();
        let names = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
        Ok(Self { names, reader: Some(reader), kept: Vec::new(), rows: None, number: 0 })
    }

    /// Decodes the columns named `columns`, or all if none are named.
    pub(super) fn select(&mut self, file: &Path, columns: &[&str]) -> Result<()> {
        let Some(reader) = self.reader.take() else { return Ok(()) };
        let (names, schema) = (&self.names, reader.metadata().file_metadata());
        let schema = schema.schema_descr().root_schema_ptr();
        let fields = schema.get_fields();
        let needed = |i: &usize| columns.is_empty() || columns.contains(&names[*i].as_str());
        let kept: Vec<usize> = (0..names.len()).filter(needed).collect();
        if kept.is_empty() {
            bail!(
                "`{}` has no column {}; its columns are {}",
                file.display(),
                any_of(columns),
                quoted(&**names)
            );
        }
        if let Some(&column) = kept.iter().find(|&&column| has_interval(&fields[column])) {
            bail!(
                "`{}`, column `{column}`: an INTERVAL where a text, a number or a truth value is expected",
                file.display(),
                column = names[column]
            );
        }
        let projection = Type::group_type_builder(schema.name())
            .with_fields(kept.iter().map(|&column| fields[column].clone()).collect())
            .build()
            .map_err(|source| broken(file, source))?;
        let rows =
            decoded(file, || RowIter::from_file_into(Box::new(reader)).project(Some(projection)))?;
        (self.kept, self.rows) = (kept, Some(rows));
        Ok(())
    }

    pub(super) fn next_row(&mut self, file: &Arc<Path>) -> Result<Option<Row>> {
        self.select(file, &[])?;
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let Some(row) = decoded(file, || rows.next().transpose())? else { return Ok(None) };
        self.number += 1;
        let mut cells = vec![Cell::Null; self.names.len()];
        let fields = row.into_columns();
        for (&column, (_, field)) in self.kept.iter().zip(fields) {
            cells[column] = field.into();
        }
        let place = Place { file: Arc::clone(file), at: At::Row(self.number) };
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
            Field::Long(number) => Self::Integer(number.into()),
            Field::UByte(number) => Self::Integer(number.into()),
            Field::UShort(number) => Self::Integer(number.into()),
            Field::UInt(number) => Self::Integer(number.into()),
            Field::ULong(number) => Self::Integer(number.into()),
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

thread_local! {
    /// Whether this thread decodes, so that the panics on it are errors of a file, which the panic hook does not print.
    static DECODES: ThreadCell<bool> = const { ThreadCell::new(false) };
}

/// What `decode` returns. The decoder panics on some damaged files; that is an error of the file here.
fn decoded<T>(file: &Path, decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !DECODES.get() {
                usual(panic);
            }
        }));
    });
    DECODES.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(decode));
    DECODES.set(false);
    let outcome = outcome.unwrap_or_else(|_| {
        Err(ParquetError::General("the file is damaged: its pages do not fit its metadata".into()))
    });
    outcome.map_err(|source| broken(file, source))
}

fn broken(file: &Path, source: ParquetError) -> Error {
    let source = match source {
        ParquetError::General(text) if text.starts_with("Disabled feature") => ParquetError::NYI(
            format!("{text}; rewrite the file with snappy, zstd or no compression"),
        ),
        source => source,
    };
    Error::new(source).context(format!("cannot decode parquet file `{}`", file.display()))
}
