//! Whole reproductions: GLUE and the six reasoning sets, from data to report, in one process or in many.
//!
//! | file | what |
//! |---|---|
//! | `kind` | the two suites with their defaults, and how much a profile runs |
//! | `task` | a task of either suite, from files to token ids, with the questions of other sets |
//! | `options`, `arms` | what the command line sets, resolved; patches of settings side by side |
//! | `runs`, `plan` | all runs with what each needs; the files of a plan |
//! | `dry_run` | runs, parameters and memory before anything is read |
//! | `start` | from options to a plan on disk |
//! | `worker`, `claim` | one run or all of them, and the state of each; which worker has which |
//! | `one_run` | a run, an ensemble of runs |
//! | `collect` | the report of whatever is finished |
//! | `cluster` | jobs of Slurm and Kubernetes |

mod arms;
mod claim;
mod cluster;
mod collect;
mod dry_run;
mod kind;
mod one_run;
mod options;
mod plan;
mod runs;
mod start;
mod task;
#[cfg(test)]
mod tests;
mod worker;

pub use arms::Arms;
pub use claim::WorkerName;
pub use cluster::{Cluster, Engine, Job};
pub use collect::{Headline, SuiteOutcome, collect};
pub use dry_run::{ArmsDryRun, DryRun, PlannedMethod, PlannedModel};
pub use kind::{Profile, Suite};
pub use options::SuiteOptions;
pub use plan::{Plan, planned_runs};
pub use runs::PlannedRun;
pub use worker::{
    DEAD_AFTER, RunState, RunStatus, Step, Worker, WorkerOptions, run_suite, status, write_plan,
};
