//! What a change must pass, cheapest first.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{process, test, tidy, workspace};

/// Stages in order, each a command line, or ours; the tests come last, so that their summary closes the output.
const STAGES: [(&str, &str); 8] = [
    ("format", "cargo fmt --all --check"),
    ("tidy", ""),
    ("spelling", "typos"),
    ("licences", "cargo deny check licenses bans sources"),
    (ON_REQUEST, "cargo deny check advisories"),
    ("lint", "cargo clippy --workspace --all-targets -- --deny warnings"),
    ("docs", "cargo doc --workspace --no-deps --config build.rustdocflags=[\"-Dwarnings\"]"),
    ("test", ""),
];
/// Runs only when named, because it does not depend on the change alone.
const ON_REQUEST: &str = "advisories";
/// Tools that may be missing, and their packages: then a stage is skipped.
const TOOLS: [(&str, &str); 2] = [("typos", "typos-cli"), ("cargo deny", "cargo-deny")];

/// The stages that can be named.
pub(crate) fn names() -> Vec<&'static str> {
    STAGES.map(|(name, _)| name).to_vec()
}

/// Runs all stages or the named ones; the first failure ends it.
pub(crate) fn run(chosen: &[String]) -> Result<ExitCode> {
    let root = workspace::root()?;
    let begun = Instant::now();
    for (name, command) in STAGES {
        let usual = chosen.is_empty() && name != ON_REQUEST;
        if usual || chosen.iter().any(|stage| stage == name) {
            eprintln!("\n== {name}");
            let begun = Instant::now();
            match stage(&root, name, command).with_context(|| format!("stage `{name}`"))? {
                None => eprintln!("== {name}: ok, {:.1} s", begun.elapsed().as_secs_f64()),
                Some(reason) => eprintln!("== {name}: skipped, {reason}"),
            }
        }
    }
    eprintln!("== check: ok, {:.1} s", begun.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// Why a stage could not run, and what would change that; `None` if it ran.
fn stage(root: &Path, name: &str, line: &str) -> Result<Option<String>> {
    let command = |line: &str| {
        let mut words = line.split(' ');
        let mut command = match words.next() {
            Some("cargo") => process::cargo(root),
            program => Command::new(program.unwrap_or_default()),
        };
        command.current_dir(root).args(words);
        command
    };
    if let Some((tool, package)) = TOOLS.iter().find(|(tool, _)| line.starts_with(tool))
        && !process::works(command(tool).arg("--version"))
    {
        return Ok(Some(format!(
            "{package} is not installed (`cargo install --locked {package}` installs it)"
        )));
    }
    match name {
        "tidy" => tidy::run(&[], false).map(|_| None),
        "test" => test::run(&[], None).map(|_| None),
        _ => process::run(&mut command(line)).map(|()| None),
    }
}
