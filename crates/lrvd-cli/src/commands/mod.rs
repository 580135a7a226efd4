//! The command line: a file for each command, its options first.

mod abstain;
mod answers;
mod bench;
mod config;
mod data;
mod decide;
mod eval;
mod export;
mod generate;
mod help;
mod inspect;
mod ood;
mod predict;
#[cfg(feature = "serve")]
mod serve;
mod table;
mod train;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};

use crate::args::GlobalArguments;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Fine-tune models with low-rank adapters, optionally with learnt ranks and uncertainty.
#[derive(Debug, Parser)]
#[command(name = "lrvd", version, about, after_help = help::text(include_str!("help/lrvd.txt")), max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fine-tune a classifier, or a language model, on your own data.
    #[command(after_help = help::text(include_str!("help/train.txt")))]
    Train(Box<train::TrainArguments>),
    /// Evaluate a saved classifier on labelled examples, or a language model on texts.
    #[command(after_help = help::text(include_str!("help/eval.txt")))]
    Eval(eval::EvalArguments),
    /// Classify texts, with calibrated probabilities and entropy.
    #[command(after_help = help::text(include_str!("help/predict.txt")))]
    Predict(predict::PredictArguments),
    /// Answer typed questions about one state, with calibrated probabilities and confidence.
    #[command(after_help = help::text(include_str!("help/decide.txt")))]
    Decide(Box<decide::DecideArguments>),
    /// Generate text with a language model, with the uncertainty of every token.
    #[command(after_help = help::text(include_str!("help/generate.txt")))]
    Generate(Box<generate::GenerateArguments>),
    /// Serve a model over HTTP, with a page to try it.
    #[cfg(feature = "serve")]
    #[command(after_help = help::text(include_str!("help/serve.txt")))]
    Serve(Box<serve::ServeArguments>),
    /// Check your data before training.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Let a classifier withhold uncertain answers.
    #[command(subcommand)]
    Abstain(abstain::AbstainCommand),
    /// Tell texts unlike those of training.
    #[command(subcommand)]
    Ood(ood::OodCommand),
    /// Write and check settings files.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show ranks, relevance and sizes of an adapter or a checkpoint.
    #[command(after_help = help::text(include_str!("help/inspect.txt")))]
    Inspect(inspect::InspectArguments),
    /// Write an adapter for other programs.
    #[command(after_help = help::text(include_str!("help/export.txt")))]
    Export(export::ExportArguments),
    /// Reproduce a benchmark: train, evaluate and report several methods.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for a shell.
    Completions {
        /// Shell.
        #[arg(value_enum)]
        shell: Shell,
    },
}

impl Command {
    /// Whether freed memory is soon reused, so that the process should keep it.
    pub(crate) fn keeps_pages(&self) -> bool {
        match self {
            #[cfg(feature = "serve")]
            Self::Serve(_) => false,
            _ => true,
        }
    }
}

/// Name of standard input in errors.
const STDIN: &str = "standard input";

pub(crate) type Outcome = lrvd_bench::Result<ExitStatus>;

pub(crate) fn run(arguments: Arguments, printer: Printer) -> Outcome {
    let global = arguments.global;
    match arguments.command {
        Command::Train(arguments) => train::run(*arguments, global, printer),
        Command::Eval(arguments) => eval::run(arguments, printer),
        Command::Predict(arguments) => predict::run(arguments, printer),
        Command::Decide(arguments) => decide::run(*arguments, printer),
        Command::Generate(arguments) => generate::run(*arguments, printer),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(*arguments, printer),
        Command::Abstain(command) => abstain::run(command, printer),
        Command::Ood(command) => ood::run(command, printer),
        Command::Config(command) => config::run(command, printer),
        Command::Data(command) => data::run(command, printer),
        Command::Inspect(arguments) => inspect::run(arguments, printer),
        Command::Export(arguments) => export::run(arguments, printer),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            generate(shell, &mut Arguments::command(), "lrvd", &mut script);
            printer.data(String::from_utf8(script)?.trim_end())?;
            Ok(ExitStatus::Done)
        }
        Command::Bench(command) => bench::run(command, global, printer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help_with_examples() {
        let mut root = Arguments::command();
        root.build();
        root.clone().debug_assert();
        let mut open: Vec<clap::Command> = root.get_subcommands().cloned().collect();
        let mut count = 0;
        while let Some(mut command) = open.pop() {
            let is_help = command.get_name() == "help";
            open.extend(command.get_subcommands().filter(|_| !is_help).cloned());
            if command.has_subcommands() || is_help {
                continue;
            }
            count += 1;
            let path = command.get_bin_name().unwrap_or_default().to_owned();
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("Usage: {path}")), "{path}: {help}");
            let taught = help.contains("Examples:") && help.matches(&path).count() >= 3;
            assert!(taught || path == "lrvd completions", "{path}: {help}");
        }
        assert!(count >= 15, "{count}");
    }
}
