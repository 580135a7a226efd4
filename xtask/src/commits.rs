//! The subjects of commits, as CONTRIBUTING.md has them.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{process, workspace};

/// Commits of a change: those that `main` does not have.
const RANGE: &str = "origin/main..HEAD";
/// Most characters of a subject.
const LONGEST: usize = 72;

/// Checks the subjects of all commits of a change.
pub(crate) fn run() -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(workspace::root()?).args(["log", "--no-merges", "--format=%h %s", RANGE]);
    let log = process::output(&mut git)?;
    let is_right = |line: &&str| line.split_once(' ').is_some_and(|(_, rest)| is_subject(rest));
    let wrong: Vec<&str> = log.lines().filter(|line| !is_right(line)).collect();
    if !wrong.is_empty() {
        bail!(
            "expected `area: verb object` with at most {LONGEST} characters:\n  {}",
            wrong.join("\n  ")
        );
    }
    Ok(())
}

/// `true` for `area: verb object`; a verb in the imperative is a word in lower case.
fn is_subject(subject: &str) -> bool {
    let Some((area, rest)) = subject.split_once(": ") else { return false };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/, ".contains(c);
    !area.is_empty()
        && area.chars().all(is_area)
        && rest.starts_with(|c: char| c.is_ascii_lowercase())
        && rest.contains(' ')
        && subject.chars().count() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_an_area_a_verb_and_an_object() {
        for subject in ["serve: close idle connections", "core, burn: name one prior"] {
            assert!(is_subject(subject), "{subject}");
        }
        let long = format!("serve: close {}", "x".repeat(60));
        for subject in
            ["Say starts", "serve: Close connections", "serve: close", ": close it", &long]
        {
            assert!(!is_subject(subject), "{subject}");
        }
    }
}
