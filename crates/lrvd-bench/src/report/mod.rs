//! What does a run leave behind, and how is it read by people and by programs?
//!
//! - [`record`] and [`checkpoint`]: the schema of `results.json` (`schema_version` 2).
//! - [`files`] and [`lines`]: reading, writing, hashing; `ranks.jsonl` and the predictions.
//! - [`spread`], [`metric`], [`summary`], [`table`]: mean and sample standard deviation over seeds,
//!   the paper's tables as text, markdown and CSV.
//! - [`published`], [`mod@compare`]: published numbers beside measured ones.
//! - [`html`]: one self-contained `report.html`.
//! - [`names`], `family`: what a module path or a task key is called in print, and which methods are of a kind.
//!
//! Nothing here trains, prints or reads a clock: the same record gives the same bytes.

pub mod checkpoint;
pub mod compare;
pub mod error;
mod family;
pub mod files;
pub mod html;
pub mod lines;
pub mod metric;
pub mod names;
pub mod published;
pub mod real;
pub mod record;
pub mod spread;
pub mod summary;
pub mod table;

#[cfg(test)]
mod draws;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
pub(crate) mod sample_reasoning;

pub use checkpoint::{
    BinRecord, CheckpointRecord, Checkpoints, ElsewhereRecord, EnergyAuc, EnergyRecord, Metrics,
    Reliability, SelectiveRecord, SelectiveTarget, StatisticRecord,
};
pub use compare::{Comparison, ComparisonRow, compare};
pub use error::{PublishedError, ReportError};
pub(crate) use family::Family;
pub use files::{read_results, sha256_file, write_results, write_text};
pub use html::{render_html, write_html};
pub use lines::{JsonLines, PredictionLine, RankLine};
pub use metric::Metric;
pub use names::{ModuleName, task_label};
pub use published::{PUBLISHED_SEEDS, Published, PublishedRow};
pub use record::{
    DataFile, DataOrigin, EvalPoint, ModelRecord, ParameterCounts, RankBudget, RankCause,
    RankEvent, Results, RunRecord, RunStatus, SCHEMA_VERSION, SplitRecord, TaskData, Tool,
};
pub use spread::Spread;
pub use summary::{
    CheckpointChoice, Summary, csv_metrics, evaluated_draws, headline_metrics, table_draws,
};
pub use table::{render_csv, render_markdown, render_text};
