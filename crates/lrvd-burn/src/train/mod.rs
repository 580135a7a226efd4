//! Training: the loop, checkpoints, resume and prediction, for any model with adapters.
//!
//! The loop is our own rather than burn-train's, whose checkpoints are written per epoch without
//! the data position: a run here continues bit for bit on the CPU, also across a prune.

mod adalora;
mod bayes_lora;
mod checkpoint;
mod config;
mod data;
mod draw_policy;
mod fit;
mod inputs;
mod lora;
mod method;
mod observed;
mod order;
mod predict;
mod progress;
mod rank_path;
mod run;
mod search;
mod state;
mod step;
mod tokens;
mod watch;

pub use adalora::AdaLora;
pub use bayes_lora::{BayesLora, OptimizerOnPrune, Pruning, Turn};
pub use checkpoint::{Checkpoints, latest_checkpoint, load_checkpoint};
pub use config::{MAX_SEED, TrainConfig, check_seed};
pub use data::{
    Batch, Examples, LabelledExamples, LabelledRows, Model, Rows, Subset, Targets, TokenTargets,
    negative_log_likelihood,
};
pub use draw_policy::DrawPolicy;
pub use fit::{Observer, Outcome};
pub use inputs::{Inputs, PassWatch};
pub use lora::Lora;
pub use method::{
    ConstantTail, Fitted, Fitting, Method, MethodState, Placement, RankChange, Setup, StepSizes,
    StepState, Terms,
};
pub use observed::Observed;
pub use order::{
    Batches, Bucketing, EpochOrder, LastBatch, OrderConfig, OrderState, Ordered, OrderedState,
    evaluation_batches, restore_order,
};
pub use predict::{ClassAnswer, DrawSeed, Logits, PredictionDraws, ScoreAnswer};
pub use progress::{Event, ProgressSink, Silent};
pub use rank_path::{Direction, calibrated_losses, directions, keep, rank_path, row_losses};
pub(crate) use run::write_adapter;
pub use run::{Run, load_adapter};
pub use search::RankSearch;
pub use state::{
    BestInfo, BestModel, Choice, ChoicePoint, CutModel, EvalPoint, Evaluation, InUse, Journal,
    RankCause, RankEvent, TrainState,
};
pub use tokens::{TokenAnswers, token_answers};
pub use watch::Watch;
#[cfg(feature = "train")]
pub(crate) use {
    state::ranks_in_use,
    step::{Part, StepContext, update},
};
