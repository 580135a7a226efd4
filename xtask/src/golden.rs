//! Folders of recorded numbers against the code.

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// Where the test finds the folders and where it writes its report.
const FOLDERS: &str = "LRVD_GOLDEN_FOLDERS";
const REPORT: &str = "LRVD_GOLDEN_REPORT";

/// Recomputes the given folders by the golden tests of lrvd-models and prints their report.
pub(crate) fn run(folders: &[PathBuf]) -> Result<ExitCode> {
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
        .env(FOLDERS, folders)
        .env(REPORT, &report)
        .stdout(Stdio::null());
    let status = command.status().context("cannot start cargo")?;
    // Without a report the test did not start; cargo said why.
    if let Ok(text) = std::fs::read_to_string(&report) {
        print!("{text}");
        std::fs::remove_file(&report)?;
    }
    Ok(ExitCode::from(u8::from(!status.success())))
}
