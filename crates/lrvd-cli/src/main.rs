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
    let GlobalArguments { format, quiet, threads, .. } = arguments.global;
    let printer = printer::Printer { format, quiet };
    let start = || exit::fail_at_file_limit().map_err(Into::into).and_then(|()| log::start());
    let command = || start().and_then(|()| commands::run(arguments, printer));
    match process::run(threads, command).flatten() {
        Ok(status) => status.code(),
        Err(error) => {
            printer.error(error.as_ref());
            exit::ExitStatus::of(&error).code()
        }
    }
}
