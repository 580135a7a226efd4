//! Text tables: tab-separated lines, one JSON object a line, CSV.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{anyhow, bail};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{At, Cell, MAX_ROW, Place, Row};
use crate::error::{Error, Result};
use crate::io::cannot;

/// Some files start with this mark; it is no part of the first line.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Numbered lines of a file, checked to be UTF-8 one by one. They end in LF or CRLF, the last one also in nothing.
pub(super) struct Lines {
    bytes: Box<dyn BufRead>,
    file: PathBuf,
    skip_blank: bool,
    offset: usize,
    number: usize,
}

impl Lines {
    pub(super) fn new(bytes: Box<dyn BufRead>, file: &Path, skip_blank: bool) -> Self {
        Self { bytes, file: file.into(), skip_blank, offset: 0, number: 0 }
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
            let place = Place { file: self.file.clone(), at: At::Line(self.number) };
            if length as u64 > MAX_ROW {
                bail!("{place}: longer than {} MiB", MAX_ROW >> 20);
            }
            let mut line = String::from_utf8(line).map_err(|error| {
                anyhow!(
                    "{place}: invalid UTF-8 at byte {} of the file",
                    self.offset + error.utf8_error().valid_up_to()
                )
            })?;
            self.offset += length;
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

    pub(super) fn next_object(&mut self) -> Result<Option<Row>> {
        let Some((place, line)) = self.next_line()? else { return Ok(None) };
        match serde_json::from_str(&line) {
            Ok(Fields(fields)) => Ok(Some(Row::keyed(place, fields))),
            Err(source) => Err(Error::new(source).context(format!("{place}: not a JSON object"))),
        }
    }
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

    pub(super) fn next_row(&mut self) -> Result<Option<Row>> {
        let line = match self.first.take() {
            Some(line) => Some(line),
            None => self.lines.next_line()?,
        };
        line.map(|(place, line)| Row::separated(&self.names, place, "tab", line.split('\t')))
            .transpose()
    }
}

/// The fields of an object in their order, repeated names and all.
struct Fields(Vec<(String, Cell)>);

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
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    fields.push((name, value.into()));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

pub(super) struct Commas {
    names: Arc<[String]>,
    records: csv::StringRecordsIntoIter<BufReader<Bounded>>,
    /// The reader leaves the LF of CRLF for the next record, whose line it counts too low by 1.
    before: usize,
    /// Byte up to which the file may be read.
    end: Arc<AtomicU64>,
}

/// A file that is read up to a byte that moves on with the records: a quote that is never closed would fill the memory.
struct Bounded {
    file: File,
    at: u64,
    end: Arc<AtomicU64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.end.load(Ordering::Relaxed) {
            return Err(io::Error::other("the row does not end"));
        }
        let length = self.file.read(buffer)?;
        self.at += length as u64;
        Ok(length)
    }
}

impl Commas {
    pub(super) fn new(opened: File, file: &Path) -> Result<Self> {
        let end = Arc::new(AtomicU64::new(MAX_ROW));
        let mut opened = BufReader::new(Bounded { file: opened, at: 0, end: Arc::clone(&end) });
        let head = opened.fill_buf().map_err(cannot("read", file))?;
        let first = head.iter().position(|&byte| byte == b'\n');
        let before = usize::from(first.is_some_and(|first| head[..first].ends_with(b"\r")));
        // Too few or too many fields are our error, which names the columns.
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(opened);
        let header = reader.headers().cloned();
        let header = header.map_err(|error| broken(file, error, &reader, 1))?;
        let names = header.iter().map(str::to_owned).collect();
        Ok(Self { names, records: reader.into_records(), before, end })
    }

    pub(super) fn next_row(&mut self, file: &Path) -> Result<Option<Row>> {
        let start = self.records.reader().position().clone();
        self.end.store(start.byte() + MAX_ROW, Ordering::Relaxed);
        let Some(record) = self.records.next() else { return Ok(None) };
        let record =
            record.map_err(|error| broken(file, error, self.records.reader(), start.line()))?;
        let line = record.position().map_or(0, |position| position.line() as usize) + self.before;
        let place = Place { file: file.into(), at: At::Line(line) };
        Row::separated(&self.names, place, "comma", record.iter()).map(Some)
    }
}

/// The error of the row that starts in `line`.
fn broken(
    file: &Path,
    error: csv::Error,
    reader: &csv::Reader<BufReader<Bounded>>,
    line: u64,
) -> Error {
    let inner = reader.get_ref().get_ref();
    if error.is_io_error() && inner.at >= inner.end.load(Ordering::Relaxed) {
        let at = At::Line(line as usize);
        return anyhow!(
            "{place}: longer than {} MiB",
            MAX_ROW >> 20,
            place = Place { file: file.into(), at }
        );
    }
    Error::new(error).context(format!("cannot decode CSV file `{}`", file.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read as _, Write as _, repeat};

    use super::super::{read, texts};
    use super::*;

    #[test]
    fn a_line_that_does_not_end_is_an_error_that_names_it() {
        let endless = b"first\n\n".chain(repeat(b'a'));
        let mut lines = texts(Box::new(BufReader::new(endless)), Path::new("endless"));
        assert_eq!(lines.next().unwrap().unwrap(), "first");
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
        ] {
            let path = folder.path().join(name);
            let mut file = File::create(&path).unwrap();
            file.write_all(start.as_bytes()).unwrap();
            file.set_len(2 * MAX_ROW).unwrap();
            let error = read(&path).unwrap().find_map(Result::err).unwrap().to_string();
            let wanted = format!("`{}`, line {line}: longer than 64 MiB", path.display());
            assert_eq!(error, wanted);
        }
    }
}
