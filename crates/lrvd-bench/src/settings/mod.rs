//! Settings of a run: a table of one line each, presets, and layers over them from files and the command line.

mod config;
mod layers;
mod methods;
mod names;
mod presets;
mod resolve;
mod schema;
mod table;

pub use config::{
    AdaLoraSettings, BasePrecision, CheckpointChoice, ClassWeight, Config, LogVarianceSettings,
    MAX_DRAWS, PoolerMode, PredictionDraws, PruneSettings, RankSearchSettings, TrainingScheme,
    holdout_share,
};
#[cfg(test)]
pub(crate) use layers::evaluate_every;
pub use layers::{Layers, Origin};
pub use lrvd_burn::train::{Bucketing, LastBatch, OptimizerOnPrune, UpdatePhase};
#[cfg(test)]
pub(crate) use methods::GAMMA;
pub use methods::{
    ArdSettings, BbbPrior, BbbSettings, BbbWeight, BlobSettings, CLoraSettings, KlDirection,
    LaplaceLayers, LaplacePredictive, LaplacePrior, LaplaceSettings, LoraEnsembleSettings,
    MapSettings, McDropoutSettings, MethodSettings, MixtureSettings, NoiseToSignalSettings,
    Optimizers, ScalaBlSettings, SwagSettings, TfbCriterion, TfbSettings,
};
pub use names::{KlWeight, Preset, PromptSet, TargetModules, Training, WordingSettings};
pub(crate) use resolve::steps_of;
pub use resolve::{Facts, ModelFacts, Resolved};
pub use schema::{schema, template};
