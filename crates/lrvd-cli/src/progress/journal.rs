//! The events of a run, kept in its folder: `metrics.jsonl`, and where asked for TensorBoard's event files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lrvd_bench::progress::Event;
use lrvd_burn::files::write_atomic;
use prost::Message;
use serde_json::{Value, json};

use super::LogFormat;
use crate::printer::Printer;

const METRICS_FILE: &str = "metrics.jsonl";
const EVALUATED: &str = "evaluated";
const FINISHED: &str = "finished";

/// Shows events as `shown` does, and writes them down.
///
/// A line of `metrics.jsonl` is one event with the run it belongs to. A run that continues from a checkpoint takes back
/// the lines of the steps that it repeats. Training continues if a line cannot be written; one note says so.
pub(crate) struct Journal {
    shown: Box<dyn FnMut(&Event)>,
    printer: Printer,
    /// The folder of a run, by its label.
    folder: Box<dyn Fn(&str) -> PathBuf>,
    with_board: bool,
    run: String,
    step: usize,
    lines: Option<File>,
    board: Option<EventFile>,
    failed: bool,
}

impl Journal {
    /// Writes into the `folder` of each run, by its label, which exists once the run starts.
    pub(crate) fn new(
        shown: Box<dyn FnMut(&Event)>,
        printer: Printer,
        folder: impl Fn(&str) -> PathBuf + 'static,
        logs: &[LogFormat],
    ) -> Self {
        Self {
            shown,
            printer,
            folder: Box::new(folder),
            with_board: logs.contains(&LogFormat::Tensorboard),
            run: String::new(),
            step: 0,
            lines: None,
            board: None,
            failed: false,
        }
    }

    /// Opens the file for lines of `run` after `done` steps; later ones in it are taken back.
    fn open(&mut self, run: &str, done: usize) -> io::Result<()> {
        run.clone_into(&mut self.run);
        self.step = done;
        let path = (self.folder)(run).join(METRICS_FILE);
        let old = read(&path)?.unwrap_or_default();
        let kept: String =
            old.split_inclusive('\n').filter(|line| is_kept(line, run, done)).collect();
        if kept.len() < old.len() {
            write_atomic(&path, kept.as_bytes()).map_err(io::Error::other)?;
        }
        self.lines = Some(OpenOptions::new().create(true).append(true).open(&path)?);
        self.board = None;
        Ok(())
    }

    /// Opens the file of a run that an earlier process finished, if that process did not write its last line; `None` if
    /// nothing is missing.
    fn reopen(&mut self, run: &str) -> io::Result<Option<()>> {
        let path = (self.folder)(run).join(METRICS_FILE);
        let Some(old) = read(&path)? else { return Ok(None) };
        // A suite has many lines of other runs, which need not be parsed.
        let name = json!(run).to_string();
        let lines = old.lines().filter(|line| line.contains(&name));
        let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let own: Vec<Value> = lines.filter(|line| line["run"] == run).collect();
        if own.iter().any(|line| line["event"] == FINISHED) {
            return Ok(None);
        }
        let last = own.iter().filter_map(|line| line["step"].as_u64()).max().unwrap_or(0);
        // Nothing is repeated.
        self.open(run, last as usize + 1)?;
        self.step = last as usize;
        Ok(Some(()))
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted { label, done, .. } => {
                self.open(label, *done)?;
                if self.with_board {
                    let name = label.replace(" / ", "/").replace(' ', "-");
                    let folder = (self.folder)(label).join("tensorboard").join(name);
                    self.board = Some(EventFile::create(&folder, *done)?);
                }
            }
            // A run that this process did not start was finished by an earlier one.
            Event::RunFinished { label, .. }
                if self.run != *label && self.reopen(label)?.is_none() =>
            {
                return Ok(());
            }
            _ => {}
        }
        let Some((kind, step, values)) = described(event, self.step) else { return Ok(()) };
        self.step = step;
        if let Some(file) = &mut self.lines {
            let mut line = json!({ "run": self.run, "event": kind, "step": step });
            for (name, value) in values.as_object().into_iter().flatten() {
                line[name] = value.clone();
            }
            file.write_all(format!("{line}\n").as_bytes())?;
        }
        if let Some(board) = &mut self.board {
            let evaluated = match event {
                Event::Evaluated { metric, .. } => Some(metric.as_str()),
                _ => None,
            };
            let values = values.as_object().into_iter().flatten();
            let numbers = values.filter_map(|(name, value)| {
                let name = if name == "value" { evaluated? } else { name };
                Some((format!("{kind}/{name}"), value.as_f64()?))
            });
            board.write(step, numbers)?;
        }
        Ok(())
    }
}

impl Journal {
    pub(crate) fn event(&mut self, event: &Event) {
        (self.shown)(event);
        if self.failed {
            return;
        }
        if let Err(error) = self.write(event) {
            self.failed = true;
            let file = (self.folder)(&self.run).join(METRICS_FILE);
            self.printer
                .note(&format!("{}: {error}; training continues without it", file.display()));
        }
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        // A damaged line is no JSON, or has another letter.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a line is kept if `run` continues after `done` steps, with the evaluation that was due then.
fn is_kept(line: &str, run: &str, done: usize) -> bool {
    // A line that a kill cut short is no loss.
    let Ok(line) = serde_json::from_str::<Value>(line) else { return false };
    let is_before = |step| {
        step <= done as u64 && done > 0 && !(step == done as u64 && line["event"] == EVALUATED)
    };
    line["run"] != run || line["step"].as_u64().is_some_and(is_before)
}

/// Kind, step and values of an event; `None` if it is no number of a run.
fn described(event: &Event, step: usize) -> Option<(&'static str, usize, Value)> {
    Some(match event {
        Event::Note(_) | Event::Searching { .. } | Event::Evaluating { .. } => return None,
        Event::RunStarted { steps, done, .. } => {
            ("run", *done, json!({ "steps": steps, "done": done }))
        }
        Event::Step { done, loss, nll, kl, total_rank, examples_per_second, .. } => {
            let values = json!({
                "loss": loss, "nll": nll, "kl": kl, "total_rank": total_rank,
                "examples_per_second": examples_per_second,
            });
            ("step", *done, values)
        }
        Event::Evaluated { done, metric, value, total_rank, .. } => {
            let values = json!({ "metric": metric, "value": value, "total_rank": total_rank });
            (EVALUATED, *done, values)
        }
        Event::Pruned { done, before, after } => {
            ("pruned", *done, json!({ "before": before, "after": after }))
        }
        Event::RunFinished { summary, seconds, .. } => {
            (FINISHED, step, json!({ "summary": summary, "seconds": seconds }))
        }
    })
}

// TensorBoard's event files: records of protocol buffers, each framed by its length and two checksums, in the format of
// `tensorflow/core/util/event.proto` and of `TFRecord`.

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

struct EventFile(File);

impl EventFile {
    /// A new file in `folder` for a run that continues after `done` steps.
    fn create(folder: &Path, done: usize) -> io::Result<Self> {
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
    fn write(
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
    use crate::printer::Format;

    fn started(label: &str, done: usize) -> Event {
        Event::RunStarted { index: 1, runs: 2, label: label.into(), steps: 9, done }
    }

    fn step(done: usize) -> Event {
        let (nll, kl, total_rank) = (0.5, Some(40.0), 12);
        let (examples_per_second, seconds_left) = (100.0, 3.0);
        Event::Step { done, loss: 0.75, nll, kl, total_rank, examples_per_second, seconds_left }
    }

    fn tell(out: &Path, events: &[Event]) {
        let printer = Printer { format: Format::Text, quiet: true };
        let folder = out.to_owned();
        let logs = [LogFormat::Tensorboard];
        let mut journal = Journal::new(Box::new(|_| {}), printer, move |_| folder.clone(), &logs);
        for event in events {
            journal.event(event);
        }
        assert!(!journal.failed);
    }

    /// Last letter of the run, event and step of every line.
    fn lines(out: &Path) -> String {
        let text = fs::read_to_string(out.join(METRICS_FILE)).unwrap();
        let line = |line: &str| {
            let line = serde_json::from_str::<Value>(line).unwrap();
            let [run, event] = ["run", "event"].map(|key| line[key].as_str().unwrap());
            format!("{} {event} {}", run.rsplit(' ').next().unwrap(), line["step"])
        };
        text.lines().map(line).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_run_that_goes_on_repeats_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        let pruned = Event::Pruned { done: 2, before: 12, after: 7 };
        let evaluated = |done| {
            let (metric, value) = ("accuracy".to_owned(), 0.5);
            Event::Evaluated { done, metric, value, nll: None, total_rank: 7 }
        };
        let events = [started("a / b", 0), step(1), evaluated(1), step(2), pruned, evaluated(2)];
        tell(out, &[&events[..], &[step(3)]].concat());
        // A kill in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(out.join(METRICS_FILE)).unwrap();
        // A byte that is not UTF-8, too.
        file.write_all(b"{\"run\":\"a / b\",\"ev\xff").unwrap();
        tell(out, &[started("a / c", 0), step(1)]);
        // The checkpoint of step 2 was written before the evaluation of that step.
        tell(out, &[started("a / b", 2), evaluated(2), step(3)]);
        let c = "c run 0, c step 1";
        let first = "b run 0, b step 1, b evaluated 1, b step 2, b pruned 2";
        let both = format!("{first}, {c}, b run 2, b evaluated 2, b step 3");
        assert_eq!(lines(out), both);
        let finished = |label: &str| Event::RunFinished {
            label: label.into(),
            summary: "s".into(),
            seconds: 1.0,
        };
        // A finished run that lacks its last line gets it, once; in a suite several in one process, before and after a run that
        // starts here.
        let [first, second, third, again] = ["a / b", "a / c", "a / d", "a / b"].map(finished);
        tell(out, &[first, second, started("a / d", 0), step(1), third, again]);
        let more = "c finished 1, d run 0, d step 1, d finished 1";
        assert_eq!(lines(out), format!("{both}, b finished 3, {more}"));
        assert_eq!(fs::read_dir(out).unwrap().count(), 2, "metrics and the board");
        // A run that starts anew leaves nothing of the old one.
        tell(out, &[started("a / b", 0), step(1)]);
        assert_eq!(lines(out), format!("{c}, {more}, b run 0, b step 1"));
        assert!(out.join("tensorboard/a/b").is_dir() && out.join("tensorboard/a/c").is_dir());
    }

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
