//! Pruning: the statistic of rank components, the rule that keeps some of them, and its schedule.
//!
//! [`statistic`] gives one number per rank, [`rule`] compares it with a threshold and returns what to keep, at the
//! steps of a [`PruneSchedule`]; [`path`] compares models of several ranks on held-out rows.

pub mod path;
pub mod rule;
pub mod statistic;

pub use path::{PairedDifference, PathPoint, PathTolerance, RankPath};
pub use rule::{PruneRule, PruneSchedule, RankSummary};
pub use statistic::{StatisticAggregate, StatisticLogVariance, StatisticOptions, rank_statistic};
