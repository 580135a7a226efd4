//! Building the CLI and becoming it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process, workspace};

/// Takes the build's arguments (`--features …`, `--no-default-features`) out of those before the first `--`, which is
/// dropped; returns them and the program's.
fn split(arguments: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let mut build = Vec::new();
    let mut program = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--" => program.extend(rest.by_ref().cloned()),
            "--features" => {
                let list = rest.next().context("`--features` needs a list, such as `wgpu`")?;
                build.extend(["--features".to_owned(), list.clone()]);
            }
            "--no-default-features" => build.push(argument.clone()),
            text if text.starts_with("--features=") => build.push(argument.clone()),
            _ => program.push(argument.clone()),
        }
    }
    Ok((build, program))
}

/// Runs the suite `name`; the quick profile on what the repository holds builds neither the hub's client nor the
/// parquet reader, a minute less.
pub(crate) fn suite(name: &str, arguments: &[String]) -> Result<ExitCode> {
    let lean = needs_no_files(arguments) && split(arguments)?.0.is_empty();
    let features = ["--no-default-features", "--features", "flex,dashboard"].map(str::to_owned);
    let features = if lean { features.as_slice() } else { &[] };
    lrvd(&["bench", name], &[features, arguments].concat())
}

/// True if a suite reads nothing but generated data and the repository's own models.
fn needs_no_files(arguments: &[String]) -> bool {
    let has = |option: &str| {
        let with_value = format!("{option}=");
        arguments.iter().any(|text| text == option || text.starts_with(&with_value))
    };
    let quick = arguments.windows(2).any(|pair| pair == ["--profile", "quick"])
        || arguments.iter().any(|text| text == "--profile=quick");
    quick && !["--data-dir", "--model", "--config", "--set"].into_iter().any(has)
}

/// Builds `lrvd` with the profile `quick` of Cargo.toml and runs it in the current folder with `before` and `arguments`.
///
/// On Unix this process becomes the CLI, so that signals and the exit status are its own.
pub(crate) fn lrvd(before: &[&str], arguments: &[String]) -> Result<ExitCode> {
    let (build_arguments, arguments) = split(arguments)?;
    let own = ["--profile", "quick", "--package", "lrvd-cli", "--bin", "lrvd"].map(str::to_owned);
    let selected: Vec<&str> = own.iter().chain(&build_arguments).map(String::as_str).collect();
    let program = build(&workspace::root()?, &selected, "lrvd")?;
    let mut command = Command::new(&program);
    command.args(before).args(&arguments);
    process::forget_cargo(&mut command);
    let failed = || format!("cannot start `{}`", program.display());
    // As if typed. `exec` only returns if it failed.
    #[cfg(unix)]
    return Err(std::os::unix::process::CommandExt::exec(&mut command)).with_context(failed);
    #[cfg(not(unix))]
    {
        let code = command.status().with_context(failed)?.code();
        Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
    }
}

/// The `lrvd` that a test runs: the given one, or that of a development build.
pub(crate) fn program(root: &Path, given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(program) => Ok(std::path::absolute(program)?),
        None => build(root, &["--package", "lrvd-cli", "--bin", "lrvd"], "lrvd"),
    }
}

/// Builds what `arguments` select and returns the path of `program`, as cargo reports it.
pub(crate) fn build(root: &Path, arguments: &[&str], program: &str) -> Result<PathBuf> {
    let mut command = process::cargo(root);
    command
        .arg("build")
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if let Some(revision) = revision(root) {
        command.env("LRVD_GIT_REVISION", revision);
    }
    let shown = process::show(&command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({})", output.status);
    }
    executable(&String::from_utf8_lossy(&output.stdout), program)
        .with_context(|| format!("`{shown}` names no executable `{program}`"))
}

/// The commit that is checked out, with `-dirty` where files differ from it; none outside a checkout or
/// without git. The CLI keeps it, so that records say what made them.
pub(crate) fn revision(root: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]);
    process::output(&mut git)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// The executable called `program` in cargo's stream of JSON messages.
fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .find(|path| path.file_stem().is_some_and(|name| name == program))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::words;

    #[test]
    fn features_belong_to_the_build_until_a_double_dash() {
        for (given, build, program) in [
            ("", "", ""),
            ("--profile quick --seeds 1,2", "", "--profile quick --seeds 1,2"),
            ("--features cuda --profile paper", "--features cuda", "--profile paper"),
            ("--dry-run --features=wgpu,cuda", "--features=wgpu,cuda", "--dry-run"),
            ("--no-default-features --features wgpu", "--no-default-features --features wgpu", ""),
            ("--out x -- --features y -- z", "", "--out x --features y -- z"),
        ] {
            assert_eq!(split(&words(given)).unwrap(), (words(build), words(program)), "{given}");
        }
        assert!(split(&words("--features")).is_err());
    }

    #[test]
    fn only_the_quick_profile_on_its_own_data_does_without_readers() {
        for (given, lean) in [
            ("--profile quick", true),
            ("--profile=quick --seeds 1", true),
            ("--profile quick --data-dir GLUE", false),
            ("--profile quick --model=owner/name", false),
            ("--profile result", false),
            ("", false),
        ] {
            assert_eq!(needs_no_files(&words(given)), lean, "{given}");
        }
    }

    #[test]
    fn the_executable_is_found_among_other_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\nnoise\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/release/lrvd\"}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/release/step.exe\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages, "lrvd"), Some(PathBuf::from("/t/release/lrvd")));
        assert_eq!(executable(messages, "step"), Some(PathBuf::from("/t/release/step.exe")));
        assert_eq!(executable(messages, "other"), None);
    }
}
