//! Whole reproductions: GLUE and the six reasoning sets, from data to report, in one process or in many.
//!
//! | file | what |
//! |---|---|
//! | `kind` | the two suites with their defaults, and how much a profile runs |
//! | `task` | a task of either suite, from files to token ids |
//! | `options`, `arms` | what the command line sets; patches of settings side by side |
//! | `settings` | resolved settings, and what the output folder keeps of them |
//! | `dry_run` | runs, parameters and memory before anything is read |
//! | `plan` | all runs with what each needs, and the files of a plan |
//! | `start`, `prepare` | from options to a plan on disk; tasks as runs need them |
//! | `worker`, `claim` | one run or all of them; which worker has which |
//! | `one_run` | a run, an ensemble of runs, answers to another set (out of distribution) |
//! | `collect`, `summary` | the report of whatever is finished |
//! | `run` | all of it in one process; the state of a plan |
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
mod prepare;
mod run;
mod settings;
mod start;
mod summary;
mod task;
#[cfg(test)]
mod tests;
mod worker;

pub use arms::Arms;
pub use claim::WorkerName;
pub use cluster::{Cluster, Engine, Job};
pub use collect::{SuiteOutcome, collect};
pub use dry_run::{ArmsDryRun, DryRun, PlannedMemory, PlannedMethod, PlannedModel};
pub use kind::{Profile, Suite};
pub use options::SuiteOptions;
pub use plan::{Plan, PlannedRun, planned_runs};
pub use run::{RunState, RunStatus, run_suite, status, write_plan};
pub use worker::{DEAD_AFTER, Step, Worker, WorkerOptions};
