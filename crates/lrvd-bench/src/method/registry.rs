//! Every method: one line each.

use super::{Method, RankRequest};
use crate::error::BenchError;
use crate::experiment::ExperimentConfig;
use crate::report::Family;

/// Every method, in the order of tables. One more method is one more line.
pub(super) static REGISTRY: &[&MethodEntry] = &[
    &super::lora::LORA,
    &super::map::MAP,
    &super::mc_dropout::MC_DROPOUT,
    &super::ensemble::ENS_3,
    &super::ensemble::ENS_10,
    &super::ensemble::ENS_BLOB,
    &super::lora_ensemble::LORA_ENSEMBLE,
    &super::bbb::BBB,
    &super::bbb::BBB_A,
    &super::bbb::BBB_BT,
    &super::laplace::LAPLACE,
    &super::laplace::LAPLACE_LAST,
    &super::swag::SWAG,
    &super::ensemble::MULTI_SWAG,
    &super::blob::BLOB,
    &super::scala_bl::SCALA_BL,
    &super::tfb::TFB,
    &super::c_lora::C_LORA,
    &super::adalora::ADALORA,
    &super::bayes_lora::BAYES_LORA,
    &super::lrvd_variants::BAYES_LORA_FIXED,
    &super::lrvd_variants::LRVD_NTS,
    &super::lrvd_variants::LRVD_ELEMENT,
    &super::lrvd_variants::LRVD_A_ONLY,
    &super::lrvd_variants::LRVD_ARD,
    &super::lrvd_variants::BAYES_LORA_EXPANDED,
    &super::lrvd_variants::BAYES_LORA_EXPANDED_RUN,
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
    /// Its kind, which colours and orders reports.
    pub(crate) family: Family,
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
        /// The initial ranks, as multiples of the settings' one.
        factors: &'static [f64],
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
