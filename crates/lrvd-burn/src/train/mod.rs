//! Training: the loop, checkpoints, resume and prediction, for any model with adapters.
//!
//! The loop is our own rather than burn-train's, whose checkpoints are written per epoch without
//! the data position: a run here continues bit for bit on the CPU, also across a prune.

mod allocator;
mod bayes_lora;
mod checkpoint;
mod choice;
mod config;
mod data;
mod fit;
mod lora;
mod method;
mod order;
mod pace;
mod predict;
mod rotation;
mod run;
mod search;
mod stages;
mod state;
mod step;
mod tokens;
mod watch;

pub use allocator::{BudgetAllocator, orthogonality};
pub use bayes_lora::{BayesLoraMethod, OptimizerOnPrune, Pruning};
pub use checkpoint::{Checkpoints, latest_checkpoint, load_checkpoint};
pub use choice::{
    Choice, ChoicePoint, HeldOutLosses, LossMeasure, MIN_HELD_OUT, calibrated_losses,
};
pub use config::TrainConfig;
pub use data::{Batch, Examples, Model, Rows, Subset, Targets, negative_log_likelihood};
pub use fit::Outcome;
pub use lora::{AdaLora, Lora};
pub use method::{
    CrossFitted, Fitted, Fitting, Method, MethodState, Setup, StepContext, StepState, UpdatePhase,
};
pub use order::{
    Bucketing, LastBatch, OrderConfig, OrderState, Ordered, evaluation_batches, restore_order,
};
pub use pace::Smooth;
pub use predict::{
    ClassAnswer, DrawPolicy, Inputs, PassWatch, Prediction, ScoreAnswer, report_progress,
};
pub use rotation::rotate_to_singular_basis;
pub use run::Run;
pub(crate) use run::{peft_template, read_adapter, write_adapter};
pub use search::{Direction, RankSearch, choose_ranks, directions, keep};
pub use state::{
    BestInfo, BestModel, EvalPoint, Evaluation, Journal, RankCause, RankEvent, TrainState,
};
pub use tokens::{TokenAnswers, token_answers};
pub use watch::{Event, Observer, Watch};
#[cfg(feature = "train")]
pub(crate) use {
    state::{RankMasks, ranks_in_use},
    step::{Phase, StepRules, likelihood, update},
};
