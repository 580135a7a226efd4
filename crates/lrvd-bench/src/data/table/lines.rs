//! Text tables: tab-separated lines, JSON objects, CSV.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::row::{At, BadRow, Place, Row, Source};
use crate::error::{Error, Result};
use crate::io::{Unique, cannot, not_json, whole_json};

/// Longest line, or row of a CSV file, in bytes.
const MAX_ROW: u64 = 64 << 20;

/// The usual reason of bytes that are not UTF-8.
const ENCODING: &str = ": a file in another encoding, such as Windows-1252, must be saved as UTF-8 (a spreadsheet program calls \
     it CSV UTF-8; or `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`)";

/// Some files start with this mark; it is no part of the first line.
pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Numbered lines of a file, checked to be UTF-8 one by one. They end in LF or CRLF, the last one also in nothing.
pub(super) struct Lines {
    bytes: Box<dyn BufRead>,
    file: Arc<Path>,
    skip_blank: bool,
    offset: usize,
    number: usize,
}

impl Lines {
    pub(super) fn new(bytes: Box<dyn BufRead>, file: &Arc<Path>, skip_blank: bool) -> Self {
        Self { bytes, file: Arc::clone(file), skip_blank, offset: 0, number: 0 }
    }

    pub(super) fn next_line(&mut self) -> Result<Option<(Place, String)>> {
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut self.bytes).take(MAX_ROW + 1);
            let length =
                bounded.read_until(b'\n', &mut line).map_err(cannot("read", &self.file))?;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            let place = Place { file: Arc::clone(&self.file), at: At::Line(self.number) };
            ensure!(length as u64 <= MAX_ROW, "{place}: longer than {} MiB", MAX_ROW >> 20);
            let start = self.offset;
            self.offset += length;
            let mut line = String::from_utf8(line).map_err(|error| {
                let byte = start + error.utf8_error().valid_up_to();
                let error = anyhow!("{place}: invalid UTF-8 at byte {byte} of the file{ENCODING}");
                BadRow::error(&place, error)
            })?;
            let end = line.strip_suffix('\n').unwrap_or(&line);
            line.truncate(end.strip_suffix('\r').unwrap_or(end).len());
            if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if !(self.skip_blank && line.trim().is_empty()) {
                return Ok(Some((place, line)));
            }
        }
    }
}

impl Source for Lines {
    fn next_row(&mut self) -> Result<Option<Row>> {
        let Some((place, line)) = self.next_line()? else { return Ok(None) };
        match whole_json(serde_json::Deserializer::from_str(&line)) {
            Ok(Fields(fields)) => Ok(Some(Row::keyed(place, fields))),
            Err(error) => Err(BadRow::error(&place, not_json(&place, &error))),
        }
    }
}

/// The objects of an array that is the whole file.
pub(super) fn objects(mut bytes: Box<dyn BufRead>, file: &Arc<Path>) -> Result<Vec<Row>> {
    let mut text = String::new();
    bytes.read_to_string(&mut text).map_err(cannot("read", file))?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let rows = whole_json(serde_json::Deserializer::from_str(text));
    let rows: Vec<Fields> =
        rows.map_err(|error| not_json(format!("`{}`", file.display()), &error))?;
    let place = |i: usize| Place { file: Arc::clone(file), at: At::Row(i + 1) };
    let rows = rows.into_iter().enumerate();
    Ok(rows.map(|(i, Fields(fields))| Row::keyed(place(i), fields)).collect())
}

pub(super) struct Tabs {
    names: Arc<[String]>,
    first: Option<(Place, String)>,
    lines: Lines,
}

impl Tabs {
    /// Takes the header, unless there are names for a file without one and the first line has none of them.
    pub(super) fn new(mut lines: Lines, unnamed: Option<&[&str]>) -> Result<Self> {
        let mut first = lines.next_line()?;
        let line = first.as_ref().map_or("", |(_, line)| line);
        let mut names: Arc<[String]> = line.split('\t').map(str::to_owned).collect();
        match unnamed {
            Some(unnamed) if !names.iter().any(|name| unnamed.contains(&name.as_str())) => {
                names = unnamed.iter().map(|&name| name.to_owned()).collect();
            }
            _ => first = None,
        }
        Ok(Self { names, first, lines })
    }
}

impl Source for Tabs {
    fn names(&self) -> Option<&[String]> {
        Some(&self.names)
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let line = match self.first.take() {
            Some(line) => Some(line),
            None => self.lines.next_line()?,
        };
        line.map(|(place, line)| Row::separated(&self.names, place, "tab", line.split('\t')))
            .transpose()
    }
}

/// The fields of an object in their order, repeated names and all; no object in them repeats a name.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, Unique(value))) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

pub(super) struct Commas {
    file: Arc<Path>,
    names: Arc<[String]>,
    separator: &'static str,
    records: csv::StringRecordsIntoIter<Bounded>,
}

/// A file that is read one line at a time, so that the line of a row is known, and up to a byte that moves on with the rows: a
/// quote that is never closed would fill the memory.
struct Bounded {
    bytes: Box<dyn BufRead>,
    at: u64,
    end: u64,
    line: usize,
    /// Line in which the row starts that is being read, once a byte of it was read. The reader passes over blank lines.
    row: Option<usize>,
    /// `true` if the lines of the row have an odd number of quotes so far.
    is_quoted: bool,
    /// `true` once the row was looked for beyond the last byte.
    ended: bool,
    /// `true` if the last byte is no line end.
    partial: bool,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.end {
            return Err(io::Error::other("the row does not end"));
        }
        let bytes = self.bytes.fill_buf()?;
        let bytes = &bytes[..bytes.len().min(buffer.len())];
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let bytes = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
        buffer[..bytes.len()].copy_from_slice(bytes);
        if self.row.is_none() && bytes.iter().any(|byte| !b"\r\n".contains(byte)) {
            self.row = Some(self.line);
        }
        self.line += usize::from(end.is_some());
        self.is_quoted ^= bytes.iter().fold(false, |odd, byte| odd ^ (*byte == b'"'));
        let length = bytes.len();
        match length {
            0 => self.ended = true,
            _ => self.partial = end.is_none(),
        }
        self.at += length as u64;
        self.bytes.consume(length);
        Ok(length)
    }
}

/// Possible separators of the fields of a row, the tab only where the file says so. The first of equals is taken.
const SEPARATORS: [(u8, &str); 4] =
    [(b',', "comma"), (b';', "semicolon"), (b'|', "bar"), (b'\t', "tab")];

/// The separator that a first line such as `sep=;` states, as spreadsheets write it, and the length of that line.
fn stated(start: &[u8]) -> Option<((u8, &'static str), usize)> {
    let text = start.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(start);
    let (&byte, rest) = text.strip_prefix(b"sep=")?.split_first()?;
    let separator = *SEPARATORS.iter().find(|(separator, _)| *separator == byte)?;
    let rest = rest.strip_prefix(b"\r").unwrap_or(rest).strip_prefix(b"\n")?;
    Some((separator, start.len() - rest.len()))
}

/// The separator that the first line has most of, outside quotes.
fn separator(start: &[u8]) -> (u8, &'static str) {
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut counts = [0; SEPARATORS.len() - 1];
    let mut quoted = false;
    for byte in line {
        quoted ^= *byte == b'"';
        let found = SEPARATORS.iter().position(|(separator, _)| separator == byte);
        if let (Some(count), false) = (found.and_then(|found| counts.get_mut(found)), quoted) {
            *count += 1;
        }
    }
    let most = (0..counts.len()).rev().max_by_key(|&i| counts[i]);
    SEPARATORS[most.unwrap_or(0)]
}

impl Commas {
    pub(super) fn new(mut bytes: Box<dyn BufRead>, file: &Arc<Path>) -> Result<Self> {
        let start = bytes.fill_buf().map_err(cannot("read", file))?;
        let ((byte, separator), taken) = stated(start).unwrap_or((separator(start), 0));
        bytes.consume(taken);
        let line = if taken == 0 { 1 } else { 2 };
        let bytes = Bounded {
            bytes,
            at: 0,
            end: MAX_ROW,
            line,
            row: None,
            is_quoted: false,
            ended: false,
            partial: false,
        };
        // Too few or too many fields are our error, which names the columns.
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.flexible(true).delimiter(byte).from_reader(bytes);
        let header = reader.headers().cloned();
        let header = header.map_err(|error| broken(file, error, reader.get_ref()))?;
        let names = header.iter().map(str::to_owned).collect();
        let file = Arc::clone(file);
        let records = reader.into_records();
        Ok(Self { file, names, separator, records })
    }
}

impl Source for Commas {
    fn names(&self) -> Option<&[String]> {
        Some(&self.names)
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let file = &self.file;
        let start = self.records.reader().position().byte();
        let bytes = self.records.reader_mut().get_mut();
        (bytes.end, bytes.row, bytes.is_quoted) = (start + MAX_ROW, None, false);
        let Some(record) = self.records.next() else { return Ok(None) };
        let bytes = self.records.reader().get_ref();
        let record = record.map_err(|error| broken(file, error, bytes))?;
        let last = bytes.line - usize::from(!bytes.partial);
        let behind = last.saturating_sub(bytes.row.unwrap_or(last));
        ensure!(
            !(bytes.ended && bytes.is_quoted && behind > 0),
            "{}: a quote is opened in this row and never closed, so that the lines behind it, {behind}, would be its text",
            bytes.place(file)
        );
        Row::separated(&self.names, bytes.place(file), self.separator, record.iter()).map(Some)
    }
}

impl Bounded {
    fn place(&self, file: &Arc<Path>) -> Place {
        Place { file: Arc::clone(file), at: At::Line(self.row.unwrap_or(self.line)) }
    }
}

/// The error of the row that was last read from `bytes`.
fn broken(file: &Arc<Path>, error: csv::Error, bytes: &Bounded) -> Error {
    let place = bytes.place(file);
    match error.kind() {
        csv::ErrorKind::Io(_) if bytes.at >= bytes.end => {
            anyhow!("{place}: longer than {} MiB", MAX_ROW >> 20)
        }
        csv::ErrorKind::Io(_) => cannot("read", file)(error.into()),
        csv::ErrorKind::Utf8 { err, .. } => {
            let field = err.field() + 1;
            let error = anyhow!("{place}: invalid UTF-8 in field {field}{ENCODING}");
            BadRow::error(&place, error)
        }
        _ => Error::new(error).context(format!("cannot decode CSV file `{}`", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufReader, Read as _, Write as _, repeat};

    use super::super::{read, texts};
    use super::*;

    #[test]
    fn a_line_that_does_not_end_is_an_error_that_names_it() {
        let endless = b"first\n\n".chain(repeat(b'a'));
        let mut lines = texts(Box::new(BufReader::new(endless)), Path::new("endless"));
        assert_eq!(lines.next().unwrap().unwrap().1, "first");
        let error = lines.next().unwrap().unwrap_err().to_string();
        assert_eq!(error, "`endless`, line 3: longer than 64 MiB");
        assert!(lines.next().is_none());
    }

    #[test]
    fn a_row_of_a_table_that_does_not_end_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        // Of the last one a quote opens the endless field. The zeros after it are a hole in the file.
        let csv = ["text,label\na,", "text,label\na,b\n\"\nc,d\n"];
        for (name, start, line) in [
            ("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"", 2),
            ("b.tsv", "text\tlabel\na\tb\n", 3),
            ("c.csv", csv[0], 2),
            ("d.csv", csv[1], 3),
            ("e.csv", "text,label\r\na,b\r\n\r\n\"\r\nc,d\r\n", 4),
        ] {
            let path = folder.path().join(name);
            let mut file = File::create(&path).unwrap();
            file.write_all(start.as_bytes()).unwrap();
            file.set_len(2 * MAX_ROW).unwrap();
            let error = read(&path).unwrap().find_map(Result::err).unwrap().to_string();
            let expected = format!("`{}`, line {line}: longer than 64 MiB", path.display());
            assert_eq!(error, expected);
        }
    }
}
