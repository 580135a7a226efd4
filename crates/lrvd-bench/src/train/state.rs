//! Everything that changes while a run trains.

use std::collections::BTreeMap;

use lrvd_burn::optimizer::AdamW;
use serde::{Deserialize, Serialize};

use crate::backbone::TaskModel;
use crate::data::batch::OrderState;
use crate::record::{EvalPoint, RankEvent};

/// The model at its best validation score so far.
#[derive(Clone, Debug)]
pub struct BestModel {
    /// A copy of the model, compact.
    pub model: TaskModel,
    /// What is known of it.
    pub info: BestInfo,
}

/// Facts about the best model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestInfo {
    /// Completed steps.
    pub step: usize,
    /// Validation score.
    pub score: f64,
    /// Ranks by module path.
    pub ranks: BTreeMap<String, usize>,
    /// Statistics of the directions pruned before it, by module path.
    pub removed: BTreeMap<String, Vec<f64>>,
}

/// The part of the state that is plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// Evaluations so far.
    pub history: Vec<EvalPoint>,
    /// Rank changes so far.
    pub rank_events: Vec<RankEvent>,
    /// Seconds in training steps.
    pub train_seconds: f64,
    /// Seconds in evaluations.
    pub evaluate_seconds: f64,
    /// Largest resident memory seen, bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Statistics of pruned directions at the time they went, by module path.
    pub removed: BTreeMap<String, Vec<f64>>,
    /// The next update has rate 0: the optimiser was rebuilt.
    pub skip_next_update: bool,
}

/// Model, optimiser and position of one run.
#[derive(Debug)]
pub struct TrainState {
    /// The model.
    pub model: TaskModel,
    /// The optimiser.
    pub optimizer: AdamW,
    /// Completed steps.
    pub done: usize,
    /// Position in the data.
    pub order: OrderState,
    /// Best model so far.
    pub best: Option<BestModel>,
    /// Numbers.
    pub journal: Journal,
}
