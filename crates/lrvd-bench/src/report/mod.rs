//! Records as people read them: tables, comparisons with published numbers, the HTML page.
//!
//! - [`spread`], [`metric`], [`summary`], [`table`]: mean and sample standard deviation over seeds,
//!   the paper's tables as text, markdown and CSV.
//! - [`significance`], `rows`: which differences are significant, and the scores of single rows that it looks at.
//! - `pairs`: claims about two methods, each with its interval and verdict.
//! - `ran`, `needed`, [`verdict`]: what was run and what it showed, in words.
//! - [`published`], [`mod@compare`]: published numbers beside measured ones.
//! - [`page`]: one self-contained `report.html`.
//! - [`names`], `family`: what a module path or a task key is called in print, and which methods are of a kind.
//!
//! Nothing here trains, prints or reads a clock: the same record gives the same bytes.

mod compare;
mod family;
mod metric;
mod names;
mod needed;
mod page;
mod pairs;
mod published;
mod ran;
mod rows;
mod significance;
mod spread;
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
