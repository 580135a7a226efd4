//! `lrvd demo ...`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lrvd_bench::planted::InputLaw;

/// The demonstrations.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Plant an update of known rank, learn it with adapters of rank 16, and see which rank is found.
    #[command(after_help = PLANTED_RANK_EXAMPLES)]
    PlantedRank(PlantedRankArguments),
}

const PLANTED_RANK_EXAMPLES: &str = "\
Examples:
  lrvd demo planted-rank                           rank 3 in 8000 rows, five seeds, under two minutes
  lrvd demo planted-rank --rank 1 --n 1000 --seeds 10
  lrvd demo planted-rank --layers 2 --inputs decaying --out planted
  lrvd demo planted-rank --format json | jq .found_rank

A frozen layer of 32 x 48 weights gets an update of the rank asked for; labels of 8 classes follow the sum.
Adapters of rank 16 learn it from the rows alone. Half-way they are turned to the singular directions of what
they have learnt; in the end a direction counts if its mean has more energy than its noise. No row is held out.

JSON: planted_rank (a number, per layer), found_rank (a list, one total over layers per seed), exact (whether
every layer has the planted rank), nll_mean (at the posterior mean), nll_mc (averaged over 10 draws) and
nll_oracle (of the planted weights): lists, nats on 8000 fresh rows; seeds, seconds, and runs with the
singular values and the loss over rank.";

/// Options of `lrvd demo planted-rank`.
#[derive(Debug, Args)]
pub(crate) struct PlantedRankArguments {
    /// Rank of the planted update, 1 to 16.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) rank: usize,
    /// Training rows.
    #[arg(long, default_value_t = 8000, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) n: usize,
    /// Number of seeds, each with a task of its own.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) seeds: usize,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "SEED", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) first_seed: u64,
    /// Layers with an update, 1 or 2.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) layers: usize,
    /// Law of the inputs: white, or with variances that decay as 1/j.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) inputs: InputLawName,
    /// Folder for `planted-rank.json` and `planted-rank.svg`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Laws of the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputLawName {
    /// Independent standard normal.
    #[default]
    Independent,
    /// Correlated, with variances that decay as 1/j.
    Decaying,
}

impl From<InputLawName> for InputLaw {
    fn from(name: InputLawName) -> Self {
        match name {
            InputLawName::Independent => Self::Independent,
            InputLawName::Decaying => Self::Decaying,
        }
    }
}
