//! What a run leaves behind: the schema of its files.
//!
//! - `results`, `checkpoint`: the schema of `results.json` (`schema_version` 3).
//! - `files`: reading and writing it; `lines`: `ranks.jsonl` and the predictions.
//! - `real`: numbers that JSON cannot carry.
//!
//! Nothing here trains, prints or reads a clock: the same record gives the same bytes.

pub(crate) mod checkpoint;
mod files;
mod lines;
mod real;
pub(crate) mod results;

#[cfg(test)]
pub(crate) mod sample;

pub use checkpoint::{
    BinRecord, CheckpointRecord, Checkpoints, EnergyAuc, EnergyRecord, Metrics, OodRecord,
    Reliability, SelectiveRecord, SelectiveTarget, StatisticRecord,
};
pub use files::{read_results, write_results};
pub use lines::{JsonLines, PredictionLine, RankLine};
pub use lrvd_burn::train::{RankCause, RankEvent};
pub use results::{
    DataFile, DataOrigin, EvalPoint, ModelRecord, ParameterCounts, RankBudget, Results, RunRecord,
    RunStatus, SCHEMA_VERSION, SplitRecord, TaskData, Tool,
};
