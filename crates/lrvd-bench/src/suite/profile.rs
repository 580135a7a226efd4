//! The two lengths of a reproduction.

use std::path::PathBuf;

use crate::backbone::{ModelLocation, locate_model};
use crate::error::BenchError;
use crate::experiment::ExperimentConfig;
use crate::task::GlueTask;

/// Folder of the shipped checkpoint, relative to this crate.
const SHIPPED: &str = "assets/deberta-v3-nano";

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Minutes on two cores, from what the repository holds.
    #[default]
    Quick,
    /// The full reproduction on DeBERTa-v3-base.
    Paper,
}

impl Profile {
    /// Both profiles.
    pub const ALL: [Self; 2] = [Self::Quick, Self::Paper];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Paper => "paper",
        }
    }

    /// The profile called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Tasks without `--tasks`; `real_text` if there is a data folder.
    pub(super) fn tasks(self, real_text: bool) -> Vec<GlueTask> {
        use GlueTask::{Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2};
        match (self, real_text) {
            (Self::Quick, false) => vec![Cola, Sst2, Mrpc, Qnli, Rte],
            (Self::Quick, true) => vec![Cola, Sst2, Mrpc, Qnli],
            (Self::Paper, _) => vec![Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2],
        }
    }

    /// Seeds without `--seeds`.
    pub(super) fn seeds(self) -> Vec<u64> {
        match self {
            Self::Quick => vec![1, 2],
            Self::Paper => vec![1, 2, 3],
        }
    }

    /// The pretrained model without `--model`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Model`] if the paper's model is neither cached nor reachable.
    pub(super) fn model(self) -> Result<ModelLocation, BenchError> {
        match self {
            Self::Quick => Ok(ModelLocation {
                name: "deberta-v3-nano (shipped)".to_owned(),
                folder: shipped(),
            }),
            Self::Paper => locate_model("microsoft/deberta-v3-base"),
        }
    }

    /// Largest number of validation rows that are evaluated.
    pub(super) const fn validation_rows(self) -> Option<usize> {
        match self {
            Self::Quick => Some(QUICK_VALIDATION_ROWS),
            Self::Paper => None,
        }
    }

    /// What the profile changes about a preset: lengths, and for the tiny model the rank.
    pub(super) fn shorten(self, config: ExperimentConfig) -> ExperimentConfig {
        match self {
            Self::Paper => config,
            Self::Quick => ExperimentConfig {
                steps: QUICK_STEPS,
                batch_size: 32,
                // Three times the published weight: at 1e-6 nothing is pruned in so few steps.
                kl_weight: 3.0 * config.kl_weight,
                learning_rate: 4e-3,
                head_learning_rate: 4e-3,
                backbone_dropout: false,
                evaluation_batch_size: 64,
                max_length: 64,
                initial_rank: 8,
                evaluate_every: QUICK_STEPS / 4,
                ..config
            },
        }
    }
}

const QUICK_STEPS: usize = 200;
const QUICK_VALIDATION_ROWS: usize = 500;

/// Where the shipped checkpoint lies: beside the program if it was installed with its assets, else
/// in the source tree it was built from.
fn shipped() -> PathBuf {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(SHIPPED);
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(|folder| folder.join(SHIPPED)))
        .filter(|folder| folder.is_dir());
    beside.unwrap_or(source)
}
