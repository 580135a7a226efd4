//! What documents promise.

use anyhow::Result;

use super::INVARIANTS;
use crate::workspace::Workspace;

const ARCHITECTURE: &str = "docs/architecture.md";
const DERIVATIONS: &str = "docs/math/";
/// What introduces the last paragraph of a derivation and its second half.
const CODE: &str = "code: ";
const TESTS: &str = "tests: ";

/// Links resolve; derivations end with their code and tests.
pub(crate) fn hold(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in workspace.below("", ".md") {
        let text = workspace.text(file)?.unwrap_or_default();
        for target in links(&text) {
            if !workspace.exists(&resolve(file, &target)) {
                findings.push(format!("{file}: the link to `{target}` leads nowhere"));
            }
        }
        if file.starts_with(DERIVATIONS) {
            match closing_paths(&text) {
                Ok(paths) => findings.extend(
                    paths
                        .into_iter()
                        .filter(|path| !workspace.exists(path))
                        .map(|path| format!("{file}: `{path}` does not exist")),
                ),
                Err(problem) => findings.push(format!("{file}: {problem}")),
            }
        }
    }
    Ok(findings)
}

/// The document and the program list the same invariants.
pub(crate) fn list_invariants(workspace: &Workspace) -> Result<Vec<String>> {
    if !workspace.exists(ARCHITECTURE) {
        return Ok(vec![format!("no file `{ARCHITECTURE}`")]);
    }
    let text = workspace.text(ARCHITECTURE)?.unwrap_or_default();
    let names: Vec<&str> = INVARIANTS.iter().map(|i| i.name).collect();
    Ok(unlisted(&text, &names))
}

/// Numbered lines ``N. **`name`** …`` of `text` against `names`, in order.
fn unlisted(text: &str, names: &[&str]) -> Vec<String> {
    let listed: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let (number, rest) = line.split_once(". **`")?;
            number.parse::<usize>().ok()?;
            rest.split_once("`**").map(|(name, _)| name)
        })
        .collect();
    let mut findings: Vec<String> = names
        .iter()
        .filter(|name| !listed.contains(name))
        .map(|name| format!("{ARCHITECTURE}: `{name}` is not listed"))
        .collect();
    findings.extend(
        listed
            .iter()
            .filter(|name| !names.contains(name))
            .map(|name| format!("{ARCHITECTURE}: nothing checks `{name}`")),
    );
    findings
}

/// Local targets of the links in a Markdown text, without anchors.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (i, _) in line.match_indices("](") {
            let Some((target, _)) = line[i + 2..].split_once(')') else { continue };
            let target = target.split('#').next().unwrap_or_default().trim();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !outside {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// `target` as seen from the root, if `file` links to it.
fn resolve(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => file.rsplit_once('/').map_or(Vec::new(), |(folder, _)| folder.split('/').collect()),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            // A step above the root stays visible, so that it is not found.
            ".." => {
                if parts.pop().is_none() {
                    parts.push("..");
                }
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The paths in the last paragraph of a derivation, "code: `…`, `…`; tests: `…`".
fn closing_paths(text: &str) -> std::result::Result<Vec<&str>, String> {
    let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let ends = last.strip_prefix(CODE).and_then(|rest| rest.split_once(TESTS));
    let Some((code, tests)) = ends else {
        return Err(format!("does not end with `{CODE}…; {TESTS}…`"));
    };
    let paths = |part: &'static str, text| {
        let paths: Vec<&str> = str::split(text, '`').skip(1).step_by(2).collect();
        if paths.is_empty() { Err(format!("names no path after `{part}`")) } else { Ok(paths) }
    };
    Ok([paths(CODE, code)?, paths(TESTS, tests)?].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn links_are_local_and_outside_code() {
        let text = "[a](b.md#c) [d](https://e) ![f](../g.png)\n```\n[h](i)\n```\n[j](#k) [l](m.md)";
        assert_eq!(links(text), ["b.md", "../g.png", "m.md"]);
    }

    #[test]
    fn targets_are_seen_from_the_root() {
        assert_eq!(resolve("docs/guides/a.md", "../math/kl.md"), "docs/math/kl.md");
        assert_eq!(resolve("README.md", "docs/a.md"), "docs/a.md");
        assert_eq!(resolve("docs/a.md", "/LICENSE"), "LICENSE");
        assert_eq!(resolve("a.md", "../b.md"), "../b.md");
    }

    #[test]
    fn derivations_close_with_paths() {
        let text = "# Title\n\ntext\n\ncode: `a.rs`, `b/`;\ntests: `c.rs`\n";
        assert_eq!(closing_paths(text).unwrap(), ["a.rs", "b/", "c.rs"]);
        assert!(closing_paths("# Title\n\ncode: `a.rs`\n").is_err());
        assert!(closing_paths("code: none; tests: `c`").is_err());
    }

    #[test]
    fn lists_must_agree_both_ways() {
        let text = "1. **`a`**: first\n2. **`b`**: second\ntext\n";
        assert_eq!(unlisted(text, &["a", "b"]), [""; 0]);
        assert_eq!(unlisted(text, &["a", "c"]).len(), 2);
    }
}
