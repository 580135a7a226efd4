//! What the definitions may rest on.

use std::collections::BTreeSet;

use anyhow::Result;

use super::sources::mentions;
use crate::process;
use crate::workspace::Workspace;

const CRATE: &str = "lrvd-core";
const SOURCES: &str = "crates/lrvd-core/src/";

/// Everything that may be in its dependency tree: errors, optional serialisation, and what the
/// two derive macros are made of.
const ALLOWED: [&str; 9] = [
    "lrvd-core",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "thiserror",
    "thiserror-impl",
];
/// A dependency of `proc-macro2`.
const IDENTIFIERS: &str = "unicode-ident";

/// Parts of the standard library that reach outside the process or depend on more than arguments.
const OUTSIDE: [&str; 7] =
    ["std::env", "std::fs", "std::io", "std::net", "std::process", "std::thread", "std::time"];

/// The tree of normal dependencies is the allowed one, and the sources do no I/O.
pub(crate) fn plain(workspace: &Workspace) -> Result<Vec<String>> {
    let tree = process::output(process::cargo(&workspace.root).args([
        "tree",
        "--package",
        CRATE,
        "--edges",
        "normal",
        "--all-features",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    let mut findings: Vec<String> = names(&tree)
        .into_iter()
        .filter(|name| !ALLOWED.contains(name) && *name != IDENTIFIERS)
        .map(|name| format!("`{name}` is in the dependency tree of {CRATE}"))
        .collect();
    findings.extend(mentions(workspace, SOURCES, &[], &OUTSIDE)?);
    Ok(findings)
}

/// Package names in the output of `cargo tree --prefix none --format {p}`.
fn names(tree: &str) -> BTreeSet<&str> {
    tree.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_first_words() {
        let tree = "lrvd-core v0.1.0 (/w/crates/lrvd-core)\nserde v1.0.228\n\nserde v1.0.228 (*)\n\
                    syn v2.0.0 (proc-macro)\n";
        assert_eq!(names(tree).into_iter().collect::<Vec<_>>(), ["lrvd-core", "serde", "syn"]);
    }
}
