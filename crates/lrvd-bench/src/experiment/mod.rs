//! One experiment's settings: what a preset says, what a profile shortens, what the user overrides.

mod config;
mod preset;

pub use config::{
    AdaLoraSettings, CheckpointChoice, ExperimentConfig, LogVarianceSettings, MaskPlacement,
    OptimizerOnPrune, PoolerMode, PrunePlacement, PruneSettings, TrainingScheme,
};
pub use preset::Preset;
