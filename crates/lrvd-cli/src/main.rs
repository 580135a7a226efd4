//! The `lrvd` command: fine-tune with adapters that learn their rank, and know how sure they are.

mod args;
mod commands;
mod exit;
mod log;
mod printer;
mod process;
mod progress;
mod rows;
#[cfg(feature = "serve")]
mod serve;
mod terminal;

use std::process::ExitCode;

use args::GlobalArguments;

fn main() -> ExitCode {
    let arguments = match commands::parse() {
        Ok(arguments) => arguments,
        Err(answer) => {
            let printer = printer::Printer { named: None, quiet: false };
            let code = ExitCode::from(answer.exit_code() as u8);
            return ended(printer, printer.usage(&answer).map(|()| code));
        }
    };
    let GlobalArguments { format, quiet, threads, .. } = arguments.global;
    let printer = printer::Printer { named: format, quiet };
    let start = || exit::fail_at_file_limit().map_err(Into::into).and_then(|()| log::start());
    let command = || start().and_then(|()| commands::run(arguments, printer));
    ended(printer, process::run(threads, command).flatten().map(exit::ExitStatus::code))
}

fn ended(printer: printer::Printer, outcome: lrvd_bench::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        printer.error(error.as_ref());
        exit::ExitStatus::of(&error).code()
    })
}
