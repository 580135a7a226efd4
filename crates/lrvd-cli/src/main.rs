//! The `lrvd` command: fine-tune with adapters that learn their rank, and know how sure they are.

mod args;
mod commands;
mod exit;
mod log;
mod printer;
mod process;
mod progress;
#[cfg(feature = "serve")]
mod serve;

use std::process::ExitCode;

use args::GlobalArguments;

fn main() -> ExitCode {
    let arguments = commands::parse();
    process::run(arguments.command.keeps_pages(), || command(arguments))
}

fn command(arguments: commands::Arguments) -> ExitCode {
    let GlobalArguments { format, quiet, .. } = arguments.global;
    let printer = printer::Printer { format, quiet };
    let outcome = exit::fail_at_file_limit().map_err(Into::into).and_then(|()| log::start());
    match outcome.and_then(|()| commands::run(arguments, printer)) {
        Ok(status) => status.code(),
        Err(error) => {
            printer.error(error.as_ref());
            exit::ExitStatus::of(&error).code()
        }
    }
}
