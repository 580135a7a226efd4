//! TensorBoard's event files: records of protocol buffers, each framed by its length and two checksums.
//!
//! The format is that of `tensorflow/core/util/event.proto` in the records of `TFRecord`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct EventRecord {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    // Written also where it is 0: a scalar without a value is none.
    #[prost(float, optional, tag = "2")]
    value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Start of a session: readers drop what an earlier one wrote of the same and later steps.
const START: i32 = 1;

pub(super) struct EventFile(File);

impl EventFile {
    /// A new file in `folder` for a run that continues after `done` steps.
    pub(super) fn create(folder: &Path, done: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        // Readers take the files of a folder in the order of their names.
        let n = fs::read_dir(folder)?.count();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let name = format!("events.out.tfevents.{now:010}.{n:03}.lrvd");
        let mut file = Self(File::create_new(folder.join(name))?);
        let file_version = Some("brain.Event:2".to_owned());
        file.record(EventRecord { file_version, ..EventRecord::default() })?;
        if done > 0 {
            let (step, session_log) = (done as i64 + 1, Some(SessionLog { status: START }));
            file.record(EventRecord { step, session_log, ..EventRecord::default() })?;
        }
        Ok(file)
    }

    /// Adds numbers of one step; without any, nothing.
    pub(super) fn write(
        &mut self,
        step: usize,
        numbers: impl Iterator<Item = (String, f64)>,
    ) -> io::Result<()> {
        let values: Vec<Scalar> =
            numbers.map(|(tag, value)| Scalar { tag, value: Some(value as f32) }).collect();
        if values.is_empty() {
            return Ok(());
        }
        let (step, summary) = (step as i64, Some(Summary { values }));
        self.record(EventRecord { step, summary, ..EventRecord::default() })
    }

    /// Adds a record of now.
    fn record(&mut self, event: EventRecord) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_time = now.map_or(0.0, |since| since.as_secs_f64());
        self.0.write_all(&framed(&EventRecord { wall_time, ..event }.encode_to_vec()))
    }
}

/// Length, its checksum, the data, their checksum.
fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let parts = [&length[..], &checksum(&length), data, &checksum(data)];
    parts.concat()
}

/// CRC-32C, turned by 15 bits and shifted so that a checksum of checksums is none.
fn checksum(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_are_those_of_tensorboard() {
        // Written by `RecordWriter` and the `Event` of the Python package `tensorboard`.
        let first = EventRecord {
            wall_time: 1.5e9,
            file_version: Some("brain.Event:2".into()),
            ..EventRecord::default()
        };
        let scalar = Scalar { tag: "step/loss".into(), value: Some(0.0) };
        let second = EventRecord {
            wall_time: 1.5e9,
            step: 3,
            summary: Some(Summary { values: vec![scalar] }),
            ..EventRecord::default()
        };
        let hex = |event: &EventRecord| -> String {
            let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap();
            let bytes = framed(&event.encode_to_vec());
            bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
        };
        assert_eq!(hex(&first), FIRST);
        assert_eq!(hex(&second), SECOND);
    }

    const FIRST: &str =
        "1800000000000000a37f4b2209000000c00b5ad6411a0d627261696e2e4576656e743a324ca9a464";
    const SECOND: &str = "1f00000000000000514b441809000000c00b5ad64110032a120a100a09737465702f6c6f7373150000000064ac4d8d";

    #[test]
    fn a_second_file_follows_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let numbers = || [("step/loss".to_owned(), 0.5)].into_iter();
        EventFile::create(folder.path(), 0).unwrap().write(1, numbers()).unwrap();
        EventFile::create(folder.path(), 1).unwrap().write(2, numbers()).unwrap();
        let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap()).collect();
        files.sort_by_key(fs::DirEntry::file_name);
        let sizes: Vec<u64> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes[0] < sizes[1], "the second says where it begins: {sizes:?}");
    }
}
