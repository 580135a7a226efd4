//! Tables on disk, whatever their format: rows of typed values under named columns.
//!
//! | Format | Ending | Values |
//! |---|---|---|
//! | [`Format::Tsv`] | `.tsv` | texts; a tab always separates, a quote is a letter |
//! | [`Format::Csv`] | `.csv` | texts; commas separate outside double quotes, a quote within is doubled |
//! | [`Format::Jsonl`] | `.jsonl`, `.ndjson` | one object a line |
//! | [`Format::Parquet`] | `.parquet` | as stored |
//!
//! Tab-separated files are not read as CSV: that merges rows wherever a text holds a lone quote.

#[cfg(feature = "parquet")]
mod columnar;
#[cfg(not(feature = "parquet"))]
#[path = "no_columnar.rs"]
mod columnar;
mod lines;
mod row;
#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

pub use row::{At, Cell, Place, Row};

use anyhow::{anyhow, bail};
use tracing::debug;

use columnar::Columnar;
use lines::{Commas, Lines, Tabs};

use crate::error::Result;
use crate::io::cannot;

/// Longest line, or row of a CSV file, in bytes.
const MAX_ROW: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Tsv,
    Csv,
    Jsonl,
    Parquet,
}

impl Format {
    pub fn of(file: &Path) -> Result<Self> {
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        Ok(match ending.as_str() {
            "tsv" => Self::Tsv,
            "csv" => Self::Csv,
            "jsonl" | "ndjson" => Self::Jsonl,
            "parquet" => Self::Parquet,
            _ => bail!(
                "`{}` is in no known format; expected a name that ends in `.tsv`, `.csv`, `.jsonl` or `.parquet`",
                file.display()
            ),
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    pub format: Format,
    /// Columns that are needed; empty for all. Only a parquet file is decoded the faster for it.
    pub columns: &'a [&'a str],
    /// Columns of a tab-separated file without a header: its first line is one only if it has one of these names.
    pub unnamed: Option<&'a [&'a str]>,
    /// Whether blank lines are passed over. Otherwise they are rows, and bad ones.
    pub blank_lines: bool,
}

impl Layout<'_> {
    /// All columns of a file in this format, every line a row.
    pub const fn of(format: Format) -> Self {
        Self { format, columns: &[], unnamed: None, blank_lines: false }
    }
}

/// The rows of one file, in its order; see [`read`].
///
/// The first error is the last item.
pub struct Table {
    file: PathBuf,
    source: Source,
    rows: usize,
    ended: bool,
}

enum Source {
    Tabs(Tabs),
    Commas(Commas),
    Objects(Lines),
    Columnar(Columnar),
}

/// Opens a table in the format that its name ends in, blank lines passed over.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("reviews.csv");
/// std::fs::write(&path, "text,stars\n\"good, really\",5\n")?;
/// for row in lrvd_bench::data::table::read(&path)? {
///     assert_eq!(row?.text(&["text"])?, "good, really");
/// }
/// # Ok(())
/// # }
/// ```
pub fn read(file: &Path) -> Result<Table> {
    let format = Format::of(file)?;
    Table::open(file, &Layout { blank_lines: true, ..Layout::of(format) })
}

pub type TextLines = Box<dyn Iterator<Item = Result<String>>>;

/// The lines of a text file, blank ones passed over; the first error is the last item.
pub fn text_lines(file: &Path) -> Result<TextLines> {
    let opened = File::open(file).map_err(cannot("read", file))?;
    Ok(texts(Box::new(BufReader::new(opened)), file))
}

/// As [`text_lines`], from any reader, which errors call `name`.
pub fn texts(reader: Box<dyn BufRead>, name: &Path) -> TextLines {
    let (mut lines, mut ended) = (Lines::new(reader, name, true), false);
    Box::new(std::iter::from_fn(move || {
        let line = if ended { Ok(None) } else { lines.next_line() };
        ended = !matches!(line, Ok(Some(_)));
        line.transpose().map(|line| line.map(|(_, text)| text))
    }))
}

impl Table {
    pub fn open(file: &Path, layout: &Layout<'_>) -> Result<Self> {
        let opened = File::open(file).map_err(cannot("read", file))?;
        let bytes = opened.metadata().map_err(cannot("read", file))?.len();
        debug!(file = %file.display(), bytes, format = ?layout.format, "opened");
        let lines = |opened| Lines::new(Box::new(BufReader::new(opened)), file, layout.blank_lines);
        let source = match layout.format {
            Format::Tsv => Source::Tabs(Tabs::new(lines(opened), layout.unnamed)?),
            Format::Csv => Source::Commas(Commas::new(opened, file)?),
            Format::Jsonl => Source::Objects(lines(opened)),
            Format::Parquet => Source::Columnar(Columnar::new(opened, file, layout.columns)?),
        };
        Ok(Self { file: file.into(), source, rows: 0, ended: false })
    }

    /// One JSON object a line from any reader, which errors call `name`; blank lines are passed over.
    pub fn objects(reader: Box<dyn BufRead>, name: &Path) -> Self {
        let source = Source::Objects(Lines::new(reader, name, true));
        Self { file: name.into(), source, rows: 0, ended: false }
    }
}

impl Iterator for Table {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = match &mut self.source {
            Source::Tabs(tabs) => tabs.next_row(),
            Source::Commas(commas) => commas.next_row(&self.file),
            Source::Objects(lines) => lines.next_object(),
            Source::Columnar(columnar) => columnar.next_row(&self.file),
        };
        self.ended = !matches!(row, Ok(Some(_)));
        self.rows += usize::from(!self.ended);
        match row.transpose() {
            None if self.rows == 0 => {
                Some(Err(anyhow!("`{}` holds no examples", self.file.display())))
            }
            item => item,
        }
    }
}
