//! One function for each command.

mod abstain;
mod bench;
mod completions;
mod config;
mod data;
mod eval;
mod export;
mod generate;
mod inspect;
mod language;
mod predict;
#[cfg(feature = "serve")]
mod serve;
mod table;
mod train;

pub(crate) use bench::BenchCommand;

use crate::args::{Arguments, Command};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Name of standard input in errors.
const STDIN: &str = "standard input";

/// What a command returns.
pub(crate) type Outcome = lrvd_bench::Result<ExitStatus>;

/// Runs the command that `arguments` name.
pub(crate) fn run(arguments: Arguments, printer: Printer) -> Outcome {
    let global = arguments.global;
    match arguments.command {
        Command::Train(arguments) => train::run(*arguments, global, printer),
        Command::Eval(arguments) => eval::run(arguments, printer),
        Command::Predict(arguments) => predict::run(arguments, printer),
        Command::Generate(arguments) => generate::run(*arguments, printer),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(*arguments, printer),
        Command::Abstain(command) => abstain::run(command, printer),
        Command::Config(command) => config::run(command, printer),
        Command::Data(command) => data::run(command, printer),
        Command::Inspect(arguments) => inspect::run(arguments, printer),
        Command::Export(arguments) => export::run(arguments, printer),
        Command::Completions(arguments) => completions::run(arguments, printer),
        Command::Bench(command) => bench::run(command, global, printer),
    }
}
