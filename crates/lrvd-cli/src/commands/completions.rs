//! `lrvd completions`

use clap::CommandFactory;
use clap_complete::generate;

use super::Outcome;
use crate::args::{Arguments, CompletionsArguments};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Prints the script.
pub(super) fn run(arguments: CompletionsArguments, printer: Printer) -> Outcome {
    let mut script = Vec::new();
    generate(arguments.shell, &mut Arguments::command(), "lrvd", &mut script);
    printer.data(String::from_utf8(script)?.trim_end())?;
    Ok(ExitStatus::Done)
}
