//! Records as people read them: tables, comparisons with published numbers, the HTML page.
//!
//! - [`metric`], [`summary`], [`table`]: the paper's tables as text, markdown and CSV.
//! - [`significance`], `rows`: mean and spread over seeds, significant differences, scores of single rows, names in print.
//! - `pairs`: claims about two methods, each with its interval and verdict.
//! - [`verdict`]: what was run and what it showed, in words.
//! - [`published`], [`mod@compare`]: published numbers beside measured ones.
//! - [`page`]: one self-contained `report.html`.
//!
//! Nothing here trains, prints or reads a clock: the same record gives the same bytes.

mod compare;
mod metric;
mod page;
mod pairs;
mod published;
mod rows;
mod significance;
mod summary;
mod table;
mod verdict;

pub(crate) use compare::{Comparison, compare};
pub(crate) use page::write_html;
pub use pairs::Judged;
pub(crate) use pairs::{Claim, judge, render_pairs};
pub(crate) use published::Published;
pub(crate) use rows::RowScores;
pub(crate) use summary::{Summary, csv_metrics, headline_metrics};
pub(crate) use table::{render_csv, render_markdown, render_runs, render_text};
pub(crate) use verdict::Said;
