//! What a change must pass, cheapest first.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{process, test, tidy, workspace};

/// What a stage does.
enum Step {
    Own(fn() -> Result<ExitCode>),
    /// Cargo with arguments, separated by spaces.
    Cargo(&'static str),
    /// A program, its package and its arguments; it is skipped where it is not installed. A subcommand of cargo is `cargo NAME`.
    Tool(&'static str, &'static str, &'static [&'static str]),
}

use Step::{Cargo, Own, Tool};

/// Stages in order; the tests come last, so that their summary closes the output.
const STAGES: [(&str, Step); 7] = [
    ("format", Cargo("fmt --all --check")),
    ("tidy", Own(|| tidy::run(&[], false))),
    ("spelling", Tool("typos", "typos-cli", &[])),
    ("licences", Tool("cargo deny", "cargo-deny", &["check", "licenses", "bans", "sources"])),
    ("lint", Cargo("clippy --workspace --all-targets -- --deny warnings")),
    ("docs", Cargo("doc --workspace --no-deps --config build.rustdocflags=[\"-Dwarnings\"]")),
    ("test", Own(|| test::run(&[]))),
];

/// Stages that run only when named, because they do not depend on the change alone.
const ON_REQUEST: [(&str, Step); 1] =
    [("advisories", Tool("cargo deny", "cargo-deny", &["check", "advisories"]))];

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
            eprintln!("\n== {name}");
            let begun = Instant::now();
            match step.run(&root).with_context(|| format!("stage `{name}`"))? {
                None => eprintln!("== {name}: ok, {:.1} s", begun.elapsed().as_secs_f64()),
                Some(reason) => eprintln!("== {name}: skipped, {reason}"),
            }
        }
    }
    eprintln!("== check: ok, {:.1} s", begun.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

impl Step {
    /// Why it could not run, and what would change that; `None` if it ran.
    fn run(&self, root: &Path) -> Result<Option<String>> {
        match self {
            Own(run) => run().map(|_| None),
            Cargo(arguments) => {
                let mut command = process::cargo(root);
                process::run(command.args(arguments.split(' '))).map(|()| None)
            }
            Tool(name, package, arguments) => {
                let command = || match name.strip_prefix("cargo ") {
                    Some(name) => {
                        let mut command = process::cargo(root);
                        command.arg(name);
                        command
                    }
                    None => Command::new(name),
                };
                if !process::works(command().arg("--version")) {
                    return Ok(Some(format!(
                        "{package} is not installed (`cargo install --locked {package}` installs it)"
                    )));
                }
                process::run(command().current_dir(root).args(*arguments)).map(|()| None)
            }
        }
    }
}
