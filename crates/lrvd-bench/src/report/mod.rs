//! Reports of records: tables, comparisons with published numbers, the HTML page.
//!
//! A number goes from the record to the [`Summary`] and from there into tables and the page.
//!
//! - `metric`: the table of metrics with their formats. A new metric is one row.
//! - `summary`: every metric by checkpoint, method and task over seeds, computed once; scores of single rows.
//! - `table`: the paper's tables as text, markdown and CSV.
//! - `significance`: all pairs of methods in a column of a table, by the comparison of `lrvd_core::metrics`; `pairs`: claims
//!   about two methods, each with its interval and verdict; `procedures.md`: how both are tested.
//! - `findings`: sentences on the runs and their results; `names`: names in print.
//! - `published`, `compare`: published numbers beside measured ones.
//! - `plot`: calibration of one model as a picture; `page`: one self-contained `report.html`.
//!
//! Nothing here trains, prints or reads a clock: the same record gives the same bytes.

mod compare;
mod findings;
mod metric;
mod names;
mod page;
mod pairs;
mod plot;
mod published;
mod significance;
mod summary;
mod table;

pub(crate) use compare::{Comparison, compare};
pub(crate) use findings::Findings;
pub(crate) use page::Page;
pub use pairs::Verdict;
pub(crate) use pairs::{Claim, ModelPair, judge, judge_models, render_pairs};
pub(crate) use plot::curves;
pub(crate) use published::Published;
pub(crate) use summary::{RowScores, Summary};
pub(crate) use table::{render_csv, render_markdown, render_runs, render_text};
