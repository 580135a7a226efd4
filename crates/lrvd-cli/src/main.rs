//! The `lrvd` command: fine-tune with adapters that learn their rank, and know how sure they are.

mod args;
mod commands;
mod exit;
mod printer;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A training step allocates and frees a few hundred tensors of some megabytes. The system's
/// allocator hands such blocks back to the kernel each time, and every page of them faults anew.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    let printer = printer::Printer::new(arguments.global.format, arguments.global.quiet);
    match commands::run(arguments, printer) {
        Ok(status) => status.code(),
        Err(error) => {
            printer.error(error.as_ref());
            exit::ExitStatus::Usage.code()
        }
    }
}
