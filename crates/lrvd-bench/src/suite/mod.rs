//! Whole reproductions: GLUE and the six reasoning sets, from data to report, in one process or in many.
//!
//! | file | content |
//! |---|---|
//! | `grid` | the two suites, options, the runs with the runs that each needs, a dry run, the files of a plan |
//! | `grid::arms` | settings side by side, each an experiment |
//! | `execute` | a plan on disk, the data of a task, one run or an ensemble of runs |
//! | `worker` | one run or all of them, claims on runs, states of runs |
//! | `collect` | the report of the finished runs |

mod collect;
mod execute;
mod grid;
#[cfg(test)]
mod tests;
mod worker;

pub use collect::{SuiteOutcome, collect};
pub use execute::write_plan;
pub use grid::{Arms, DryRun, Plan, PlannedMethod, PlannedRun, Profile, Suite, SuiteOptions};
pub use worker::{
    DEAD_AFTER, RunState, RunStatus, Step, Worker, WorkerName, WorkerOptions, run_suite, status,
};
