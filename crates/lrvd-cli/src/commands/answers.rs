//! What `predict`, `decide`, `generate` and `ood` share: inputs, and answers as they are written.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use lrvd_bench::adapter::InputRow;
use lrvd_bench::data::table::{RowFile, cell_text};
use lrvd_bench::data::{At, Input, Keep, KeptCells, OnError};
use lrvd_bench::{Error, Result, Unused, no_threads};
use serde::Serialize;
use serde_json::Value;

use super::Outcome;
use crate::args::{InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::LINE_EVERY;
use crate::rows::{Row, csv, new_file, push};

/// Time without a row after which those that have come from standard input are answered.
const QUIET: Duration = Duration::from_millis(50);
/// Rows of standard input that are read ahead.
const AHEAD: usize = 64;

#[derive(Debug, Default, Args)]
pub(crate) struct InputArguments {
    /// Texts [default: lines of standard input].
    #[arg(value_name = "TEXT", help_heading = None::<&'static str>)]
    pub(crate) texts: Vec<String>,
    /// Second text of each pair; once for each text.
    #[arg(long, value_name = "TEXT", requires = "texts", help_heading = heading::DATA)]
    pub(crate) pair: Vec<String>,
    /// Table, or `.txt` with one text a line [default: standard input].
    ///
    /// A table is `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`, here or in a data set on the hub (`lrvd data formats`).
    #[arg(long, value_name = "FILE", conflicts_with = "texts", help_heading = heading::DATA)]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) columns: InputColumns,
    /// Columns or keys of the input that are carried to the output, comma-separated; `all` for all of them.
    ///
    /// `id` and the texts are there without it.
    #[arg(long, value_delimiter = ',', value_name = "A,B", help_heading = heading::OUTPUT, conflicts_with = "texts")]
    pub(crate) keep: Vec<String>,
    /// Read the input as JSONL, whatever its name.
    #[arg(long, conflicts_with = "texts")]
    pub(crate) jsonl: bool,
    /// Stop at a row that cannot be answered, or skip and count it [default: skip].
    ///
    /// A skipped row gets an empty answer with the reason. The default is stop for texts of the command line.
    #[arg(long, value_enum, value_name = "stop|skip")]
    pub(crate) on_error: Option<OnError>,
}

/// File of a command's answers.
#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// File for the answers, `.csv`, `.jsonl` or `.parquet`, in place of standard output.
    ///
    /// It is there at the end, whole or not at all.
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    /// Replace the file of `--out` if it exists.
    #[arg(long, requires = "out", help_heading = heading::OUTPUT)]
    pub(crate) force: bool,
}

/// Keys of the answers of `predict` and `ood score`, and of those of other commands to rows of a table.
const KEYS: &[&str] = &[
    "schema_version",
    "id",
    "line",
    "row",
    "text",
    "pair",
    "predicted",
    "choice",
    "probs",
    "labels",
    "entropy",
    "mutual_information",
    "interval",
    "interval_level",
    "draws_deviation",
    "abstained",
    "reason",
    "set",
    "draws",
    "score",
    "p",
    "outside",
    "error",
];

/// Source of a row: its own id, and its line or row in a file.
#[derive(Debug, Default, Serialize)]
pub(super) struct Origin {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(flatten)]
    at: Option<At>,
    /// Cells that are carried to its answer.
    #[serde(flatten)]
    kept: KeptCells,
}

impl Origin {
    /// The cells that are carried to the answer, as text.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, String)> {
        self.kept.0.iter().map(|(name, value)| (name.as_str(), cell_text(value)))
    }

    pub(super) fn of(at: At) -> Self {
        Self { at: Some(at), ..Self::default() }
    }
}

/// The answer to a row that has none.
#[derive(Serialize)]
pub(super) struct Unanswered<'a> {
    #[serde(flatten)]
    origin: &'a Origin,
    text: Option<&'a str>,
    predicted: Option<&'a str>,
    /// Why there is none.
    error: String,
}

/// Rows without an answer: what is done about them, and how many there are.
pub(super) struct Skipped {
    skips: bool,
    unused: Unused,
}

impl Skipped {
    /// The policy of `input`: by default rows are skipped, and a text of the command line is an error.
    pub(super) fn new(input: &InputArguments) -> Self {
        Self::of(input.on_error, input.texts.is_empty())
    }

    /// The policy that is `asked` for, or else rows are skipped where `are_rows`.
    pub(super) fn of(asked: Option<OnError>, are_rows: bool) -> Self {
        let usual = if are_rows { OnError::Skip } else { OnError::Stop };
        Self { skips: asked.unwrap_or(usual) == OnError::Skip, unused: Unused::default() }
    }

    /// Counts a row that cannot be answered; the error if there must be none.
    pub(super) fn add(&mut self, error: Error) -> Result<Error> {
        if !self.skips {
            return Err(error);
        }
        self.unused.leave_out(&error);
        Ok(error)
    }

    /// Says how many rows have no answer, of `answered` rows in all; an error if that is `strict`.
    pub(super) fn report(&self, answered: usize, strict: bool, printer: Printer) -> Result<()> {
        if self.unused.rows() > 0 {
            printer.notes(&self.unused.notes(strict)?);
            let rows = self.unused.rows();
            printer.note(&format!(
                "{rows} of {answered} rows have no answer: it is null, `error` says why"
            ));
        }
        Ok(())
    }
}

/// Rows in their order: all that there are, or those of standard input as they come.
pub(super) enum Rows<T> {
    Known(Box<dyn Iterator<Item = Result<T>>>),
    Coming { rows: Receiver<Result<T>>, next: Option<Result<T>> },
}

impl<T: Send + 'static> Rows<T> {
    pub(super) fn known(rows: impl Iterator<Item = Result<T>> + 'static) -> Self {
        Self::Known(Box::new(rows))
    }

    /// Items that `read` makes of standard input, on a separate thread.
    pub(super) fn coming<I: Iterator<Item = Result<T>>>(
        printer: Printer,
        read: impl FnOnce(Box<dyn BufRead>) -> Result<I> + Send + 'static,
    ) -> Result<Self> {
        waits_for_lines(printer);
        let (sender, rows) = sync_channel(AHEAD);
        // The thread ends once the rows are not taken any more.
        let work = move || match read(Box::new(stdin().lock())) {
            Ok(mut all) => all.all(|row| sender.send(row).is_ok()),
            Err(error) => sender.send(Err(error)).is_ok(),
        };
        let thread = std::thread::Builder::new().name("standard-input".to_owned());
        thread.spawn(work).map_err(|error| no_threads(1, error))?;
        Ok(Self::Coming { rows, next: None })
    }

    /// The next rows, `most` at most; fewer at the end and, if they `may_be_parted`, where the input is quiet.
    pub(super) fn group(&mut self, most: usize, may_be_parted: bool) -> Result<Vec<T>> {
        let mut group = Vec::new();
        while group.len() < most {
            if may_be_parted && !group.is_empty() && self.is_quiet() {
                break;
            }
            let Some(row) = self.next() else { break };
            group.push(row?);
        }
        Ok(group)
    }

    /// `true` if the next row has not come for a while.
    fn is_quiet(&mut self) -> bool {
        let Self::Coming { rows, next: next @ None } = self else { return false };
        match rows.recv_timeout(QUIET) {
            Ok(row) => *next = Some(row),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => {}
        }
        false
    }

    /// `true` if it is known, behind a group that was not full, that no row is left.
    pub(super) fn is_over(&mut self) -> bool {
        !self.is_quiet() && !matches!(self, Self::Coming { next: Some(_), .. })
    }
}

impl<T> Iterator for Rows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        match self {
            Self::Known(rows) => rows.next(),
            Self::Coming { rows, next } => next.take().or_else(|| rows.recv().ok()),
        }
    }
}

/// Says in a terminal that its lines are read.
pub(super) fn waits_for_lines(printer: Printer) {
    if stdin().is_terminal() {
        printer.note("reading lines from the terminal until Ctrl-D");
    }
}

/// Rows that were asked together: what was read of each, and where it comes from.
pub(super) struct Window {
    pub(super) inputs: Vec<Input>,
    /// Of every row, in the order of the rows.
    rows: Vec<(Origin, Option<Error>)>,
}

impl Window {
    pub(super) fn new(rows: Vec<InputRow>, skipped: &mut Skipped) -> Result<Self> {
        let mut window = Self { inputs: Vec::new(), rows: Vec::new() };
        for InputRow { id, at, kept, input } in rows {
            let error = match input {
                Ok(input) => {
                    window.inputs.push(input);
                    None
                }
                Err(error) => Some(skipped.add(error)?),
            };
            window.rows.push((Origin { id, at, kept }, error));
        }
        Ok(window)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Leaves out the inputs for which there is a reason.
    pub(super) fn leave_out(
        &mut self,
        reasons: Vec<Option<Error>>,
        skipped: &mut Skipped,
    ) -> Result<()> {
        let mut reasons = reasons.into_iter();
        let mut kept = Vec::new();
        let mut inputs = std::mem::take(&mut self.inputs).into_iter();
        for (_, error) in self.rows.iter_mut().filter(|(_, error)| error.is_none()) {
            match (inputs.next(), reasons.next().flatten()) {
                (_, Some(reason)) => *error = Some(skipped.add(reason)?),
                (input, None) => kept.extend(input),
            }
        }
        self.inputs = kept;
        Ok(())
    }

    /// Passes every row in order to `write`, with the place of its input or why it has none, until it returns false.
    pub(super) fn each(
        &self,
        mut write: impl FnMut(&Origin, Result<usize, &Error>) -> Result<bool>,
    ) -> Result<bool> {
        let mut next = 0;
        for (origin, error) in &self.rows {
            let found = match error {
                Some(error) => Err(error),
                None => {
                    next += 1;
                    Ok(next - 1)
                }
            };
            if !write(origin, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl InputArguments {
    /// Columns that are carried to the answers.
    pub(super) fn kept(&self) -> Keep {
        Keep::new(&self.keep, KEYS)
    }

    /// Checks what needs no model.
    pub(super) fn check(&self) -> Result<()> {
        let pairs = self.pair.len();
        let texts = self.texts.len();
        if pairs > 0 && pairs != texts {
            bail!("{pairs} `--pair` for {texts} texts; expected one for each");
        }
        Ok(())
    }
}

/// Answers as a command writes them: in the format of the command line, or else for reading in a terminal, and one JSON object a
/// line in a file or a pipe.
pub(super) struct Answers {
    command: &'static str,
    printer: Printer,
    format: Format,
    /// Parts of the document, which is written at the end.
    all: Vec<Value>,
    /// Rows of CSV, which is written at the end.
    rows: Vec<Row>,
    count: usize,
    /// When the number of answers was last noted.
    noted: Instant,
    /// The file that the answers are written to, in place of standard output.
    file: Option<RowFile>,
}

impl Answers {
    pub(super) fn new(command: &'static str, printer: Printer) -> Self {
        let is_read = std::io::stdout().is_terminal();
        let format = printer.named.unwrap_or(if is_read { Format::Table } else { Format::Jsonl });
        Self {
            command,
            printer,
            format,
            all: Vec::new(),
            rows: Vec::new(),
            count: 0,
            noted: Instant::now(),
            file: None,
        }
    }

    /// Writes the answers to the file that `output` names, if any.
    pub(super) fn into_file(mut self, output: &OutputArguments) -> Result<Self> {
        if let Some(path) = &output.out {
            if self.printer.named.is_some() {
                bail!("`--out` writes the format that its name ends in: leave out `--format`");
            }
            self.file = Some(new_file(path, output.force)?);
        }
        Ok(self)
    }

    /// Writes the next answers for reading, or as lines, where the command line names no format.
    pub(super) fn set_for_reading(&mut self, is_read: bool) {
        let own = if is_read { Format::Table } else { Format::Jsonl };
        self.format = self.printer.named.unwrap_or(own);
    }

    /// Writes an answer: as a part of the document, as a line, or for reading; `false` once the reader has closed the pipe.
    pub(super) fn write(
        &mut self,
        part: &impl Serialize,
        answer: &impl Serialize,
        shown: impl FnOnce() -> String,
    ) -> Result<bool> {
        self.count += 1;
        let is_silent = self.file.is_some() || self.format != Format::Table;
        if is_silent && self.noted.elapsed() >= LINE_EVERY {
            self.noted = Instant::now();
            self.printer.note(&format!("{} answers so far", self.count));
        }
        if let Some(file) = &mut self.file {
            let nested = file.is_nested();
            let row =
                if nested { self.printer.row(self.command, answer) } else { Row::new(answer) };
            push(file, &row?)?;
            return Ok(true);
        }
        match self.format {
            Format::Table => return self.printer.line(&shown()),
            Format::Jsonl => return self.printer.document_line(self.command, answer),
            Format::Csv => self.rows.push(Row::new(answer)?),
            Format::Json => self.all.push(serde_json::to_value(part)?),
        }
        Ok(true)
    }

    /// Writes that a row has no answer; `false` once the reader has closed the pipe.
    pub(super) fn write_none(&mut self, origin: &Origin, error: &Error) -> Result<bool> {
        let error = format!("{error:#}");
        let none = Unanswered { origin, text: None, predicted: None, error };
        self.write(&none, &none, || format!("no answer: {}", none.error))
    }

    /// Writes the document, which `body` makes of all answers, or the rows of CSV.
    pub(super) fn finish(self, body: impl FnOnce(Vec<Value>) -> Value) -> Outcome {
        if let Some(file) = self.file {
            let note = format!("{} answers: {}", self.count, file.path().display());
            file.finish()?;
            self.printer.note(&note);
            return Ok(ExitStatus::Done);
        }
        match self.format {
            Format::Table | Format::Jsonl => {}
            Format::Csv => self.printer.data(&csv(&self.rows)?)?,
            Format::Json => self.printer.document(self.command, body(self.all))?,
        }
        Ok(ExitStatus::Done)
    }
}
