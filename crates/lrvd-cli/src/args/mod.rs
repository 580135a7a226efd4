//! The command line, as types; no logic.

mod bench;

use clap::{Args, Parser, Subcommand};

pub(crate) use bench::{BenchCommand, GlueArguments};

use crate::printer::Format;

/// Fine-tuning that learns its own adapter rank and knows how sure it is.
#[derive(Debug, Parser)]
#[command(name = "lrvd", version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GlobalArguments {
    /// Form of the data on standard output.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Say nothing on standard error but errors.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Plain lines instead of a progress bar.
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reproduce a benchmark: train, evaluate and report several methods.
    #[command(subcommand)]
    Bench(BenchCommand),
}
