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
const ALLOWED: [&str; 10] = [
    "lrvd-core",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
];

/// Parts of the standard library that reach outside the process or depend on more than arguments.
const OUTSIDE: [&str; 7] =
    ["std::env", "std::fs", "std::io", "std::net", "std::process", "std::thread", "std::time"];

/// The tree of normal dependencies is the allowed one, and the sources do no I/O.
pub(crate) fn plain(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = process::cargo(&workspace.root);
    command.args(["tree", "--package", CRATE, "--edges", "normal", "--all-features"]);
    let tree = process::output(command.args(["--prefix", "none", "--format", "{p}"]))?;
    let names: BTreeSet<&str> = tree.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let mut findings: Vec<String> = names
        .into_iter()
        .filter(|name| !ALLOWED.contains(name))
        .map(|name| format!("`{name}` is in the dependency tree of {CRATE}"))
        .collect();
    findings.extend(mentions(workspace, SOURCES, &[], &OUTSIDE)?);
    Ok(findings)
}
