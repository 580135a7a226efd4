//! Settings of a run: what a preset says, what a profile shortens, what the user overrides, and the methods there are.

mod config;
mod kl_weight;
mod method_name;
mod methods;
mod overrides;
mod preset;
mod prompt;
mod schema;
mod valid;

pub use config::{
    AdaLoraSettings, BasePrecision, CheckpointChoice, ExperimentConfig, LogVarianceSettings,
    PoolerMode, PruneSettings, TrainingScheme,
};
pub use kl_weight::{KlWeight, RankSearchSettings, holdout_share};
pub use lrvd_burn::train::{
    Bucketing, LastBatch, MaskPlacement, OptimizerOnPrune, PredictionDraws, PrunePlacement,
};
pub(crate) use method_name::Family;
pub use method_name::{Capabilities, MethodEntry, MethodForm, MethodName, RankRequest};
pub use methods::{
    ArdSettings, BbbPrior, BbbSettings, BbbWeight, BlobSettings, CLoraSettings, KlDirectionSetting,
    LaplaceLayers, LaplacePredictive, LaplacePrior, LaplaceSettings, LoraEnsembleSettings,
    MapSettings, McDropoutSettings, MethodSettings, MixtureSettings, NoiseToSignalSettings,
    Optimizers, ScalaBlSettings, SwagSettings, TfbCriterion, TfbSettings,
};
pub use overrides::ConfigOverrides;
pub use preset::Preset;
pub use prompt::{PromptSet, Training, WordingSettings, template};
pub use schema::schema;
pub use valid::{MAX_DRAWS, ValidConfig};
