//! What `predict`, `decide`, `generate` and `ood` share: inputs, and answers as they are written.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use lrvd_bench::Result;
use serde::Serialize;
use serde_json::Value;

use super::Outcome;
use crate::args::InputColumns;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

#[derive(Debug, Default, Args)]
pub(crate) struct InputArguments {
    /// Texts [default: lines of standard input].
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    /// Second text of each pair; once for each text.
    #[arg(long, value_name = "TEXT", requires = "texts")]
    pub(crate) pair: Vec<String>,
    /// A table (`.tsv`, `.csv`, `.jsonl`, `.json`, `.parquet`), or `.txt` with one text a line [default: standard input].
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) columns: InputColumns,
    /// Read the input as JSONL, whatever its name.
    #[arg(long, conflicts_with = "texts")]
    pub(crate) jsonl: bool,
}

impl InputArguments {
    /// Checks what needs no model.
    pub(super) fn check(&self) -> Result<()> {
        let (pairs, texts) = (self.pair.len(), self.texts.len());
        if pairs > 0 && pairs != texts {
            bail!("{pairs} `--pair` for {texts} texts; expected one for each");
        }
        Ok(())
    }
}

/// Answers as a command writes them: for reading in a terminal, one JSON object a line in a file or a pipe, one document with
/// `--format json`.
pub(super) struct Answers {
    command: &'static str,
    printer: Printer,
    pub(super) for_reading: bool,
    all: Vec<Value>,
}

impl Answers {
    pub(super) fn new(command: &'static str, printer: Printer) -> Self {
        Self { command, printer, for_reading: std::io::stdout().is_terminal(), all: Vec::new() }
    }

    /// Writes an answer: as a part of the document, as a line, or for reading; `false` once the reader has closed the pipe.
    pub(super) fn write(
        &mut self,
        part: &impl Serialize,
        answer: &impl Serialize,
        shown: impl FnOnce() -> String,
    ) -> Result<bool> {
        match self.printer.format {
            Format::Json => {
                self.all.push(serde_json::to_value(part)?);
                Ok(true)
            }
            Format::Text if self.for_reading => self.printer.line(&shown()),
            Format::Text => self.printer.document_line(self.command, answer),
        }
    }

    /// Writes the document, which `body` makes of all answers, if there is to be one.
    pub(super) fn finish(self, body: impl FnOnce(Vec<Value>) -> Value) -> Outcome {
        if self.printer.format == Format::Json {
            self.printer.document(self.command, body(self.all))?;
        }
        Ok(ExitStatus::Done)
    }
}
