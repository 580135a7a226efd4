//! Pruning: the rank components that are noise, when they are looked for, and what is kept.
//!
//! [`statistic`] gives one number per rank, [`rule`] compares it with a threshold, [`plan`] holds
//! the answer for all adapters, [`schedule`] says at which steps to ask.

pub mod plan;
pub mod rule;
pub mod schedule;
pub mod statistic;

pub use plan::{AdapterPlan, PrunePlan, RankSummary, select_rows};
pub use rule::PruneRule;
pub use schedule::PruneSchedule;
pub use statistic::{StatisticLogVariance, StatisticOptions, rank_statistic};
