//! The command line, as types; no logic.

mod classifier;
mod config;
mod data;
mod files;
mod generate;
#[cfg(feature = "serve")]
mod serve;
mod train;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Parser, Subcommand};
use lrvd_bench::run::MAX_SEED;
use lrvd_bench::settings::MAX_DRAWS;

pub(crate) use classifier::{
    AbstainArguments, AbstainCommand, ClassifierArguments, EvalArguments, InputColumns,
    PredictArguments,
};
pub(crate) use config::{ConfigCommand, SettingsArguments, TrainingArgument};
pub(crate) use data::{CheckArguments, DataCommand, ExampleArguments, TextArguments};
pub(crate) use files::{
    CompletionsArguments, ExportArguments, ExportFormat, InspectArguments, Layout,
};
pub(crate) use generate::GenerateArguments;
#[cfg(feature = "serve")]
pub(crate) use serve::ServeArguments;
pub(crate) use train::TrainArguments;

use crate::commands::BenchCommand;
use crate::printer::Format;
use crate::progress::{LogFormat, ProgressStyle};

const EXIT_CODES: &str = "\
Exit codes: 0, done; 1, a check failed; 2, invalid arguments, settings or files, described on standard error; 75, stopped
after a checkpoint: the same command with `--resume` continues.

Environment: HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE and HF_HUB_DOWNLOAD_TIMEOUT for models named by
repository (the network is used for nothing else); NO_COLOR; RUST_LOG=lrvd=debug logs to standard error what is read,
adapted, pruned and written, `lrvd=trace` every step.";

/// Fine-tune models with low-rank adapters, optionally with learnt ranks and uncertainty.
#[derive(Debug, Parser)]
#[command(name = "lrvd", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GlobalArguments {
    /// Format of standard output.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Print only errors on standard error, and the log messages of `RUST_LOG`.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// How progress is shown [default: the dashboard in a terminal, otherwise lines].
    #[arg(long, global = true, value_enum, value_name = "STYLE")]
    pub(crate) progress: Option<ProgressStyle>,
    /// The same as `--progress lines`.
    #[arg(long, global = true, conflicts_with = "progress")]
    pub(crate) no_progress: bool,
}

impl GlobalArguments {
    /// How progress is shown, if an option says it.
    pub(crate) fn progress_style(self) -> Option<ProgressStyle> {
        let lines = self.no_progress || self.quiet;
        if lines { Some(ProgressStyle::Lines) } else { self.progress }
    }
}

/// Logs of a run.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// Also write logs of this kind; `metrics.jsonl` is always written.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) log: Vec<LogFormat>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fine-tune a classifier, or a language model, on your own data.
    #[command(after_help = train::TRAIN_EXAMPLES)]
    Train(Box<TrainArguments>),
    /// Evaluate a saved classifier on labelled examples, or a language model on texts.
    #[command(after_help = classifier::EVAL_EXAMPLES)]
    Eval(EvalArguments),
    /// Classify texts, with calibrated probabilities and entropy.
    #[command(after_help = classifier::PREDICT_EXAMPLES)]
    Predict(PredictArguments),
    /// Generate text with a language model, with the uncertainty of every token.
    #[command(after_help = generate::EXAMPLES)]
    Generate(Box<GenerateArguments>),
    /// Serve a model over HTTP, with a page to try it.
    #[cfg(feature = "serve")]
    #[command(after_help = serve::SERVE_EXAMPLES)]
    Serve(Box<ServeArguments>),
    /// Check your data before training.
    #[command(subcommand)]
    Data(DataCommand),
    /// Let a classifier withhold uncertain answers.
    #[command(subcommand)]
    Abstain(AbstainCommand),
    /// Write and check settings files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show ranks, relevance and sizes of an adapter or a checkpoint.
    #[command(after_help = files::INSPECT_EXAMPLES)]
    Inspect(InspectArguments),
    /// Write an adapter for other programs.
    #[command(after_help = files::EXPORT_EXAMPLES)]
    Export(ExportArguments),
    /// Reproduce a benchmark: train, evaluate and report several methods.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a completion script for a shell.
    Completions(CompletionsArguments),
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

/// A seed within its range.
pub(crate) fn seed() -> RangedI64ValueParser<u64> {
    RangedI64ValueParser::new().range(0..=MAX_SEED as i64)
}

/// A number of draws within its range.
pub(crate) fn draws() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(0..=MAX_DRAWS as i64)
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// An entropy in nats, infinity included.
fn entropy(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number >= 0.0);
    number.ok_or_else(|| "expected an entropy of 0 or more".to_owned())
}

/// A number between 0 and 1.
fn share(text: &str) -> Result<f64, String> {
    let number = positive(text).ok().filter(|number| *number < 1.0);
    number.ok_or_else(|| "expected a number between 0 and 1".to_owned())
}

/// A count of at least one.
pub(crate) fn count() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(1..=1_000_000_000)
}

/// A whole number from `least` to `most`.
#[cfg(feature = "serve")]
fn few(least: i64, most: i64) -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(least..=most)
}
