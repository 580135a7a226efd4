//! Rows that are written to a file, in the format that its name ends in.
//!
//! Rows of CSV and parquet have the columns of all rows, which are known at the end: rows are kept in a file without a name in
//! the same folder until then, so that many rows need little memory, and a program that ends before leaves nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use lrvd_burn::files::replace_with;
use serde_json::{Map, Value};

use super::Format;
use super::column::{Column, Columns, cell_text};
use crate::error::Result;
#[cfg(not(feature = "parquet"))]
use crate::error::left_out;
use crate::io::cannot;

/// A file of rows, which is there once [`finish`](Self::finish) has returned, or not at all.
#[derive(Debug)]
pub struct RowFile {
    path: PathBuf,
    format: Format,
    kept: BufWriter<File>,
    columns: Columns,
}

impl RowFile {
    /// The rows of the file `path`, of which nothing is there yet.
    pub fn create(path: &Path) -> Result<Self> {
        let format = Format::of(path)?;
        match format {
            Format::Csv | Format::Jsonl => {}
            #[cfg(feature = "parquet")]
            Format::Parquet => {}
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => {
                let unwritten = format!("cannot write `{}`", path.display());
                return Err(left_out("parquet").context(unwritten));
            }
            Format::Tsv | Format::Json => {
                bail!("`{}`: rows are written as `.csv`, `.jsonl` or `.parquet`", path.display())
            }
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let kept = tempfile::tempfile_in(parent.unwrap_or(Path::new(".")));
        let kept = BufWriter::new(kept.map_err(cannot("create", path))?);
        Ok(Self { path: path.to_owned(), format, kept, columns: Columns::default() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `true` if a value may be an object or a list; otherwise rows have a column for each of its parts.
    pub fn is_nested(&self) -> bool {
        self.format == Format::Jsonl
    }

    /// Puts these columns first, also where no row has them.
    pub fn start_with<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        names.into_iter().for_each(|name| self.columns.add(name, &Value::Null));
    }

    /// Adds a row: the values by the names of their columns.
    pub fn push<'r>(&mut self, row: impl IntoIterator<Item = (&'r str, &'r Value)>) -> Result<()> {
        let mut line = String::from("{");
        for (name, value) in row {
            self.columns.add(name, value);
            if line.len() > 1 {
                line.push(',');
            }
            line.push_str(&serde_json::to_string(name)?);
            line.push(':');
            line.push_str(&serde_json::to_string(value)?);
        }
        line.push_str("}\n");
        self.kept.write_all(line.as_bytes()).map_err(cannot("write", &self.path))
    }

    /// Writes the file, whole or not at all.
    pub fn finish(self) -> Result<()> {
        let Self { path, format, kept, columns } = self;
        let kept = kept.into_inner().map_err(io::IntoInnerError::into_error);
        let rewound = kept.and_then(|mut kept| kept.seek(SeekFrom::Start(0)).map(|_| kept));
        let mut rows = BufReader::new(rewound.map_err(cannot("write", &path))?);
        replace_with(&path, |out| match format {
            Format::Csv => write_csv(out, &columns.all, rows),
            #[cfg(feature = "parquet")]
            Format::Parquet => super::columnar::write(out, &columns.all, cells(&columns.all, rows)),
            _ => io::copy(&mut rows, out).map(drop),
        })?;
        Ok(())
    }
}

/// The rows that were kept, each with a value for every column.
fn cells(columns: &[Column], rows: impl BufRead) -> impl Iterator<Item = io::Result<Vec<Value>>> {
    rows.lines().map(|line| {
        let mut row: Map<String, Value> = serde_json::from_str(&line?)?;
        Ok(columns.iter().map(|own| row.remove(&own.name).unwrap_or_default()).collect())
    })
}

fn write_csv(out: &mut impl Write, columns: &[Column], rows: impl BufRead) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|column| &column.name))?;
    for row in cells(columns, rows) {
        writer.write_record(row?.iter().map(cell_text))?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Row, read};
    use super::*;

    fn written(name: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let mut file = RowFile::create(&path).unwrap();
        file.start_with(["id", "never"]);
        let rows = [
            json!({"id": "007", "n": 1, "p": 0.5, "is": true, "mixed": 1, "text": "a, \"b\""}),
            json!({"id": "8", "n": null, "p": 2, "is": false, "mixed": "x", "text": "line\nbreak"}),
        ];
        for row in &rows {
            assert!(!path.exists());
            file.push(row.as_object().unwrap().iter().map(|(name, value)| (&**name, value)))
                .unwrap();
        }
        file.finish().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        (folder, path)
    }

    #[test]
    fn csv_has_the_columns_of_all_rows() {
        let (_folder, path) = written("new.csv");
        let text = std::fs::read_to_string(path).unwrap();
        let expected = "id,never,is,mixed,n,p,text\n007,,true,1,1,0.5,\"a, \"\"b\"\"\"\n8,,false,x,,2,\"line\nbreak\"\n";
        assert_eq!(text, expected);
        let folder = tempfile::tempdir().unwrap();
        let mut none = RowFile::create(&folder.path().join("none.csv")).unwrap();
        none.start_with(["id", "text"]);
        none.finish().unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("none.csv")).unwrap(), "id,text\n");
        for name in ["rows.tsv", "rows.json", "rows.txt"] {
            assert!(RowFile::create(&folder.path().join(name)).is_err(), "{name}");
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_has_numbers_truth_values_and_texts() {
        let (_folder, path) = written("new.parquet");
        let mut rows: Vec<Row> = read(&path).unwrap().collect::<Result<_>>().unwrap();
        assert_eq!(rows[0].keys(), ["id", "never", "is", "mixed", "n", "p", "text"]);
        let second = rows.remove(1).cells;
        let expected = json!(["8", null, false, "x", null, 2.0, "line\nbreak"]);
        assert_eq!(json!(second), expected);
        let first = json!(["007", null, true, "1", 1, 0.5, "a, \"b\""]);
        assert_eq!(json!(rows.remove(0).cells), first);
    }
}
