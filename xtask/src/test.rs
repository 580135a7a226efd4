//! All tests, and some of them with what they need.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::{forward, process, workspace};

/// Runs every test of the workspace, or what `arguments` select, with a `variable` set for them.
///
/// The runner comes last, so that its summary closes the output. With arguments it runs alone.
pub(crate) fn run(arguments: &[String], variable: Option<(&str, &str)>) -> Result<()> {
    let root = workspace::root()?;
    let nextest = process::works(process::cargo(&root).args(["nextest", "--version"]));
    if !nextest {
        eprintln!("cargo-nextest is not installed: running `cargo test`");
    } else if arguments.is_empty() {
        process::run(process::cargo(&root).args(["test", "--workspace", "--doc"]))?;
    }
    let runner = if nextest { ["nextest", "run"] } else { ["test", "--no-fail-fast"] };
    let mut own = arguments.iter().take_while(|argument| *argument != "--");
    let names_packages = own.any(|a| a.starts_with("-p") || a.starts_with("--package"));
    let mut tests = process::cargo(&root);
    tests.args(runner).args((!names_packages).then_some("--workspace"));
    process::run(tests.args(arguments).envs(variable))
}

/// The tests that compare with `crates/lrvd-cli/tests/cli/pins/*.txt`.
const PINS: [&str; 5] = ["--package", "lrvd-cli", "--test", "cli", "pins::"];
/// Environment variable by which these tests write their files.
const BLESS: (&str, &str) = ("LRVD_BLESS_PINS", "1");

/// Compares, or with `--bless` writes the files anew.
pub(crate) fn pins(bless: bool) -> Result<()> {
    run(&PINS.map(str::to_owned), bless.then_some(BLESS))
}

/// Environment variables of the test: its folders, and the file of its report.
const GOLDEN_FOLDERS: &str = "LRVD_GOLDEN_FOLDERS";
const GOLDEN_REPORT: &str = "LRVD_GOLDEN_REPORT";

/// Recomputes the given folders by the golden tests of lrvd-models and prints their report.
pub(crate) fn golden(folders: &[PathBuf]) -> Result<ExitCode> {
    if let Some(other) = folders.iter().find(|folder| !folder.is_dir()) {
        bail!("`{}` is not a folder", other.display());
    }
    let folders: Vec<PathBuf> =
        folders.iter().map(std::path::absolute).collect::<std::io::Result<_>>()?;
    let folders = std::env::join_paths(folders).context("a folder's name cannot be passed on")?;
    let report = std::env::temp_dir().join(format!("lrvd-golden-{}.txt", std::process::id()));
    let mut command = process::cargo(&workspace::root()?);
    command
        .args(["test", "--quiet", "--package", "lrvd-models", "--test", "golden", "--"])
        .args(["--ignored", "--exact", "given_folders_hold"])
        .env(GOLDEN_FOLDERS, folders)
        .env(GOLDEN_REPORT, &report)
        .stdout(Stdio::null());
    let status = command.status().context("cannot start cargo")?;
    // Without a report the test did not start; cargo said why.
    if let Ok(text) = std::fs::read_to_string(&report) {
        print!("{text}");
        std::fs::remove_file(&report)?;
    }
    Ok(ExitCode::from(u8::from(!status.success())))
}

/// A sweep on a Slurm of this machine by `program`, which is built if none is given.
pub(crate) fn slurm(program: Option<&Path>) -> Result<()> {
    let root = workspace::root()?;
    let program = forward::program(&root, program)?;
    process::run(Command::new(root.join("xtask/slurm-test.sh")).arg(program))
}
