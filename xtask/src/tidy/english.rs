//! Phrases that the style rules ban.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Result;

use super::sources::has_word;
use crate::workspace::Workspace;

const STYLE: &str = "CONTRIBUTING.md";
/// First line of the table of banned phrases.
const HEAD: &str = "| not | but |";
/// Sources whose comments and texts are checked in full.
const SOURCES: [&str; 3] =
    ["crates/lrvd-cli/src/commands/", "crates/lrvd-cli/src/args.rs", "xtask/src/main.rs"];

/// Documents, comments and help texts are free of the phrases in the left column of CONTRIBUTING's table.
pub(crate) fn plain(workspace: &Workspace) -> Result<Vec<String>> {
    let table = workspace.text(STYLE)?.unwrap_or_default();
    let banned = banned(&table);
    if banned.is_empty() {
        return Ok(vec![format!("{STYLE}: no table `{HEAD}` with banned phrases")]);
    }
    let mut findings = Vec::new();
    for file in &workspace.files {
        let text = || workspace.text(file).map(Option::unwrap_or_default);
        let text = match Path::new(file).extension().and_then(OsStr::to_str) {
            Some("md") => prose(&text()?),
            _ if SOURCES.iter().any(|source| file.starts_with(source)) => text()?,
            Some("rs") => comments(&text()?),
            _ => continue,
        };
        for (number, line) in (1..).zip(text.to_lowercase().lines()) {
            let found = banned.iter().filter(|phrase| has_word(line, phrase));
            findings.extend(found.map(|phrase| format!("{file}:{number}: `{phrase}`")));
        }
    }
    Ok(findings)
}

/// The phrases in backticks in the first column of the table that starts with [`HEAD`].
fn banned(text: &str) -> Vec<&str> {
    let rows = text.lines().skip_while(|line| *line != HEAD).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// A Markdown text with as many lines, without fenced and inline code.
pub(super) fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut fenced = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if !fenced && !is_fence {
            out.extend(line.split('`').step_by(2));
        }
        out.push('\n');
    }
    out
}

/// The comments of a Rust source, in as many lines, without inline code.
fn comments(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if let Some((_, comment)) = line.split_once("//") {
            out.extend(comment.split('`').step_by(2));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_phrases_are_the_left_column() {
        let text = "| a | b |\n\n| not | but |\n|---|---|\n| `x y`, `z` | `w` |\n| `v` | u |\n\n| `t` | |\n";
        assert_eq!(banned(text), ["x y", "z", "v"]);
    }

    #[test]
    fn code_is_no_prose() {
        let text = "a `b` c\n```sh\nd\n```\ne\n";
        assert_eq!(prose(text), "a  c\n\n\n\ne\n");
        assert_eq!(comments("a // b `c` d\ne\n/// f\n"), " b  d\n\n/ f\n");
    }
}
