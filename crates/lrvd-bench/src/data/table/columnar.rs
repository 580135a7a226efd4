//! Parquet, a row at a time, through the record interface, which needs no Arrow; and rows as parquet.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::{Arc, Once};

use anyhow::{bail, ensure};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::Value;

use super::super::columns::ID;
use super::column::{Column, Kind, cell_text};
use super::row::{At, Place, Row, Source, any_of};
use crate::error::{Error, Result};
use crate::text::quoted;

pub(super) struct Columnar {
    file: Arc<Path>,
    names: Arc<[String]>,
    /// Until the columns are chosen.
    reader: Option<SerializedFileReader<File>>,
    /// Columns that are decoded, in ascending order, and their rows.
    kept: Vec<usize>,
    rows: Option<RowIter<'static>>,
    number: usize,
    /// Names of the classes of a column, as the library `datasets` stores them.
    classes: BTreeMap<String, Vec<String>>,
}

impl Columnar {
    pub(super) fn new(opened: File, file: &Arc<Path>) -> Result<Self> {
        let reader = decoded(file, || SerializedFileReader::new(opened))?;
        let metadata = reader.metadata().file_metadata();
        let stated = metadata.key_value_metadata().into_iter().flatten();
        let stated =
            stated.filter(|pair| pair.key == DATASETS).filter_map(|pair| pair.value.as_ref());
        let classes = stated.map(|text| class_labels(text)).next().unwrap_or_default();
        let schema = metadata.schema_descr().root_schema();
        let names = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
        let file = Arc::clone(file);
        let reader = Some(reader);
        Ok(Self { file, names, reader, kept: Vec::new(), rows: None, number: 0, classes })
    }
}

impl Source for Columnar {
    fn names(&self) -> Option<&[String]> {
        Some(&self.names)
    }

    fn names_of(&self, column: &str) -> Option<&[String]> {
        self.classes.get(column).map(Vec::as_slice)
    }

    /// Decodes the columns named `columns`, or all if none are named.
    fn select(&mut self, columns: &[&str]) -> Result<()> {
        let file = &self.file;
        let Some(reader) = self.reader.take() else { return Ok(()) };
        let names = &self.names;
        let schema = reader.metadata().file_metadata();
        let schema = schema.schema_descr().root_schema_ptr();
        let fields = schema.get_fields();
        // An id that cannot be read is none.
        let is_id = |i: usize| names[i] == ID && unreadable(&fields[i]).is_some();
        let needed =
            |i: &usize| columns.is_empty() || columns.contains(&names[*i].as_str()) && !is_id(*i);
        let kept: Vec<usize> = (0..names.len()).filter(needed).collect();
        ensure!(
            !kept.is_empty(),
            "`{}` has no column {}; its columns are {}",
            file.display(),
            any_of(columns),
            quoted(&**names)
        );
        for &column in &kept {
            if let Some(found) = unreadable(&fields[column]) {
                let file = file.display();
                let column = &names[column];
                bail!(
                    "`{file}`, column `{column}`: {found} where a text, a number or a truth value is expected"
                );
            }
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

    fn next_row(&mut self) -> Result<Option<Row>> {
        self.select(&[])?;
        let file = &self.file;
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let Some(row) = decoded(file, || rows.next().transpose())? else { return Ok(None) };
        self.number += 1;
        let mut cells = vec![Value::Null; self.names.len()];
        let fields = row.into_columns();
        for (&column, (_, field)) in self.kept.iter().zip(fields) {
            cells[column] = field.to_json_value();
        }
        let place = Place { file: Arc::clone(file), at: At::Row(self.number) };
        Ok(Some(Row { place, names: Arc::clone(&self.names), keyed: false, cells }))
    }
}

/// The metadata of the library `datasets`: `{"info": {"features": {COLUMN: {"_type": "ClassLabel", "names": [...]}}}}`.
const DATASETS: &str = "huggingface";

/// The names of the classes of each column; text of another form states none.
fn class_labels(metadata: &str) -> BTreeMap<String, Vec<String>> {
    let metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
    let features = metadata.pointer("/info/features").and_then(Value::as_object);
    let names = |(column, feature): (&String, &Value)| {
        let names = feature.get("names").filter(|_| feature["_type"] == "ClassLabel")?;
        let names: Vec<String> = serde_json::from_value(names.clone()).ok()?;
        Some((column.clone(), names))
    };
    features.into_iter().flatten().filter_map(names).collect()
}

/// Kind of a field that is no value here, or has such a field within: an interval, which the record interface does not
/// decode, or bytes, which need not be text.
fn unreadable(field: &Type) -> Option<&'static str> {
    if field.is_group() {
        return field.get_fields().iter().find_map(|inner| unreadable(inner));
    }
    match (field.get_basic_info().converted_type(), field.get_physical_type()) {
        (ConvertedType::INTERVAL, _) => Some("an INTERVAL"),
        (
            ConvertedType::NONE | ConvertedType::BSON,
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY,
        ) => Some("bytes"),
        _ => None,
    }
}

thread_local! {
    /// `true` while this thread decodes, so that the panics on it are errors of a file, which the panic hook does not print.
    static DECODES: Cell<bool> = const { Cell::new(false) };
}

/// Result of `decode`. The decoder panics on some damaged files; that is an error of the file here.
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

/// Rows that are compressed together.
const GROUP: usize = 1 << 14;

/// Writes `rows`, which have a value for each of the `columns`.
pub(super) fn write(
    out: &mut (impl Write + Send),
    columns: &[Column],
    mut rows: impl Iterator<Item = io::Result<Vec<Value>>>,
) -> io::Result<()> {
    let field = |column: &Column| {
        let (physical, converted) = match column.kind {
            Some(Kind::Bool) => (Physical::BOOLEAN, ConvertedType::NONE),
            Some(Kind::Int) => (Physical::INT64, ConvertedType::NONE),
            Some(Kind::Double) => (Physical::DOUBLE, ConvertedType::NONE),
            Some(Kind::Text) | None => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(converted);
        Ok(Arc::new(field.build()?))
    };
    let fields = columns.iter().map(field).collect::<Result<_, ParquetError>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    let mut writer =
        SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
    loop {
        let group: Vec<Vec<Value>> = rows.by_ref().take(GROUP).collect::<io::Result<_>>()?;
        if group.is_empty() {
            break;
        }
        let mut written = writer.next_row_group()?;
        for (place, column) in columns.iter().enumerate() {
            let values = || group.iter().map(|row| &row[place]);
            let own = &mut written;
            match column.kind {
                Some(Kind::Bool) => fill::<BoolType, _>(own, values().map(Value::as_bool))?,
                Some(Kind::Int) => fill::<Int64Type, _>(own, values().map(Value::as_i64))?,
                Some(Kind::Double) => fill::<DoubleType, _>(own, values().map(Value::as_f64))?,
                Some(Kind::Text) | None => {
                    let text = |value: &Value| {
                        let is_there = !value.is_null();
                        is_there.then(|| cell_text(value).into_bytes().into())
                    };
                    fill::<ByteArrayType, _>(own, values().map(text))?;
                }
            }
        }
        written.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Writes the next column of a group; a value that is not there is null.
fn fill<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let all: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let there: Vec<T::T> = all.into_iter().flatten().collect();
    let mut column = group.next_column()?.ok_or_else(|| {
        ParquetError::General("the schema has fewer columns than the rows".into())
    })?;
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    column.close()
}
