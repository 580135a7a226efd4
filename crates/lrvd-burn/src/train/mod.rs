//! Training: the loop, checkpoints, resume and prediction, for any model with adapters.
//!
//! The loop is our own rather than burn-train's, whose checkpoints are written per epoch without
//! the data position: a run here continues bit for bit on the CPU, also across a prune.

mod adalora;
mod batch;
mod batches;
mod bayes_lora;
mod checkpoint;
mod config;
mod digest;
mod draw_policy;
mod examples;
mod fit;
mod inputs;
mod lora;
mod method;
mod model;
mod observed;
mod order;
mod predict;
mod progress;
mod rank_path;
mod run;
mod save;
mod search;
mod spared;
mod state;
mod step;
mod tensors;
mod tokens;
mod watch;

pub use adalora::{AdaLora, MaskPlacement};
pub use batch::{Batch, Targets, TokenTargets, negative_log_likelihood};
pub use batches::{Batches, Ordered, OrderedState};
pub use bayes_lora::{BayesLora, OptimizerOnPrune, Phase, PrunePlacement, Pruning, Turn};
pub use checkpoint::{Checkpoints, latest_checkpoint, load_checkpoint};
pub use config::{MAX_SEED, Plan, TrainConfig, check_seed};
pub use draw_policy::DrawPolicy;
pub use examples::{Examples, LabelledExamples, LabelledRows, Rows, Subset};
pub use fit::{Observer, Outcome, fit};
pub use inputs::{Inputs, PassWatch};
pub use lora::Lora;
pub use method::{Fitting, Method, MethodState, RankChange, StepSizes, StepState, Terms};
pub use model::Model;
pub use observed::Observed;
pub use order::{
    Bucketing, EpochOrder, LastBatch, OrderConfig, OrderState, evaluation_batches, restore_order,
};
pub use predict::{ClassAnswer, DrawSeed, Logits, PredictionDraws, ScoreAnswer};
pub use progress::{Event, ProgressSink, Silent};
pub use rank_path::{Direction, calibrated_losses, directions, keep, rank_path, row_losses};
pub use run::Run;
pub use save::load_adapter;
pub use search::RankSearch;
pub use state::{
    BestInfo, BestModel, Choice, ChoicePoint, CutModel, EvalPoint, Evaluation, Journal, RankCause,
    RankEvent, TrainState,
};
#[cfg(feature = "train")]
pub(crate) use step::{StepContext, part_key, update};
pub use tokens::{TokenAnswers, token_answers};
pub use watch::Watch;
