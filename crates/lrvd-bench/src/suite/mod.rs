//! Whole reproductions: GLUE and the six reasoning sets, from data to report, in one process or in many.
//!
//! | file | content |
//! |---|---|
//! | `grid` | the two suites, their defaults in each profile, the options that change them |
//! | `arms` | settings side by side, each an experiment |
//! | `runs`, `plan` | runs with the runs that each needs; the files of a plan |
//! | `prepare` | from options to a dry run, or to a plan on disk |
//! | `data` | a task's token ids, and the questions of other sets |
//! | `execute` | one run, or an ensemble of runs |
//! | `worker` | one run or all of them, claims on runs, states of runs |
//! | `collect` | the report of the finished runs |
//! | `cluster` | jobs of Slurm and Kubernetes |

mod arms;
mod cluster;
mod collect;
mod data;
mod execute;
mod grid;
mod plan;
mod prepare;
mod runs;
#[cfg(test)]
mod tests;
mod worker;

pub use arms::Arms;
pub use cluster::{Cluster, Engine, Job};
pub use collect::{Headline, SuiteOutcome, collect};
pub use grid::{Profile, Suite, SuiteOptions};
pub use plan::{Plan, planned_runs};
pub use prepare::{ArmsDryRun, DryRun, PlannedMethod, PlannedModel, write_plan};
pub use runs::PlannedRun;
pub use worker::{
    DEAD_AFTER, RunState, RunStatus, Step, Worker, WorkerName, WorkerOptions, run_suite, status,
};
