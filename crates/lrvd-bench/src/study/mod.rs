//! Studies: one question each, answered by training a few settings side by side.
//!
//! | File | Holds |
//! |---|---|
//! | `design` | [`Study`], [`Claim`], [`Arm`], [`Column`], [`Figure`]: what a study is |
//! | `recipe` | the settings that all arms begin with, and [`Size`] |
//! | `evidence` | [`Evidence`]: every number by arm, task and seed; paired differences |
//! | `verdict` | [`Judgement`]: holds, fails, cannot be said here |
//! | `options`, `run` | what the command line asks for; the runs |
//! | `page`, `figure` | CSV, page and images |
//! | `orders` | analyses that cut a trained model: energy, held-out loss over ranks |
//! | `studies` | one file per study |
//!
//! # How to add a study
//!
//! 1. A file in `studies` with `pub(super) const STUDY: Study = Study { ... }`, and its name in
//!    [`STUDIES`]. [`Study::arms`] returns what is trained: each [`Arm`] is a label, a method by its
//!    key and settings as `--set` takes them, on top of the recipe or of a preset.
//! 2. Each [`Claim`] has a function that looks at the [`Evidence`] and judges. Ask for paired
//!    differences ([`Evidence::difference`]) and let [`Paired::below`] and [`Paired::above`] decide:
//!    a difference counts from two standard errors on.
//! 3. Where records are not enough, [`Study::analysis`]: it gets every [`Trained`] model with its data
//!    before it is forgotten and returns numbers, which stand in the evidence like all others. It runs
//!    once per run; what it found lies beside the record, so that a study can be resumed.
//!
//! No loop is here: an arm is a suite of its own in `OUT/arms/LABEL`, and goes on where it stopped.
//!
//! [`Trained`]: crate::suite::Trained

mod design;
mod error;
mod evidence;
mod figure;
mod options;
mod orders;
mod page;
mod recipe;
mod run;
mod studies;
#[cfg(test)]
mod tests;
mod verdict;

pub use design::{Arm, Base, Claim, Column, Curves, Figure, Study};
pub use error::StudyError;
pub use evidence::{Evidence, Observation, Paired, Quantity};
pub use options::StudyOptions;
pub use recipe::Size;
pub use run::{ClaimOutcome, StudyOutcome, StudyPlan, plan_study, run_study};
pub use studies::{STUDIES, named};
pub use verdict::{Judgement, Verdict};
