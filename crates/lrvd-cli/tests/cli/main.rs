//! The program as a user meets it: output, exit codes, files.
#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(target_os = "linux")]
mod faults;
mod guide;
#[cfg(feature = "hub")]
mod hub;
mod pins;
mod script;
mod serve;
mod signals;
mod streams;
mod support;
mod terminal;
