//! Timed steps with a heading.

use std::time::Instant;

use anyhow::{Context, Result};

/// How a step ended that did not fail.
pub(crate) enum Outcome {
    /// It ran.
    Done,
    /// It could not run; why, and what would change that.
    Skipped(String),
}

/// Runs one step under its name and prints its wall time, or why it was skipped.
pub(crate) fn stage(name: &str, step: impl FnOnce() -> Result<Outcome>) -> Result<()> {
    eprintln!("\n== {name}");
    let begun = Instant::now();
    match step().with_context(|| format!("stage `{name}`"))? {
        Outcome::Done => eprintln!("== {name}: ok, {:.1} s", begun.elapsed().as_secs_f64()),
        Outcome::Skipped(reason) => eprintln!("== {name}: skipped, {reason}"),
    }
    Ok(())
}
