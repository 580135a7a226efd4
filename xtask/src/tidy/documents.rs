//! What documents promise.

use std::path::Path;

use anyhow::Result;

use super::english::prose;
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
            if !leads_somewhere(&workspace.root, file, &target) {
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
    let text = workspace.text(ARCHITECTURE)?.unwrap_or_default();
    Ok(unlisted(&text, &super::names()))
}

/// Numbered lines ``N. **`name`** …`` of `text` against `names`.
fn unlisted(text: &str, names: &[&str]) -> Vec<String> {
    let missing = names.iter().filter(|name| !text.contains(&format!(". **`{name}`**")));
    let mut findings: Vec<String> =
        missing.map(|name| format!("{ARCHITECTURE}: `{name}` is not listed")).collect();
    let listed = text.matches(". **`").count();
    if findings.is_empty() && listed != names.len() {
        findings.push(format!("{ARCHITECTURE}: {listed} listed, {} checked", names.len()));
    }
    findings
}

/// Local targets of the links in a Markdown text, without anchors.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets
        .map(|target| target.split('#').next().unwrap_or_default().trim())
        .filter(|target| !target.is_empty())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .map(str::to_owned)
        .collect()
}

/// Whether `file` may link to `target`: to something that is there, and below the root.
fn leads_somewhere(root: &Path, file: &str, target: &str) -> bool {
    let from = root.join(file);
    let place = match target.strip_prefix('/') {
        Some(target) => root.join(target),
        None => from.parent().unwrap_or(root).join(target),
    };
    let found = place.canonicalize().ok().zip(root.canonicalize().ok());
    found.is_some_and(|(place, root)| place.starts_with(root))
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
    fn targets_are_there_and_below_the_root() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (file, target, expected) in [
            ("docs/guides/a.md", "../math/", true),
            ("README.md", "docs/architecture.md", true),
            ("docs/a.md", "/LICENSE-MIT", true),
            ("docs/a.md", "LICENSE-MIT", false),
            ("a.md", "../", false),
        ] {
            assert_eq!(leads_somewhere(&root, file, target), expected, "{file} {target}");
        }
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
        assert_eq!(unlisted(text, &["a"]).len(), 1);
        assert_eq!(unlisted(text, &["a", "c"]).len(), 1);
    }
}
