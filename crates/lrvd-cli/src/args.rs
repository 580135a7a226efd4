//! Groups of options that several commands share, and the ranges of their values.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use clap::builder::{PossibleValuesParser, RangedI64ValueParser, TypedValueParser};
use lrvd_bench::adapter::OpenOptions;
use lrvd_bench::run::MAX_SEED;
use lrvd_bench::settings::{MAX_DRAWS, Preset};
use lrvd_burn::device;
use lrvd_burn::ops::Packing;
use lrvd_burn::train::DrawPolicy;

use crate::printer::{Format, Printer};
use crate::process::threads;
use crate::progress::ProgressStyle;

/// Headings of the options in a command's help. An option below none of them is for every command.
///
/// A group of options sets its heading for all that follow it, too: options behind a group name theirs.
pub(crate) mod heading {
    pub(crate) const DATA: &str = "Data";
    pub(crate) const MODEL: &str = "Model";
    pub(crate) const TRAINING: &str = "Training";
    pub(crate) const METHOD: &str = "Method";
    pub(crate) const ANSWERS: &str = "Answers";
    #[cfg(feature = "serve")]
    pub(crate) const SERVER: &str = "Server";
    #[cfg(feature = "serve")]
    pub(crate) const LIMITS: &str = "Limits";
    pub(crate) const OUTPUT: &str = "Output";
    pub(crate) const CLUSTER: &str = "Cluster";
}

/// Place of the options of every command, behind those of one command.
const LAST: usize = 900;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GlobalArguments {
    /// Format of standard output [default: table].
    ///
    /// The default of `predict`, `generate` and `ood score` in a file or a pipe is jsonl. jsonl and csv are for commands that
    /// print rows; csv is written at the end.
    #[arg(long, global = true, display_order = LAST, value_enum, help_heading = heading::OUTPUT)]
    pub(crate) format: Option<Format>,
    /// Print only errors on standard error, and the log messages of `RUST_LOG`.
    #[arg(long, short, global = true, display_order = LAST, help_heading = heading::OUTPUT)]
    pub(crate) quiet: bool,
    /// Display of progress [default: the first that is possible].
    ///
    /// In the background, in notebooks and in CI the default is lines.
    #[arg(long, global = true, display_order = LAST, value_enum, value_name = "STYLE", help_heading = heading::OUTPUT, hide_short_help = true)]
    pub(crate) progress: Option<ProgressStyle>,
    /// Print lines of progress, as `--progress lines` does.
    #[arg(long, global = true, display_order = LAST, conflicts_with = "progress", help_heading = heading::OUTPUT, hide_short_help = true)]
    pub(crate) no_progress: bool,
    /// Threads that compute, 1 to 1024 [default: the cores of the process].
    ///
    /// `RAYON_NUM_THREADS` sets another default.
    #[arg(long, global = true, display_order = LAST, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
}

impl GlobalArguments {
    /// Display of progress that an option names.
    pub(crate) fn progress_style(self) -> Option<ProgressStyle> {
        let lines = self.no_progress || self.quiet;
        if lines { Some(ProgressStyle::Lines) } else { self.progress }
    }
}

/// Sources of settings, for `lrvd train` and `lrvd config show`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = heading::TRAINING)]
pub(crate) struct SettingsArguments {
    /// Settings to start from [default: the file's, or default].
    #[arg(long, value_name = "NAME", value_parser = one_of(&Preset::ALL, Preset::name))]
    pub(crate) preset: Option<Preset>,
    /// Settings that differ from the preset; an unknown key is an error.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, as in `lora_alpha=32`; may be repeated.
    ///
    /// A setting of a section is named with it, as in `optimizer.beta2=0.98`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AdapterArguments {
    /// Output of `lrvd train`, or an adapter folder.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) answers: AnswerArguments,
}

/// Options of loading a model, and of its answers.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    #[command(flatten, next_help_heading = heading::MODEL)]
    base: OpenOptions,
    /// Longest input in tokens; the rest is cut [default: the training's].
    ///
    /// For an adapter of PEFT the default is the model's.
    #[arg(long, value_name = "N", value_parser = count(), allow_negative_numbers = true, help_heading = heading::MODEL)]
    pub(crate) max_length: Option<usize>,
    /// Multiply the weights of an encoder in 8 bits, on the CPU.
    ///
    /// Takes .4 to .6 of the time of texts in batches (docs/results/inference.md). Adapters, heads and attention stay in single precision, and
    /// temperatures and thresholds those that were fitted; `abstain fit --int8` fits a threshold to such answers.
    #[cfg(feature = "int8")]
    #[arg(long, help_heading = heading::MODEL, hide_short_help = true)]
    int8: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgument,
    /// Draws of the posterior; 0 uses its mean [default: 0].
    ///
    /// Of MC dropout they are masks. The default is the only number that a threshold was fitted for, if there is one; for `eval`
    /// the mean and the number of draws in the training settings. Draws add the mutual information; ten cost 2 to 11 passes.
    #[arg(long, value_name = "K", value_parser = draws(), allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) draws: Option<usize>,
    /// Seed of the draws [default: the training's].
    #[arg(long, value_name = "N", value_parser = seed(), allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) seed: Option<u64>,
    /// Draw only if the two largest probabilities differ by less than this.
    ///
    /// The probabilities are those at the posterior mean, at which other texts are answered; MARGIN is 0 to 1.
    #[arg(long, value_name = "MARGIN", allow_negative_numbers = true, help_heading = heading::ANSWERS, hide_short_help = true)]
    pub(crate) cascade: Option<f64>,
    /// Draw in pairs of opposite noise.
    #[arg(long, help_heading = heading::ANSWERS, hide_short_help = true)]
    pub(crate) antithetic: bool,
}

/// Device of a command.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgument {
    /// Device: cpu, wgpu, cuda:0, or auto for the first GPU.
    ///
    /// The build must include the backend; `lrvd devices` lists the devices that can be used. `auto` is the CPU if there is no
    /// GPU, and the command names its choice.
    #[arg(long, default_value = "cpu", value_name = "DEVICE", help_heading = heading::MODEL)]
    device: String,
}

impl DeviceArgument {
    /// `true` if the device is that of the machine on which it is opened.
    pub(crate) fn is_automatic(&self) -> bool {
        self.device == "auto"
    }

    /// Name of the device; the choice of `auto` is noted.
    pub(crate) fn name(&self, printer: Printer) -> String {
        if !self.is_automatic() {
            return self.device.clone();
        }
        let found = device::automatic();
        printer.note(&format!("device: {found}"));
        found
    }

    pub(crate) fn open(&self, printer: Printer) -> Result<Device, lrvd_burn::Error> {
        device::open(&self.name(printer))
    }
}

impl AnswerArguments {
    pub(crate) fn open(&self) -> OpenOptions {
        let &Self { max_length, .. } = self;
        OpenOptions { max_length, packing: self.packing(), ..self.base.clone() }
    }

    #[cfg(feature = "int8")]
    fn packing(&self) -> Option<Packing> {
        self.int8.then_some(Packing::Integer)
    }

    #[cfg(not(feature = "int8"))]
    fn packing(&self) -> Option<Packing> {
        None
    }

    /// Policy of draws, not yet validated (`docs/guides/predict-with-draws.md`).
    pub(crate) fn policy(&self) -> DrawPolicy {
        let Self { cascade, antithetic, .. } = *self;
        DrawPolicy { antithetic, cascade, ..DrawPolicy::default() }
    }
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = heading::DATA)]
pub(crate) struct InputColumns {
    /// Column or key of the text or the question [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text or the passage [default: as in training].
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) pair_column: Option<String>,
    /// Column or key of a list of choices, or one column for each choice, comma-separated [default: as in training].
    #[arg(long, hide_short_help = true, value_delimiter = ',', value_name = "NAME|A,B")]
    pub(crate) choice_columns: Vec<String>,
}

pub(crate) fn seed() -> RangedI64ValueParser<u64> {
    RangedI64ValueParser::new().range(0..=MAX_SEED as i64)
}

pub(crate) fn draws() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(0..=MAX_DRAWS as i64)
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    number(text, |number| number.is_finite() && number > 0.0, "a number above 0")
}

/// An entropy in nats, infinity included.
pub(crate) fn entropy(text: &str) -> Result<f64, String> {
    number(text, |number| number >= 0.0, "an entropy of 0 or more")
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number < 1.0, "a number between 0 and 1")
}

fn number(text: &str, suits: fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| suits(*number));
    number.ok_or_else(|| format!("expected {expected}"))
}

pub(crate) fn count() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(1..=1_000_000_000)
}

#[cfg(feature = "serve")]
pub(crate) fn few(least: i64, most: i64) -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(least..=most)
}

/// One of `all`, by the names that the library gives them.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let found = move |found: String| all.iter().copied().find(|value| name(*value) == found);
    PossibleValuesParser::new(all.iter().map(move |value| name(*value)))
        .try_map(move |text| found(text).ok_or("it has no such name"))
}
