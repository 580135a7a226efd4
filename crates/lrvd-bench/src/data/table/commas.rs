//! CSV: commas separate outside double quotes, and a quote within is doubled.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::anyhow;

use super::{At, MAX_ROW, Place, Row};
use crate::error::{Error, Result};
use crate::io::cannot;

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
