//! Settings of a run: what a preset says, what a profile shortens, what the user overrides, and the methods there are.

mod config;
mod family;
mod kl_weight;
mod method_name;
mod method_table;
mod methods;
mod overrides;
mod preset;
mod prompt;
mod range;
mod schema;
mod template;
mod training;
mod valid;
mod wording;

pub use config::{
    AdaLoraSettings, BasePrecision, CheckpointChoice, ExperimentConfig, LogVarianceSettings,
    PoolerMode, PruneSettings, TrainingScheme,
};
pub(crate) use family::Family;
pub use kl_weight::{KlWeight, RankSearchSettings, holdout_share};
pub use lrvd_burn::train::{
    Bucketing, LastBatch, MaskPlacement, OptimizerOnPrune, PredictionDraws, PrunePlacement,
};
pub use method_name::{MethodName, RankRequest};
pub use method_table::{Capabilities, MethodEntry, MethodForm};
pub use methods::{
    ArdSettings, BbbPrior, BbbSettings, BbbWeight, BlobSettings, CLoraSettings, KlDirectionSetting,
    LaplaceLayers, LaplacePredictive, LaplacePrior, LaplaceSettings, LoraEnsembleSettings,
    MapSettings, McDropoutSettings, MethodSettings, MixtureSettings, NoiseToSignalSettings,
    Optimizers, ScalaBlSettings, SwagSettings, TfbCriterion, TfbSettings,
};
pub use overrides::ConfigOverrides;
pub use preset::Preset;
pub use prompt::PromptSet;
pub use schema::schema;
pub use template::template;
pub use training::Training;
pub use valid::{MAX_DRAWS, ValidConfig};
pub use wording::WordingSettings;
