//! The only writer of this program: data to standard output, everything else to standard error.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::sync::LazyLock;

use anyhow::anyhow;
use clap::ValueEnum;
use indicatif::MultiProgress;
use lrvd_bench::{Result, printable, printable_json};
use serde::Serialize;

use crate::rows::{Row, csv};
use crate::terminal;

/// Formats of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and text, for reading.
    Table,
    /// A JSON object a line, for each row.
    Jsonl,
    /// A header, and a line for each row.
    Csv,
    /// One JSON document.
    Json,
}

/// Content of a command's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// Text alone.
    Text,
    /// Text, or one JSON document.
    Document,
    /// Text, one JSON document, or rows.
    Rows,
}

impl Format {
    /// The error of a command whose `content` does not have this format.
    pub(crate) fn check(self, content: Content) -> Result<()> {
        let least = match self {
            Self::Table => Content::Text,
            Self::Json => Content::Document,
            Self::Jsonl | Self::Csv => Content::Rows,
        };
        match content {
            _ if content >= least => Ok(()),
            Content::Text => {
                Err(anyhow!("`--format` is for commands that print data, and this one prints text"))
            }
            _ => {
                Err(anyhow!("`--format jsonl` and `--format csv` are for commands that print rows"))
            }
        }
    }
}

/// The envelope of every JSON document: what wrote it, and the version of its form.
#[derive(Serialize)]
struct Document<T> {
    schema_version: u32,
    /// Not in the lines of a command that writes many.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'static str>,
    #[serde(flatten)]
    body: T,
}

/// Version of a command's documents: a number more for each change of a key's name or meaning.
fn version(command: &str) -> u32 {
    if command == "predict" { 2 } else { 1 }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    /// Format that the command line names.
    pub(crate) named: Option<Format>,
    pub(crate) quiet: bool,
}

#[expect(clippy::unused_self, reason = "only the holder of a printer writes")]
impl Printer {
    /// Format of a command whose default is a table.
    pub(crate) fn format(self) -> Format {
        self.named.unwrap_or(Format::Table)
    }

    /// Data. A pipe that the reader has closed is not an error.
    pub(crate) fn data(self, text: &str) -> Result<()> {
        self.line(text).map(|_| ())
    }

    /// One of many lines of data; `false` once the reader has closed the pipe.
    pub(crate) fn line(self, text: &str) -> Result<bool> {
        written(&printable(text))
    }

    pub(crate) fn json(self, value: &impl Serialize) -> Result<()> {
        self.json_text(&serde_json::to_string_pretty(value)?)
    }

    /// A JSON document as it is written.
    pub(crate) fn json_text(self, json: &str) -> Result<()> {
        written(&printable_json(json)).map(|_| ())
    }

    /// The JSON document of a command.
    pub(crate) fn document(self, command: &'static str, body: impl Serialize) -> Result<()> {
        self.json(&Document { schema_version: version(command), command: Some(command), body })
    }

    /// One of the lines of a command, as JSON; `false` once the reader has closed the pipe.
    pub(crate) fn document_line(self, command: &'static str, body: impl Serialize) -> Result<bool> {
        let document = Document { schema_version: version(command), command: None, body };
        written(&printable_json(&serde_json::to_string(&document)?))
    }

    /// The row that [`document_line`](Self::document_line) writes.
    pub(crate) fn row(self, command: &str, body: impl Serialize) -> Result<Row> {
        Row::new(&Document { schema_version: version(command), command: None, body })
    }

    /// `value` as the JSON document of a command, or as `text`.
    pub(crate) fn report<T: Serialize>(
        self,
        command: &'static str,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        self.format().check(Content::Document)?;
        match self.format() {
            Format::Json => self.document(command, value),
            _ => self.data(&text(value)),
        }
    }

    /// `value` as the JSON document of a command, its `rows` as lines, or as `text`.
    pub(crate) fn report_rows<T: Serialize>(
        self,
        command: &'static str,
        value: &T,
        rows: impl FnOnce(&T) -> Result<Vec<Row>>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        match self.format() {
            Format::Table | Format::Json => self.report(command, value, text),
            Format::Csv => self.data(&csv(&rows(value)?)?),
            Format::Jsonl => {
                for row in rows(value)? {
                    if !self.document_line(command, row)? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// `value` as JSON, or as `text`.
    pub(crate) fn show<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> Result<String>,
    ) -> Result<()> {
        self.format().check(Content::Document)?;
        match self.format() {
            Format::Json => self.json(value),
            _ => self.data(&text(value)?),
        }
    }

    /// Help, or what is wrong with the arguments.
    pub(crate) fn usage(self, answer: &clap::Error) -> Result<()> {
        let outcome = answer.print().and_then(|()| io::stdout().flush());
        if answer.use_stderr() { Ok(()) } else { taken(outcome).map(|_| ()) }
    }

    /// Remarks.
    pub(crate) fn notes<'t>(self, texts: impl IntoIterator<Item = &'t String>) {
        texts.into_iter().for_each(|text| self.note(text));
    }

    /// A remark.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            remark(text);
        }
    }

    /// An error with its causes and, where the error knows one, a hint.
    pub(crate) fn error(self, error: &(dyn Error + 'static)) {
        remark(&format!("error: {error}"));
        let mut seen = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let text = next.to_string();
            // Messages that already contain their cause need no second line.
            if !seen.contains(&text) {
                remark(&format!("caused by: {text}"));
            }
            seen = text;
            cause = next.source();
        }
    }
}

/// Writes a line to standard output; `false` if it has no reader any more.
fn written(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    taken(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// False if the reader of standard output has closed the pipe, or the terminal has gone away.
fn taken(outcome: io::Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(_) if terminal::is_hung_up(io::stdout()) => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

/// The progress bars on standard error, above which remarks appear.
pub(crate) static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(terminal::bars()));

/// One line on standard error. Its own failure cannot be reported.
pub(crate) fn remark(text: &str) {
    let _ = BARS.suspend(|| writeln!(io::stderr(), "{}", printable(text)));
}
