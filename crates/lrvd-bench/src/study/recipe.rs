//! The settings that all arms of all studies begin with.

use super::design::{Arm, Base};

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// One seed and a quarter of the steps: shows that it works and what to expect.
    #[default]
    Quick,
    /// Three seeds of 1000 steps.
    Full,
}

impl Size {
    /// Both sizes.
    pub const ALL: [Self; 2] = [Self::Quick, Self::Full];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// The size called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.name() == name)
    }

    /// Optimiser steps of every run.
    pub const fn steps(self) -> usize {
        match self {
            Self::Quick => 250,
            Self::Full => 1000,
        }
    }

    /// Seeds where none are named.
    pub fn seeds(self) -> Vec<u64> {
        match self {
            Self::Quick => vec![1],
            Self::Full => vec![1, 2, 3],
        }
    }
}

/// Data, lengths, ranks and rates, the same whatever the base.
const LENGTHS: &[&str] = &[
    "train_rows=8000",
    "batch_size=32",
    "max_length=64",
    "evaluation_batch_size=64",
    "initial_rank=8",
    "learning_rate=2e-3",
    "head_learning_rate=2e-3",
    "backbone_dropout=false",
    "draws=[10]",
];

/// The posterior: the KL in shares of the evidence bound, rising over half the run, slow variances, one
/// draw of weights per sequence, ranks judged once the KL has its whole weight.
const POSTERIOR: &[&str] = &[
    "kl_weight=0.03",
    "kl_divisor=n_train",
    "kl_warmup=0.5",
    "log_variance.learning_rate_factor=2",
    "training_scheme=weight-per-sequence",
    "prune.start=0.5",
    "prune.every=0.1",
];

/// The settings of `arm`, in the order in which they are made, before those of the command line.
pub(super) fn settings(arm: &Arm) -> Vec<String> {
    let posterior = if arm.base == Base::Recipe { POSTERIOR } else { &[] };
    let common = LENGTHS.iter().chain(posterior).map(|text| (*text).to_owned());
    common.chain(arm.set.iter().cloned()).collect()
}
