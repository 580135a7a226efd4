//! What every manifest inherits, and the features that crates pass on.

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::workspace::Workspace;

/// The crate whose insides the operators reach into, and its own parts.
const PINNED: [&str; 4] = ["burn", "burn-cubecl", "burn-flex", "cubecl"];
const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
/// The crates that compute by Burn.
const BUILT_ON_BURN: [&str; 4] = ["lrvd-burn", "lrvd-models", "lrvd-bench", "lrvd-cli"];
/// The default backend and the two that may be added.
const DEFAULT: &str = "flex";
const ADDED: [&str; 2] = ["wgpu", "cuda"];

/// A manifest as a table.
fn read(workspace: &Workspace, file: &str) -> Result<Table> {
    let text = workspace.text(file)?.unwrap_or_default();
    text.parse().with_context(|| format!("`{file}` is not TOML"))
}

/// Findings of `wrong` in the manifests of the members, each under its file.
fn members(workspace: &Workspace, wrong: impl Fn(&Table) -> Vec<String>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in workspace.below("", "/Cargo.toml") {
        let found = wrong(&read(workspace, file)?).into_iter();
        findings.extend(found.map(|what| format!("{file}: {what}")));
    }
    Ok(findings)
}

/// True if an entry says `workspace = true`.
fn inherits(entry: &Value) -> bool {
    entry.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Dependencies that do not take their version from the workspace, those for some targets included.
fn own_versions(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(|t| t.values()).filter_map(Value::as_table);
    targets
        .chain([manifest])
        .flat_map(|table| KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flatten()
        .filter(|(_, entry)| !inherits(entry))
        .map(|(name, _)| format!("`{name}` does not say `workspace = true`"))
        .collect()
}

/// Members take versions from the table; the table pins Burn.
pub(crate) fn versions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = members(workspace, own_versions)?;
    let root = read(workspace, "Cargo.toml")?;
    for name in PINNED {
        let entry = (|| root.get("workspace")?.get("dependencies")?.get(name))();
        let version = entry.and_then(|e| e.as_str().or_else(|| e.get("version")?.as_str()));
        if !version.is_some_and(|version| version.starts_with('=')) {
            findings
                .push(format!("Cargo.toml: `{name}` is not pinned with `=` in the version table"));
        }
    }
    Ok(findings)
}

/// Members inherit the lints.
pub(crate) fn lints(workspace: &Workspace) -> Result<Vec<String>> {
    members(workspace, |manifest| {
        let is_bare = !manifest.get("lints").is_some_and(inherits);
        is_bare.then(|| "no `lints.workspace = true`".to_owned()).into_iter().collect()
    })
}

/// Backends are features that add up, passed on by every crate above the core.
pub(crate) fn features(workspace: &Workspace) -> Result<Vec<String>> {
    members(workspace, wrong_features)
}

fn wrong_features(manifest: &Table) -> Vec<String> {
    let name = (|| manifest.get("package")?.get("name")?.as_str())();
    if !name.is_some_and(|name| BUILT_ON_BURN.contains(&name)) {
        return Vec::new();
    }
    let list = |name: &str| -> Option<Vec<&str>> {
        let list = manifest.get("features")?.get(name)?.as_array()?;
        Some(list.iter().filter_map(Value::as_str).collect())
    };
    let mut wrong = Vec::new();
    let default = list("default").unwrap_or_default();
    if !default.contains(&DEFAULT) || default.iter().any(|s| ADDED.contains(s)) {
        wrong.push(format!("`{DEFAULT}` is not the one backend among the default features"));
    }
    for name in ADDED.into_iter().chain([DEFAULT]) {
        let Some(switched) = list(name) else {
            wrong.push(format!("no feature `{name}`"));
            continue;
        };
        if name != DEFAULT && switched.iter().any(|s| *s == DEFAULT || s.ends_with("/flex")) {
            wrong.push(format!("`{name}` switches `{DEFAULT}` on"));
        }
        let uses =
            |lower: &&str| manifest.get("dependencies").is_some_and(|d| d.get(lower).is_some());
        for lower in BUILT_ON_BURN.iter().copied().filter(uses) {
            if !switched.contains(&format!("{lower}/{name}").as_str()) {
                wrong.push(format!("`{name}` does not reach `{lower}`"));
            }
        }
    }
    wrong
}
