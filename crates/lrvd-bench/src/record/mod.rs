//! Records: the schema of the files of a run.
//!
//! `classes` is what a model does to each class; `real` is for numbers that JSON cannot carry. Nothing here trains, prints or reads a clock: the same record gives the
//! same bytes.

mod classes;
mod real;
pub(crate) mod results;

#[cfg(test)]
pub(crate) mod sample;

pub use classes::{AverageRecord, ClassRecord, ClassReport, ConfusedRecord};
pub use lrvd_burn::train::{RankCause, RankEvent};
pub use results::{
    BaselineRecord, BinRecord, CheckpointRecord, Checkpoints, DataFile, DataOrigin, EnergyAuc,
    EnergyRecord, EvalPoint, Metrics, ModelRecord, OodRecord, ParameterCounts, PredictionLine,
    RankBudget, RankLine, Reliability, Results, RunRecord, RunStatus, SCHEMA_VERSION,
    SelectiveRecord, SelectiveTarget, SplitRecord, StatisticRecord, TaskData, Tool,
};
