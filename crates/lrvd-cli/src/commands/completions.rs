//! `lrvd completions`

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Arguments, Outcome};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Options of `lrvd completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Prints the script.
pub(super) fn run(arguments: CompletionsArguments, printer: Printer) -> Outcome {
    let mut script = Vec::new();
    generate(arguments.shell, &mut Arguments::command(), "lrvd", &mut script);
    printer.data(String::from_utf8(script)?.trim_end())?;
    Ok(ExitStatus::Done)
}
