//! Columnar files in the layout of the public data hub: which row holds what?
//!
//! Columns are those of the task table, `label` an integer (a float for regression) and `idx` an integer. Read
//! through the record interface, which needs no Arrow.

use std::fs::File;
use std::path::Path;

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field as Value, Row};
use ::parquet::schema::types::Type;

use super::columns::{Columns, Resolved};
use super::label::{self, Field};
use super::{At, DataError, Example, Label, Place};
use crate::task::GlueTask;

/// Reads one parquet file.
///
/// # Errors
///
/// [`DataError::Read`], [`DataError::Parquet`] for a file that does not decode, [`DataError::MissingColumn`],
/// and by row and column the errors of labels, texts and types; [`DataError::Empty`] without any row.
pub fn read_parquet(file: &Path, task: GlueTask) -> Result<Vec<Example>, DataError> {
    let opened =
        File::open(file).map_err(|source| DataError::Read { file: file.into(), source })?;
    let broken =
        |source: ParquetError| DataError::Parquet { file: file.into(), source: source.into() };
    let reader = SerializedFileReader::new(opened).map_err(broken)?;

    let schema = reader.metadata().file_metadata().schema();
    let fields = schema.get_fields();
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let columns = Columns::of(task).resolve(&names).map_err(|wanted| {
        let found = names.iter().map(ToString::to_string).collect();
        DataError::MissingColumn { file: file.into(), wanted: wanted.to_vec(), found }
    })?;
    // Only the needed columns are decoded; the resolved positions are renumbered to them.
    let mut kept = columns.id.clone();
    kept.extend([columns.text_a, columns.label]);
    kept.extend(columns.text_b);
    kept.sort_unstable();
    let place_of = |column: usize| kept.binary_search(&column).unwrap_or_default();
    let columns = Resolved {
        text_a: place_of(columns.text_a),
        text_b: columns.text_b.map(place_of),
        label: place_of(columns.label),
        id: columns.id.iter().map(|column| place_of(*column)).collect(),
    };
    let projection = Type::group_type_builder(schema.name())
        .with_fields(kept.iter().map(|column| fields[*column].clone()).collect())
        .build()
        .map_err(broken)?;

    let mut examples = Vec::new();
    for row in reader.get_row_iter(Some(projection)).map_err(broken)? {
        let row = row.map_err(broken)?;
        let number = examples.len();
        let place = || Place { file: file.into(), at: At::Row(number + 1) };
        examples.push(read_row(&row, &columns, task, number, place)?);
    }
    if examples.is_empty() {
        return Err(DataError::Empty { file: file.into() });
    }
    Ok(examples)
}

fn read_row(
    row: &Row,
    columns: &Resolved,
    task: GlueTask,
    number: usize,
    place: impl Fn() -> Place + Copy,
) -> Result<Example, DataError> {
    let cells: Vec<(&String, &Value)> = row.get_column_iter().collect();
    let text = |column: usize| {
        let (name, value) = cells[column];
        match value {
            Value::Str(value) => label::text(value, name, place),
            _ => Err(wrong_type(name, "a string", value, place())),
        }
    };
    let id: Option<Vec<String>> =
        columns.id.iter().map(|column| id_part(cells[*column].1)).collect();
    Ok(Example {
        id: id
            .filter(|parts| !parts.is_empty())
            .map_or_else(|| number.to_string(), |p| p.join("-")),
        text_a: text(columns.text_a)?,
        text_b: columns.text_b.map(text).transpose()?,
        label: read_label(cells[columns.label], task, place)?,
    })
}

fn read_label(
    (column, value): (&String, &Value),
    task: GlueTask,
    place: impl Fn() -> Place,
) -> Result<Label, DataError> {
    let target = Field { spec: task.spec(), column };
    match value {
        Value::Str(text) => target.of_text(text, place),
        Value::Float(score) => target.of_score(f64::from(*score), place),
        Value::Double(score) => target.of_score(*score, place),
        _ => match integer(value) {
            Some(id) => target.of_integer(id, place),
            None => Err(wrong_type(column, "a label", value, place())),
        },
    }
}

fn id_part(value: &Value) -> Option<String> {
    match value {
        Value::Str(text) => Some(text.clone()),
        _ => integer(value).map(|id| id.to_string()),
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Byte(id) => Some((*id).into()),
        Value::Short(id) => Some((*id).into()),
        Value::Int(id) => Some((*id).into()),
        Value::Long(id) => Some(*id),
        Value::UByte(id) => Some((*id).into()),
        Value::UShort(id) => Some((*id).into()),
        Value::UInt(id) => Some((*id).into()),
        Value::ULong(id) => i64::try_from(*id).ok(),
        _ => None,
    }
}

fn wrong_type(column: &str, wanted: &'static str, value: &Value, place: Place) -> DataError {
    let found = match value {
        Value::Null => "null".to_owned(),
        _ => format!("the value {value}"),
    };
    DataError::Type { place, column: column.into(), wanted, found }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(name: &str, task: GlueTask) -> Result<Vec<Example>, DataError> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
        read_parquet(&folder.join(name), task)
    }

    #[test]
    fn files_of_another_writer_are_read() {
        let first = read("cola-train-00000-of-00002.parquet", GlueTask::Cola).unwrap();
        assert_eq!(first.len(), 2);
        assert_eq!(
            (first[1].text_a.as_str(), first[1].label),
            ("The letters was lost.", Label::Class(0))
        );
        let second = read("cola-train-00001-of-00002.parquet", GlueTask::Cola).unwrap();
        assert_eq!((second[0].id.as_str(), second[0].text_a.as_str()), ("2", "“Quoted” – naïve."));
        let scores = read("stsb.parquet", GlueTask::Stsb).unwrap();
        assert_eq!([scores[0].label, scores[1].label], [Label::Score(3.25), Label::Score(5.0)]);
    }

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let rows = read("rte.parquet", GlueTask::Rte).unwrap();
        assert_eq!((rows[0].id.as_str(), rows[0].text_a.as_str()), ("7", "A"));
        assert_eq!((rows[0].text_b.as_deref(), rows[0].label), (Some("C"), Label::Class(1)));
    }

    #[test]
    fn errors_name_file_row_and_column() {
        for (name, task, wanted) in [
            (
                "cola-hidden.parquet",
                GlueTask::Cola,
                "row 2, column `label`: label -1 marks a hidden test label",
            ),
            (
                "cola-null.parquet",
                GlueTask::Cola,
                "row 2, column `sentence`: null where a string is expected",
            ),
            (
                "cola-null.parquet",
                GlueTask::Qnli,
                "no column `question`; its columns are `sentence`, `label`, `idx`",
            ),
            ("stsb.parquet", GlueTask::Rte, "row 1, column `label`: unknown label `3.25`"),
            ("README.md", GlueTask::Cola, "cannot decode parquet file"),
            ("absent.parquet", GlueTask::Cola, "cannot read"),
        ] {
            let error = read(name, task).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains(name), "{error}");
        }
    }
}
