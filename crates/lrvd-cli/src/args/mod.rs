//! The command line, as types; no logic.

mod bench;
mod classifier;
mod config;
mod data;
mod demo;
mod files;
#[cfg(feature = "hub")]
mod push;
mod study;
mod train;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Parser, Subcommand};
use lrvd_bench::classify::{MAX_DRAWS, MAX_SEED};

pub(crate) use bench::{BenchCommand, SuiteArguments};
pub(crate) use classifier::{
    AbstainArguments, AbstainCommand, ClassifierArguments, EvalArguments, InputColumns,
    PredictArguments,
};
pub(crate) use config::{ConfigCommand, SettingsArguments};
pub(crate) use data::{CheckArguments, DataCommand, ExampleArguments};
pub(crate) use demo::{DemoCommand, PlantedRankArguments};
pub(crate) use files::{
    CompletionsArguments, ExportArguments, ExportFormat, InspectArguments, Layout, PrecisionName,
    RanksCommand, VerifyArguments,
};
#[cfg(feature = "hub")]
pub(crate) use push::PushArguments;
pub(crate) use study::StudyArguments;
pub(crate) use train::TrainArguments;

use crate::printer::Format;
use crate::progress::ProgressStyle;

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
    /// How training is shown [default: the dashboard where there is a terminal, else lines].
    #[arg(long, global = true, value_enum, value_name = "STYLE")]
    pub(crate) progress: Option<ProgressStyle>,
    /// The same as `--progress lines`.
    #[arg(long, global = true, conflicts_with = "progress")]
    pub(crate) no_progress: bool,
}

impl GlobalArguments {
    /// How training is shown, if that was said.
    pub(crate) fn progress_style(self) -> Option<ProgressStyle> {
        let lines = self.no_progress || self.quiet;
        if lines { Some(ProgressStyle::Lines) } else { self.progress }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fine-tune a classifier on your own data.
    #[command(after_help = train::TRAIN_EXAMPLES)]
    Train(Box<TrainArguments>),
    /// Evaluate a saved classifier on labelled examples.
    #[command(after_help = classifier::EVAL_EXAMPLES)]
    Eval(EvalArguments),
    /// Classify texts and say how sure the answers are.
    #[command(after_help = classifier::PREDICT_EXAMPLES)]
    Predict(PredictArguments),
    /// Look at your data before training.
    #[command(subcommand)]
    Data(DataCommand),
    /// Let a classifier say when it does not know.
    #[command(subcommand)]
    Abstain(AbstainCommand),
    /// Write and check settings files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show ranks, relevance and sizes of an adapter or a checkpoint.
    #[command(after_help = files::INSPECT_EXAMPLES)]
    Inspect(InspectArguments),
    /// Take the learnt ranks somewhere else.
    #[command(subcommand)]
    Ranks(RanksCommand),
    /// Write an adapter for other programs.
    #[command(after_help = files::EXPORT_EXAMPLES)]
    Export(ExportArguments),
    /// Put an export onto the model hub.
    #[cfg(feature = "hub")]
    #[command(after_help = push::EXAMPLES)]
    Push(PushArguments),
    /// Recompute a folder of recorded numbers, or check a checkpoint of your own.
    #[command(after_help = files::VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
    /// Reproduce a benchmark: train, evaluate and report several methods.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Answer a question by training a few settings side by side: table, figures, verdicts.
    #[command(after_help = study::EXAMPLES)]
    Study(StudyArguments),
    /// Watch the method at work on a task whose answer is known.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Print a completion script for a shell.
    Completions(CompletionsArguments),
}

/// A seed, refused with its range.
fn seed() -> RangedI64ValueParser<u64> {
    RangedI64ValueParser::new().range(0..=MAX_SEED as i64)
}

/// A number of draws, refused with its range.
fn draws() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(0..=MAX_DRAWS as i64)
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "wanted a number above 0".to_owned())
}

/// A number between 0 and 1.
fn share(text: &str) -> Result<f64, String> {
    let number = positive(text).ok().filter(|number| *number < 1.0);
    number.ok_or_else(|| "wanted a number between 0 and 1".to_owned())
}

/// A count of at least one, refused with its range.
fn count() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(1..=1_000_000_000)
}
