//! One `report.html` that opens without a network: inline styles, inline drawings of our own, no font, no library.
//!
//! The page works without JavaScript; the script adds tooltips, a switch between light and dark, and opens folded
//! parts for printing. All text that comes from a record is escaped. The same record gives the same bytes.
//!
//! A page of the paper's first three methods asks about ranks and gives each method a colour. One of more methods asks
//! about uncertainty: colours tell families, names stand beside marks, and its tables obey two switches.
//!
//! - `page`: the frame; `results`, `task`, `ranks`, `notes`: its parts.
//! - `cards`, `leaders`, `table`, `method_table`, `published`, `elsewhere`: cards and tables.
//! - `svg`, `scale`, `labels`: drawing; `line_chart`, `scatter`, `tradeoff`, `sweep`, `selective`, `heatmap`,
//!   `rank_grid`, `reliability`, `statistic`, `energy`, `bars`: one kind of figure each.
//! - `view`: what the figures draw, gathered from the runs, and the look of every method.

mod bars;
mod cards;
mod elsewhere;
mod energy;
mod heatmap;
mod labels;
mod leaders;
mod line_chart;
mod method_table;
mod notes;
mod page;
mod published;
mod rank_grid;
mod ranks;
mod reliability;
mod results;
mod scale;
mod scatter;
mod selective;
mod statistic;
mod style;
mod svg;
mod sweep;
mod table;
mod task;
mod tradeoff;
mod view;

#[cfg(test)]
mod tests;

pub use page::{render_html, write_html};
