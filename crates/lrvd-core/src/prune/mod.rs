//! Pruning: the rank components that are noise, when they are looked for, and what is kept.
//!
//! [`statistic`] gives one number per rank, [`rule`] compares it with a threshold and says what to keep,
//! [`schedule`] says at which steps to ask, [`path`] compares models of several ranks on held-out rows.

pub mod path;
pub mod rule;
pub mod schedule;
pub mod statistic;

pub use path::{PairedDifference, PathPoint, PathTolerance, RankPath};
pub use rule::{PruneRule, RankSummary};
pub use schedule::PruneSchedule;
pub use statistic::{StatisticAggregate, StatisticLogVariance, StatisticOptions, rank_statistic};
