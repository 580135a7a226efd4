//! One `report.html` that opens without a network: inline styles, inline drawings of our own, no font, no library.
//!
//! The page works without JavaScript; the script adds tooltips, a switch between light and dark, and opens folded
//! parts for printing. All text that comes from a record is escaped. The same record gives the same bytes.
//!
//! - `page`: the frame; `task`, `notes`, `cards`, `table`: its parts.
//! - `svg`, `scale`: drawing; `line_chart`, `scatter`, `heatmap`, `rank_grid`, `reliability`, `statistic`, `energy`,
//!   `bars`: one kind of figure each.
//! - `view`: what the figures draw, gathered from the runs.

mod bars;
mod cards;
mod energy;
mod heatmap;
mod line_chart;
mod notes;
mod page;
mod rank_grid;
mod reliability;
mod scale;
mod scatter;
mod statistic;
mod style;
mod svg;
mod table;
mod task;
mod view;

#[cfg(test)]
mod tests;

pub use page::{render_html, write_html};
