//! Stages that a change must pass. `cargo xtask check`, `.ci/run` and the workflow take them from one list.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{commits, device, outside, process, site, test, tidy, workspace};

/// Places in which a stage runs unless it is named.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    /// `check` and `check --ci`.
    Always,
    /// `check --ci`: further tools or another build.
    Ci,
    /// Nowhere: it depends on more than the change.
    Named,
}

/// Name, where it runs, and its command line; an empty one is a function of this program.
///
/// Cheapest first. The tests come last, so that their summary closes the output.
const STAGES: [(&str, Run, &str); 16] = [
    ("format", Run::Always, "cargo fmt --all --check"),
    ("commits", Run::Named, ""),
    ("tidy", Run::Always, ""),
    ("spelling", Run::Always, "typos"),
    ("licences", Run::Always, "cargo deny check licenses bans sources"),
    ("advisories", Run::Named, "cargo deny check advisories"),
    ("wgpu", Run::Ci, ""),
    ("cuda", Run::Ci, ""),
    ("backends", Run::Named, ""),
    ("outside", Run::Ci, ""),
    ("build", Run::Ci, ""),
    ("slurm", Run::Ci, ""),
    ("site", Run::Ci, ""),
    ("lint", Run::Always, "cargo clippy --workspace --all-targets -- --deny warnings"),
    (
        "docs",
        Run::Always,
        "cargo doc --workspace --no-deps --config build.rustdocflags=[\"-Dwarnings\"]",
    ),
    ("test", Run::Always, ""),
];
/// Tools that may be missing, and their packages: then a stage is skipped.
const TOOLS: [(&str, &str); 2] = [("typos", "typos-cli"), ("cargo deny", "cargo-deny")];

/// The stages that can be named.
pub(crate) fn names() -> Vec<&'static str> {
    STAGES.map(|(name, ..)| name).to_vec()
}

/// Runs the named stages, or those of a change, or with `is_ci` those of the continuous integration before the tests; the
/// first failure ends it.
///
/// With `is_ci` a stage removes what no later one reads: the whole of all stages does not fit on a small disk.
pub(crate) fn run(chosen: &[String], is_ci: bool) -> Result<()> {
    let root = workspace::root()?;
    let start = Instant::now();
    for (name, when, command) in STAGES {
        let is_due = match when {
            // The continuous integration ends with the command that the README names.
            Run::Always => chosen.is_empty() && !(is_ci && name == "test"),
            Run::Ci => is_ci,
            Run::Named => false,
        };
        if !is_due && !chosen.iter().any(|stage| stage == name) {
            continue;
        }
        eprintln!("\n== {name}");
        let stage_start = Instant::now();
        let skipped =
            stage(&root, name, command, is_ci).with_context(|| format!("stage `{name}`"))?;
        if is_ci {
            remove_outputs(&root, name)?;
        }
        let seconds = [stage_start, start].map(|from| from.elapsed().as_secs_f64());
        match skipped {
            None => eprintln!("== {name}: ok, {:.1} s of {:.1} s", seconds[0], seconds[1]),
            Some(reason) => eprintln!("== {name}: skipped, {reason}"),
        }
    }
    eprintln!("== check: ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a stage; returns the reason if it cannot run.
fn stage(root: &Path, name: &str, line: &str, is_ci: bool) -> Result<Option<String>> {
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
    let built = workspace::target(root).join("debug/lrvd");
    match name {
        "commits" => commits::run()?,
        "tidy" => tidy::run(&[], false)?,
        "wgpu" => device::test("wgpu", &[])?,
        "cuda" => device::type_check(&["--features", "cuda"])?,
        "backends" => {
            for backend in ["flex", "wgpu", "cuda"] {
                device::type_check(&["--no-default-features", "--features", backend])?;
            }
        }
        "outside" => outside::run()?,
        "build" => test::run(&["--no-run".to_owned()], None)?,
        // `build` has built the program together with the tests that run it.
        "slurm" => test::slurm(Some(&built))?,
        "site" => site::run(is_ci.then_some(&*built))?,
        "test" => test::run(&[], None)?,
        _ => process::run(&mut command(line))?,
    }
    Ok(None)
}

/// Starts of the names of packages that have other features without a GPU, so that they are compiled anew.
const OTHER_FEATURES: [&str; 3] = ["burn", "cubecl", "gemm"];
/// Packages of the workspace that have other features without a GPU.
const WITH_GPU: [&str; 4] = ["lrvd-burn", "lrvd-models", "lrvd-bench", "lrvd-cli"];

/// Removes what no stage after `name` reads.
fn remove_outputs(root: &Path, name: &str) -> Result<()> {
    match name {
        "cuda" => {
            let default = packages(root, &[])?;
            let all = packages(root, &["--features", "lrvd-cli/wgpu,lrvd-cli/cuda"])?;
            let is_unused = |package: &&String| {
                let differs = OTHER_FEATURES.iter().any(|start| package.starts_with(start));
                differs || !default.contains(package)
            };
            let mut command = process::cargo(root);
            command.args(["clean", "--quiet"]);
            for package in all.iter().filter(is_unused).map(String::as_str).chain(WITH_GPU) {
                command.args(["--package", package]);
            }
            // The list is long; only a failure is shown.
            process::output(&mut command).map(drop)
        }
        "docs" => process::run(process::cargo(root).args(["clean", "--doc"])),
        _ => Ok(()),
    }
}

/// The packages from registries that a build of the workspace compiles, as `name@version`.
fn packages(root: &Path, features: &[&str]) -> Result<Vec<String>> {
    let mut command = process::cargo(root);
    command.args(["tree", "--workspace", "--prefix", "none", "--format", "{p}"]).args(features);
    Ok(listed(&process::output(&mut command)?))
}

/// The lines `name v1.2.3` of a tree; those of the workspace's own packages have a folder behind the version.
fn listed(tree: &str) -> Vec<String> {
    let packages = tree.lines().filter(|line| !line.contains('/')).filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name}@{}", rest.split(' ').next()?))
    });
    let mut packages: Vec<String> = packages.collect();
    packages.sort();
    packages.dedup();
    packages
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Every stage of the workflow is in the list; the continuous integration runs all but the named ones.
    #[test]
    fn the_workflow_names_stages() {
        let root = workspace::root().unwrap();
        let text = std::fs::read_to_string(root.join(".github/workflows/ci.yml")).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once("xtask check ").map(|l| l.1));
        let named: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        for name in &named {
            assert!(names().contains(name), "{name}");
        }
        // Slurm has daemons that need root.
        let missing = names().into_iter().filter(|name| !named.contains(name));
        assert_eq!(missing.collect::<Vec<_>>(), ["cuda", "slurm"]);
    }

    #[test]
    fn packages_are_listed_once_with_their_version() {
        let tree = "lrvd-core v0.1.0 (/x/lrvd-core) (*)\nserde v1.0.229\nash v0.38.0+1.3.281\n\nserde v1.0.229 (*)\n\
                    serde_derive v1.0.229 (proc-macro)\n";
        let expected = ["ash@0.38.0+1.3.281", "serde@1.0.229", "serde_derive@1.0.229"];
        assert_eq!(listed(tree), expected);
    }
}
