//! The two lengths of a reproduction.

use super::kind::Suite;
use crate::settings::{BasePrecision, ExperimentConfig, LogVarianceSettings, MethodSettings};

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Minutes on two cores, from what the repository holds.
    #[default]
    Quick,
    /// The full reproduction on the paper's model.
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

    /// Largest number of validation rows that are evaluated.
    pub(super) const fn validation_rows(self, suite: Suite) -> Option<usize> {
        match (self, suite) {
            (Self::Quick, Suite::Glue) => Some(500),
            (Self::Quick, Suite::Reasoning) => Some(100),
            (Self::Paper, _) => None,
        }
    }

    /// What the profile changes about a preset: lengths, and for the tiny models rank and rates.
    pub fn shorten(self, suite: Suite, config: ExperimentConfig) -> ExperimentConfig {
        match (self, suite) {
            (Self::Paper, _) => config,
            (Self::Quick, Suite::Glue) => ExperimentConfig {
                steps: QUICK_STEPS,
                batch_size: 32,
                // Three times the published weight: at 1e-6 nothing is pruned in so few steps.
                kl_weight: config.kl_weight.times(3.0),
                learning_rate: 4e-3,
                head_learning_rate: 4e-3,
                backbone_dropout: false,
                evaluation_batch_size: 64,
                max_length: 64,
                initial_rank: 8,
                evaluate_every: QUICK_STEPS / 4,
                methods: quick_methods(),
                ..config
            },
            (Self::Quick, Suite::Reasoning) => ExperimentConfig {
                steps: QUICK_REASONING_STEPS,
                batch_size: 8,
                // At the published weight and the means' rate, made for 5,000 steps, so few move no
                // variance and prune nothing.
                kl_weight: config.kl_weight.times(1e3),
                log_variance: LogVarianceSettings {
                    learning_rate_factor: 20.0,
                    ..config.log_variance
                },
                learning_rate: 5e-3,
                evaluation_batch_size: 32,
                max_length: 256,
                // Nothing is gained in a model that fits a cache.
                base_precision: BasePrecision::F32,
                evaluate_every: QUICK_REASONING_STEPS,
                draws: vec![10],
                methods: quick_methods(),
                ..config
            },
        }
    }
}

const QUICK_STEPS: usize = 200;
const QUICK_REASONING_STEPS: usize = 60;

/// Methods that look at the training set after training see a part of it.
fn quick_methods() -> MethodSettings {
    let mut methods = MethodSettings::default();
    methods.laplace.examples = Some(256);
    methods.laplace_last.examples = Some(256);
    methods.tfb.anchors = 100;
    methods.tfb.samples = 5;
    methods
}
