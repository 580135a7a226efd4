//! Every method: one line each.

use super::{
    Method, RankRequest, adalora, bayes_lora, bbb, blob, c_lora, ensemble, laplace, lora,
    lora_ensemble, lrvd_variants, map, mc_dropout, scala_bl, swag, tfb,
};
use crate::error::BenchError;
use crate::experiment::ExperimentConfig;

/// Every method, in the order of tables. One more method is one more line.
pub(super) static REGISTRY: &[&MethodEntry] = &[
    &lora::LORA,
    &map::MAP,
    &mc_dropout::MC_DROPOUT,
    &ensemble::ENS_3,
    &ensemble::ENS_10,
    &ensemble::ENS_BLOB,
    &lora_ensemble::LORA_ENSEMBLE,
    &bbb::BBB,
    &bbb::BBB_A,
    &bbb::BBB_BT,
    &laplace::LAPLACE,
    &laplace::LAPLACE_LAST,
    &swag::SWAG,
    &ensemble::MULTI_SWAG,
    &blob::BLOB,
    &scala_bl::SCALA_BL,
    &tfb::TFB,
    &c_lora::C_LORA,
    &adalora::ADALORA,
    &bayes_lora::BAYES_LORA,
    &lrvd_variants::BAYES_LORA_FIXED,
    &lrvd_variants::LRVD_NTS,
    &lrvd_variants::LRVD_ELEMENT,
    &lrvd_variants::LRVD_A_ONLY,
    &lrvd_variants::LRVD_ARD,
    &lrvd_variants::BAYES_LORA_EXPANDED,
    &lrvd_variants::BAYES_LORA_EXPANDED_RUN,
];

/// A method as the registry knows it.
#[derive(Debug)]
pub struct MethodEntry {
    /// Name in tables.
    pub name: &'static str,
    /// Name on the command line and of its settings: lower-case letters, digits and dashes.
    pub key: &'static str,
    /// One line for `--help` and reports.
    pub summary: &'static str,
    /// How it comes to be.
    pub build: Build,
}

impl MethodEntry {
    /// Whether the method is a row of its own where all methods are asked for: one that only exists
    /// for another row to choose from ([`Build::Matched`]) is not.
    pub(super) fn is_listed(&self) -> bool {
        let chosen_from = |entry: &&MethodEntry| matches!(entry.build, Build::Matched { member, .. } if member == self.key);
        !REGISTRY.iter().any(chosen_from)
    }
}

/// How a method comes to be.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// One training run.
    Single(fn(&ExperimentConfig, RankRequest) -> Result<Method, BenchError>),
    /// Independent runs of another method, whose predictions are averaged.
    Ensemble {
        /// Key of that method.
        member: &'static str,
        /// Number of runs.
        members: usize,
        /// What is averaged.
        average: Average,
    },
    /// Runs of another method at several initial ranks; the one whose parameters come nearest to
    /// those of `like` is reported.
    Matched {
        /// Key of that method.
        member: &'static str,
        /// The initial ranks.
        ranks: &'static [usize],
        /// Key of the method whose parameter count is the target.
        like: &'static str,
    },
}

/// What the members of an ensemble average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Probabilities.
    Probabilities,
    /// Logits, as published code does.
    Logits,
}
