//! What a change must pass, cheapest first.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::workspace;
use crate::{process, test, tidy};

/// How a stage ended that did not fail.
enum Outcome {
    /// It ran.
    Done,
    /// It could not run; why, and what would change that.
    Skipped(String),
}

type Step = fn(&Path) -> Result<Outcome>;

/// Stages in order; the tests come last, so that their summary closes the output.
const STAGES: [(&str, Step); 7] = [
    ("format", format),
    ("tidy", |_| tidy::run(&[], false).map(|_| Outcome::Done)),
    ("spelling", spelling),
    ("licences", licences),
    ("lint", lint),
    ("docs", docs),
    ("test", |_| test::run(&[]).map(|_| Outcome::Done)),
];

/// Stages that run only when named, because they do not depend on the change alone.
const ON_REQUEST: [(&str, Step); 1] = [("advisories", advisories)];

/// The stages that can be named.
pub(crate) fn names() -> Vec<&'static str> {
    STAGES.iter().chain(&ON_REQUEST).map(|(name, _)| *name).collect()
}

/// Runs all stages or the named ones; the first failure ends it.
pub(crate) fn run(chosen: &[String]) -> Result<ExitCode> {
    let root = workspace::root()?;
    let begun = Instant::now();
    for (name, step) in STAGES.iter().chain(&ON_REQUEST) {
        let usual = chosen.is_empty() && STAGES.iter().any(|(n, _)| n == name);
        if usual || chosen.iter().any(|stage| stage == name) {
            stage(name, *step, &root)?;
        }
    }
    eprintln!("== check: ok, {:.1} s", begun.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// Runs one stage under its name and prints its wall time, or why it was skipped.
fn stage(name: &str, step: Step, root: &Path) -> Result<()> {
    eprintln!("\n== {name}");
    let begun = Instant::now();
    match step(root).with_context(|| format!("stage `{name}`"))? {
        Outcome::Done => eprintln!("== {name}: ok, {:.1} s", begun.elapsed().as_secs_f64()),
        Outcome::Skipped(reason) => eprintln!("== {name}: skipped, {reason}"),
    }
    Ok(())
}

fn format(root: &Path) -> Result<Outcome> {
    process::run(process::cargo(root).args(["fmt", "--all", "--check"])).map(|()| Outcome::Done)
}

fn spelling(root: &Path) -> Result<Outcome> {
    if !process::works(Command::new("typos").arg("--version")) {
        return Ok(missing("typos", "typos-cli"));
    }
    process::run(Command::new("typos").current_dir(root)).map(|()| Outcome::Done)
}

fn licences(root: &Path) -> Result<Outcome> {
    deny(root, &["licenses", "bans", "sources"])
}

fn advisories(root: &Path) -> Result<Outcome> {
    deny(root, &["advisories"])
}

fn deny(root: &Path, checks: &[&str]) -> Result<Outcome> {
    if !process::works(process::cargo(root).args(["deny", "--version"])) {
        return Ok(missing("cargo-deny", "cargo-deny"));
    }
    process::run(process::cargo(root).args(["deny", "check"]).args(checks)).map(|()| Outcome::Done)
}

fn missing(tool: &str, package: &str) -> Outcome {
    Outcome::Skipped(format!(
        "{tool} is not installed (`cargo install --locked {package}` installs it)"
    ))
}

fn lint(root: &Path) -> Result<Outcome> {
    let mut command = process::cargo(root);
    command.args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    process::run(&mut command).map(|()| Outcome::Done)
}

fn docs(root: &Path) -> Result<Outcome> {
    let mut command = process::cargo(root);
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut command).map(|()| Outcome::Done)
}
