//! All tests.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::{process, workspace};

/// Runs every test of the workspace, or what `arguments` select.
///
/// The runner comes last, so that its summary closes the output. With arguments it runs alone.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    run_with(arguments, None)
}

/// The same with a variable set for the tests.
pub(crate) fn run_with(arguments: &[String], variable: Option<(&str, &str)>) -> Result<ExitCode> {
    let root = workspace::root()?;
    let nextest = process::works(process::cargo(&root).args(["nextest", "--version"]));
    if !nextest {
        eprintln!("cargo-nextest is not installed: running `cargo test`");
    }
    let whole = arguments.is_empty();
    if nextest && whole {
        process::run(process::cargo(&root).args(["test", "--workspace", "--doc"]))?;
    }
    let mut tests = runner(&root, nextest);
    process::run(tests.args(scope(arguments)).args(arguments).envs(variable))?;
    Ok(ExitCode::SUCCESS)
}

fn runner(root: &Path, nextest: bool) -> std::process::Command {
    let mut command = process::cargo(root);
    if nextest {
        command.args(["nextest", "run", "--no-fail-fast"]);
    } else {
        command.args(["test", "--no-fail-fast"]);
    }
    command
}

/// The whole workspace, unless the arguments name packages.
fn scope(arguments: &[String]) -> &'static [&'static str] {
    let before = arguments.split(|a| a == "--").next().unwrap_or_default();
    let names_packages = |a: &String| {
        a == "-p" || a == "--package" || a.starts_with("--package=") || a.starts_with("-p=")
    };
    if before.iter().any(names_packages) { &[] } else { &["--workspace"] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn packages_replace_the_workspace() {
        assert_eq!(scope(&words("-p lrvd-core gauge")), [""; 0]);
        assert_eq!(scope(&words("gauge -- -p")), ["--workspace"]);
        assert_eq!(scope(&[]), ["--workspace"]);
    }
}
