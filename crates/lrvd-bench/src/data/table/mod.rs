//! Tables on disk, whatever their format: rows of typed values under named columns.
//!
//! | Format | Ending | Values |
//! |---|---|---|
//! | [`Format::Tsv`] | `.tsv` | texts; a tab always separates, a quote is a letter |
//! | [`Format::Csv`] | `.csv` | texts; `,`, `;` or `|`, or what a first line `sep=;` says, separates outside double quotes, a quote within is doubled |
//! | [`Format::Jsonl`] | `.jsonl`, `.ndjson` | one object a line |
//! | [`Format::Json`] | `.json` | an array of objects, or one object a line |
//! | [`Format::Parquet`] | `.parquet` | as stored |
//!
//! A table may be on the hub (`remote`), and is then read from its cache.
//!
//! Tab-separated files are not read as CSV: that merges rows wherever a text holds a lone quote, passes over blank lines
//! and ends a row at a carriage return within a text. A file is opened once, and hashed while it is read.

mod column;
#[cfg(feature = "parquet")]
mod columnar;
mod lines;
mod remote;
mod row;
#[cfg(all(test, feature = "parquet"))]
mod tests;
mod write;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use column::cell_text;
pub(crate) use remote::is_remote;
pub use remote::{DataSet, Part, table_of};
pub use row::{At, BadRow, Cell, Place, Row};
pub use write::RowFile;

use anyhow::{anyhow, bail, ensure};
use lrvd_burn::files::{open_file, reject_pointer};
use serde::{Deserialize, Serialize};
use tracing::debug;

use lines::{Commas, Lines, Tabs, objects};
use remote::Address;
use row::Source;

use crate::error::Result;
#[cfg(not(feature = "parquet"))]
use crate::error::left_out;
use crate::io::{Digest, cannot};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// SHA-256 of the contents, lower-case hexadecimal.
    pub sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Tsv,
    Csv,
    Jsonl,
    Json,
    Parquet,
}

impl Format {
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Json => "json",
            Self::Parquet => "parquet",
        }
    }

    pub fn of(file: &Path) -> Result<Self> {
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        Ok(match ending.as_str() {
            "tsv" => Self::Tsv,
            "csv" => Self::Csv,
            "jsonl" | "ndjson" => Self::Jsonl,
            "json" => Self::Json,
            "parquet" => Self::Parquet,
            _ => bail!(
                "`{}` is in no known format; expected a name that ends in `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`",
                file.display()
            ),
        })
    }
}

/// The rows of one file, in its order; see [`read`].
///
/// The first error is the last item, unless it is that of one row ([`BadRow`]).
pub struct Table {
    file: Arc<Path>,
    source: Box<dyn Source>,
    /// The first rows, if they were read for the names of one.
    first: VecDeque<Result<Row>>,
    /// Of the bytes that were read; `None` for a stream.
    digest: Option<Digest>,
    is_empty: bool,
    ended: bool,
}

#[cfg(feature = "parquet")]
fn columnar(opened: File, file: &Arc<Path>) -> Result<Box<dyn Source>> {
    Ok(Box::new(columnar::Columnar::new(opened, file)?))
}

#[cfg(not(feature = "parquet"))]
fn columnar(_: File, file: &Arc<Path>) -> Result<Box<dyn Source>> {
    let unread =
        format!("cannot read `{}`; rows may also be `.csv`, `.tsv` or `.jsonl`", file.display());
    Err(left_out("parquet").context(unread))
}

/// Opens a table in the format that its name ends in, blank lines passed over. It may be on the hub, and its name is then its
/// address at a commit.
pub fn read(file: &Path) -> Result<Table> {
    read_as(file, None)
}

/// As [`read`], in `format` if one is given.
pub fn read_as(file: &Path, format: Option<Format>) -> Result<Table> {
    let format_of = |name: &Path| format.map_or_else(|| Format::of(name), Ok);
    match Address::of(file)? {
        None => Table::open(file, format_of(file)?, None, true),
        Some(address) => {
            let address = address.with_table()?;
            let format = format_of(Path::new(&address.to_string()))?;
            let (name, place) = address.fetch()?;
            Table::named(&name, &place, format, None, true)
        }
    }
}

/// Lines of text with their places, blank ones passed over; the first error is the last item, unless it is that of one line.
pub type TextLines = Box<dyn Iterator<Item = Result<(Place, String)>>>;

/// The lines of a text file, which may be on the hub.
pub fn text_lines(file: &Path) -> Result<TextLines> {
    let found = Address::of(file)?.map(|address| address.with_table()?.fetch()).transpose()?;
    let (name, place) = found.unwrap_or_else(|| (file.to_owned(), file.to_owned()));
    let opened = File::open(&place).map_err(cannot("read", &place))?;
    let mut bytes: Box<dyn BufRead> = Box::new(BufReader::new(opened));
    check_start(&mut bytes, &name, true)?;
    Ok(texts(bytes, &name))
}

/// As [`text_lines`], from any reader, which errors call `name`.
pub fn texts(reader: Box<dyn BufRead>, name: &Path) -> TextLines {
    let mut lines = Lines::new(reader, &name.into(), true);
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        let line = if ended { Ok(None) } else { lines.next_line() };
        ended = is_last(&line);
        line.transpose()
    }))
}

/// `true` if nothing can be read behind it.
fn is_last<T>(found: &Result<Option<T>>) -> bool {
    match found {
        Ok(found) => found.is_none(),
        Err(error) => BadRow::at(error).is_none(),
    }
}

/// Checks that a file is text in UTF-8 whose lines end in LF, as far as its start tells.
fn check_start(bytes: &mut Box<dyn BufRead>, file: &Path, has_lines: bool) -> Result<()> {
    let start = bytes.fill_buf().map_err(cannot("read", file))?;
    reject_pointer(start).map_err(cannot("read", file))?;
    let file = file.display();
    let is_utf16 = match start {
        [] => bail!("`{file}` holds no examples: it is empty"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        // One of the two bytes of every letter of English.
        [first, second, ..] => (*first == 0) != (*second == 0),
        [_] => false,
    };
    ensure!(
        !is_utf16,
        "`{file}` is in UTF-16, as some programs write what they call Unicode text: save it as UTF-8 (or `iconv -f \
         UTF-16 -t UTF-8 FILE > NEW`)"
    );
    let is_line = |byte: &u8| *byte == b'\n';
    let inner = start.split_last().map_or(start, |(_, inner)| inner);
    ensure!(
        !has_lines || start.iter().any(is_line) || !inner.contains(&b'\r'),
        "the lines of `{file}` end in CR alone, as those of old Macintosh programs: save it with the line ends LF or CRLF"
    );
    Ok(())
}

impl Table {
    /// `unnamed` are the columns of a tab-separated file without a header: its first line is one only if it has one of these
    /// names. Blank lines are passed over, or else they are rows, and bad ones.
    pub fn open(
        path: &Path,
        format: Format,
        unnamed: Option<&[&str]>,
        skip_blank: bool,
    ) -> Result<Self> {
        Self::named(path, path, format, unnamed, skip_blank)
    }

    /// The table at `path`, which errors and records call `name`.
    fn named(
        name: &Path,
        path: &Path,
        format: Format,
        unnamed: Option<&[&str]>,
        skip_blank: bool,
    ) -> Result<Self> {
        let opened = File::open(path).map_err(cannot("read", path))?;
        let bytes = opened.metadata().map_err(cannot("read", path))?.len();
        debug!(file = %path.display(), bytes, ?format, "opened");
        let file: Arc<Path> = name.into();
        let (digest, reader) = match format {
            Format::Parquet => {
                let opened = open_file(path).map_err(cannot("read", path))?;
                let digest = opened.try_clone().and_then(Digest::of);
                let digest = digest.map_err(cannot("read", path))?;
                return Ok(Self::new(Arc::clone(&file), columnar(opened, &file)?, Some(digest)));
            }
            _ => Digest::reading(opened),
        };
        let mut bytes: Box<dyn BufRead> = Box::new(BufReader::new(reader));
        check_start(&mut bytes, name, format != Format::Json)?;
        let lines = |bytes| Lines::new(bytes, &file, skip_blank);
        let source: Box<dyn Source> = match format {
            Format::Tsv => Box::new(Tabs::new(lines(bytes), unnamed)?),
            Format::Csv => Box::new(Commas::new(bytes, &file)?),
            Format::Json if starts_array(&mut bytes).map_err(cannot("read", path))? => {
                Box::new(objects(bytes, &file)?.into_iter())
            }
            _ => Box::new(lines(bytes)),
        };
        Ok(Self::new(file, source, Some(digest)))
    }

    /// One JSON object a line from any reader, which errors call `name`; blank lines are passed over.
    pub fn objects(reader: Box<dyn BufRead>, name: &Path) -> Self {
        let file: Arc<Path> = name.into();
        Self::new(Arc::clone(&file), Box::new(Lines::new(reader, &file, true)), None)
    }

    fn new(file: Arc<Path>, source: Box<dyn Source>, digest: Option<Digest>) -> Self {
        Self { file, source, first: VecDeque::new(), digest, is_empty: true, ended: false }
    }

    /// Names of the columns, or of the keys of the first row.
    pub fn names(&mut self) -> Result<Vec<String>> {
        if let Some(names) = self.source.names() {
            return Ok(names.to_vec());
        }
        while !self.first.iter().any(Result::is_ok) {
            match self.advance() {
                None => {
                    let first = self.first.pop_front();
                    return first.map_or_else(|| Ok(Vec::new()), |row| row.map(|_| Vec::new()));
                }
                Some(Err(error)) if BadRow::at(&error).is_none() => return Err(error),
                Some(row) => self.first.push_back(row),
            }
        }
        let row = self.first.iter().find_map(|row| row.as_ref().ok());
        Ok(row.map_or_else(Vec::new, |row| row.names.to_vec()))
    }

    /// Names of the columns; `None` where each row has keys.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        self.source.names()
    }

    /// Names of the numbers of a column, from 0, if the file states them.
    pub(crate) fn names_of(&self, column: &str) -> Option<&[String]> {
        self.source.names_of(column)
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Decodes these columns only, where a format allows that. A column that is not there is an error of the first row.
    pub fn select(&mut self, columns: &[&str]) -> Result<()> {
        self.source.select(columns)
    }

    fn advance(&mut self) -> Option<Result<Row>> {
        if self.ended {
            return None;
        }
        let row = self.source.next_row();
        self.ended = is_last(&row);
        self.is_empty &= matches!(row, Ok(None));
        match row.transpose() {
            None if self.is_empty => {
                Some(Err(anyhow!("`{}` holds no examples", self.file.display())))
            }
            item => item,
        }
    }

    /// The file, with the hash of its bytes, once all rows were read.
    pub(crate) fn source(self) -> Result<SourceFile> {
        let Some(digest) = self.digest else { bail!("`{}` is no file", self.file.display()) };
        let (bytes, sha256) = digest.finish();
        Ok(SourceFile { path: self.file.to_path_buf(), bytes, sha256 })
    }
}

/// `true` if the first letter is that of an array.
fn starts_array(bytes: &mut Box<dyn BufRead>) -> std::io::Result<bool> {
    let start = bytes.fill_buf()?;
    let start = start.strip_prefix(lines::BYTE_ORDER_MARK.as_bytes()).unwrap_or(start);
    Ok(start.trim_ascii_start().starts_with(b"["))
}

impl Iterator for Table {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.first.pop_front().or_else(|| self.advance())
    }
}
