//! Records as people read them: tables, comparisons with published numbers, the HTML page.
//!
//! - [`spread`], [`metric`], [`summary`], [`table`]: mean and sample standard deviation over seeds,
//!   the paper's tables as text, markdown and CSV.
//! - [`published`], [`mod@compare`]: published numbers beside measured ones.
//! - [`page`]: one self-contained `report.html`.
//! - [`names`], `family`: what a module path or a task key is called in print, and which methods are of a kind.
//!
//! Nothing here trains, prints or reads a clock: the same record gives the same bytes.

pub mod compare;
pub mod error;
mod family;
pub mod metric;
pub mod names;
pub mod page;
pub mod published;
pub mod spread;
pub mod summary;
pub mod table;

pub use compare::{Comparison, ComparisonRow, compare};
pub use error::PublishedError;
pub use metric::Metric;
pub use names::{ModuleName, task_label};
pub use page::{render_html, write_html};
pub use published::{PUBLISHED_SEEDS, Published, PublishedRow};
pub use spread::Spread;
pub use summary::{
    CheckpointChoice, Summary, csv_metrics, evaluated_draws, headline_metrics, table_draws,
};
pub use table::{render_csv, render_markdown, render_text};
