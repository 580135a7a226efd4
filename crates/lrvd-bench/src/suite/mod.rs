//! Whole reproductions: GLUE and the six reasoning sets, one command each, from data to report.
//!
//! | file | what |
//! |---|---|
//! | `kind` | the two suites, and what each runs by default |
//! | `task` | a task of either suite, from files to token ids |
//! | `profile` | how much is run, and what that changes about a preset |
//! | `options`, `settings` | what the command line asks for, and what decides the numbers |
//! | `dry_run` | what a run would take, without making it |
//! | `plan` | all runs, in the order that matching and ensembles need |
//! | `one_run`, `ensemble`, `ood` | a run, runs made of runs, answers to another set (out of distribution) |
//! | `arms` | settings side by side, compared in pairs |
//! | `run`, `summary` | the whole, and the files that sum it up |

mod arms;
mod clock;
mod dry_run;
mod ensemble;
mod kind;
mod one_run;
mod ood;
mod options;
mod plan;
mod profile;
mod run;
mod settings;
mod summary;
mod task;

pub use arms::{Arms, ArmsOutcome, ArmsPlan, planned_arms, run_arms};
pub use dry_run::{DryRun, PlannedMemory, PlannedMethod, PlannedModel};
pub use kind::Suite;
pub use options::SuiteOptions;
pub use plan::{Plan, PlannedRun};
pub use profile::Profile;
pub use run::{SuiteOutcome, planned, run_suite};
pub use task::SuiteTask;
