//! The program as a user meets it: output, exit codes, files.
#![allow(clippy::unwrap_used, missing_docs)]

mod bench;
mod changed;
mod choices;
mod config;
mod exports;
mod first_contact;
#[cfg(feature = "hub")]
mod hub;
mod language;
mod lengths;
mod log;
mod ood;
mod output;
mod pins;
mod rejections;
mod resume;
mod serve;
mod support;
mod sweep;
mod worded;
mod workflow;
