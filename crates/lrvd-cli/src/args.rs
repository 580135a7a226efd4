//! Groups of options that several commands share, and the ranges of their values.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, RangedI64ValueParser, TypedValueParser};
use lrvd_bench::adapter::OpenOptions;
use lrvd_bench::run::MAX_SEED;
use lrvd_bench::settings::{MAX_DRAWS, Preset};
use lrvd_burn::train::DrawPolicy;

use crate::printer::Format;
use crate::process::threads;
use crate::progress::{LogFormat, ProgressStyle};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GlobalArguments {
    /// Format of standard output.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Print only errors on standard error, and the log messages of `RUST_LOG`.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// How progress is shown [default: the first that is possible; lines in the background, in notebooks and in CI].
    #[arg(long, global = true, value_enum, value_name = "STYLE")]
    pub(crate) progress: Option<ProgressStyle>,
    /// The same as `--progress lines`.
    #[arg(long, global = true, conflicts_with = "progress")]
    pub(crate) no_progress: bool,
    /// Threads that compute, 1 to 1024 [default: `RAYON_NUM_THREADS`, or as many as the process has cores].
    #[arg(long, global = true, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
}

impl GlobalArguments {
    /// How progress is shown, if an option says it.
    pub(crate) fn progress_style(self) -> Option<ProgressStyle> {
        let lines = self.no_progress || self.quiet;
        if lines { Some(ProgressStyle::Lines) } else { self.progress }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// Also write logs of this kind; `metrics.jsonl` is always written.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) log: Vec<LogFormat>,
}

/// Where settings come from, for `lrvd train` and `lrvd config show`.
#[derive(Debug, Default, Args)]
pub(crate) struct SettingsArguments {
    /// Settings to start from [default: the file's, or default].
    #[arg(long, value_name = "NAME", value_parser = one_of(&Preset::ALL, Preset::name))]
    pub(crate) preset: Option<Preset>,
    /// Settings that differ from the preset; an unknown key is an error.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, e.g. `lora_alpha=32` or `optimizer.beta2=0.98`; may be repeated.
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

/// How a model is loaded, and how it answers.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    #[command(flatten)]
    base: OpenOptions,
    /// Longest input in tokens; what is beyond is cut [default: that of the training, or the model's for an adapter of
    /// PEFT].
    #[arg(long, value_name = "N", value_parser = count(), allow_negative_numbers = true)]
    pub(crate) max_length: Option<usize>,
    /// Draws of the posterior, or of MC dropout's masks; 0 uses the posterior mean [default: 0, or the only number
    /// that a threshold was fitted for; for `eval` the mean and the number of draws in the training settings]. Draws add the mutual information; ten cost 2 to 11 passes.
    #[arg(long, value_name = "K", value_parser = draws(), allow_negative_numbers = true)]
    pub(crate) draws: Option<usize>,
    /// Seed of the draws [default: the training's].
    #[arg(long, value_name = "N", value_parser = seed(), allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Draw only if the two largest probabilities at the posterior mean differ by less than this, 0 to 1; other
    /// texts are answered at the mean.
    #[arg(long, value_name = "MARGIN", allow_negative_numbers = true)]
    pub(crate) cascade: Option<f64>,
    /// Draw in pairs of opposite noise.
    #[arg(long)]
    pub(crate) antithetic: bool,
    /// Device: cpu, wgpu, cuda:0; the build must include the backend.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
}

impl AnswerArguments {
    pub(crate) fn open(&self) -> OpenOptions {
        OpenOptions { max_length: self.max_length, ..self.base.clone() }
    }

    /// How draws are made, and which answers need none (`docs/guides/predict-with-draws.md`), not yet validated.
    pub(crate) fn policy(&self) -> DrawPolicy {
        let Self { cascade, antithetic, .. } = *self;
        DrawPolicy { antithetic, cascade, ..DrawPolicy::default() }
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct InputColumns {
    /// Column or key of the text or the question [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text or the passage [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) pair_column: Option<String>,
    /// Column or key of a list of choices, or one column for each choice, comma-separated [default: as in training].
    #[arg(long, value_delimiter = ',', value_name = "NAME|A,B")]
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
