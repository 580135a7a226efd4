//! The GLUE reproduction: which runs, in which order, and what is left on disk.
//!
//! | file | what |
//! |---|---|
//! | `options` | what the command line asks for |
//! | `profile` | `quick` and `paper` |
//! | `plan` | the runs, the dry run |
//! | `settings` | the resolved settings of an output folder |
//! | `one_run` | one fine-tuning run: where it lies, its record |
//! | `run` | all runs of a task in the order that rank matching needs |
//! | `clock` | time stamps |

mod clock;
mod one_run;
mod options;
mod plan;
mod profile;
mod run;
mod settings;

pub use options::GlueOptions;
pub use plan::{Plan, PlannedRun};
pub use profile::Profile;
pub use run::{GlueOutcome, open_backbone, planned, resolve_config, run_glue};
