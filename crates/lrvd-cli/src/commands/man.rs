//! `lrvd man`

use clap::CommandFactory;

use super::Outcome;
use crate::args::{Arguments, ManArguments};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Writes a page for every command.
pub(super) fn run(arguments: ManArguments, printer: Printer) -> Outcome {
    let dir = arguments.dir;
    let failed = |source: std::io::Error| format!("{}: {source}", dir.display());
    std::fs::create_dir_all(&dir).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), &dir).map_err(failed)?;
    printer.note(&format!("man -l {}", dir.join("lrvd.1").display()));
    Ok(ExitStatus::Done)
}
