//! Settings of a run: a table of one line each, presets, and layers over them from files and the command line.

mod config;
mod layers;
mod methods;
mod presets;
mod prompt;
mod rank_search;
mod schema;
mod table;
mod word;

pub use config::{
    AdaLoraSettings, BasePrecision, CheckpointChoice, Config, LogVarianceSettings, MAX_DRAWS,
    PoolerMode, PruneSettings, TrainingScheme,
};
pub use layers::Layers;
pub use lrvd_burn::train::{
    Bucketing, LastBatch, MaskPlacement, OptimizerOnPrune, PredictionDraws, PrunePlacement,
};
pub use methods::{
    ArdSettings, BbbPrior, BbbSettings, BbbWeight, BlobSettings, CLoraSettings, KlDirectionSetting,
    LaplaceLayers, LaplacePredictive, LaplacePrior, LaplaceSettings, LoraEnsembleSettings,
    MapSettings, McDropoutSettings, MethodSettings, MixtureSettings, NoiseToSignalSettings,
    Optimizers, ScalaBlSettings, SwagSettings, TfbCriterion, TfbSettings,
};
pub use presets::Preset;
pub use prompt::{PromptSet, Training, WordingSettings, template};
pub use rank_search::{RankSearchSettings, holdout_share};
pub use schema::schema;
pub use word::{KlWeight, TargetModules};
