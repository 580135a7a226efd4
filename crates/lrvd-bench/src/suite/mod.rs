//! Whole reproductions: GLUE and the six reasoning sets, one command each, from data to report.
//!
//! | file | what |
//! |---|---|
//! | `kind` | the two suites with their defaults, and how much a profile runs |
//! | `task` | a task of either suite, from files to token ids |
//! | `options` | what the command line sets |
//! | `plan` | all runs, in the order that matching and ensembles need, and what they would take |
//! | `one_run` | a run, an ensemble of runs, answers to another set (out of distribution) |
//! | `arms` | settings side by side, compared in pairs |
//! | `run`, `summary` | the whole, its resolved settings, and the files that sum it up |

mod arms;
mod kind;
mod one_run;
mod options;
mod plan;
mod run;
mod summary;
mod task;
#[cfg(test)]
mod tests;

pub use arms::{Arms, ArmsOutcome, ArmsPlan, planned_arms, run_arms};
pub use kind::{Profile, Suite};
pub use options::SuiteOptions;
pub use plan::{DryRun, Plan, PlannedMemory, PlannedMethod, PlannedModel, PlannedRun};
pub use run::{SuiteOutcome, planned, run_suite};
