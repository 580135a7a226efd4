//! One function for each command.

mod glue;

use std::error::Error;

use crate::args::{Arguments, BenchCommand, Command};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// What a command returns.
pub(crate) type Outcome = Result<ExitStatus, Box<dyn Error>>;

/// Runs the command that `arguments` name.
pub(crate) fn run(arguments: Arguments, printer: &Printer) -> Outcome {
    let global = arguments.global;
    match arguments.command {
        Command::Bench(BenchCommand::Glue(glue)) => glue::run(glue, global, printer),
    }
}
