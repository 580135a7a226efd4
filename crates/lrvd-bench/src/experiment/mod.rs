//! One experiment's settings: what a preset says, what a profile shortens, what the user overrides.

mod config;
mod error;
mod overrides;
mod preset;

pub use config::{
    AdaLoraSettings, BasePrecision, CheckpointChoice, ExperimentConfig, LogVarianceSettings,
    MaskPlacement, OptimizerOnPrune, PoolerMode, PredictionDraws, PrunePlacement, PruneSettings,
    TrainingScheme,
};
pub use error::SettingError;
pub use overrides::ConfigOverrides;
pub use preset::Preset;
