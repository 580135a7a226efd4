//! What every manifest inherits.

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::workspace::Workspace;

/// The crate whose insides the operators reach into, and its own parts.
const PINNED: [&str; 4] = ["burn", "burn-cubecl", "burn-flex", "cubecl"];
const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// A manifest as a table.
fn read(workspace: &Workspace, file: &str) -> Result<Table> {
    let text = workspace.text(file)?.unwrap_or_default();
    text.parse().with_context(|| format!("`{file}` is not TOML"))
}

/// Whether an entry says `workspace = true`.
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
        .map(|(name, _)| name.clone())
        .collect()
}

/// Members take versions from the table; the table pins Burn.
pub(crate) fn versions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let names = own_versions(&read(workspace, &package.manifest)?).into_iter();
        findings.extend(
            names.map(|name| {
                format!("{}: `{name}` does not say `workspace = true`", package.manifest)
            }),
        );
    }
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
    let mut findings = Vec::new();
    for package in &workspace.packages {
        if !read(workspace, &package.manifest)?.get("lints").is_some_and(inherits) {
            findings.push(format!("{}: no `lints.workspace = true`", package.manifest));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dependencies_with_own_versions_are_found() {
        let text = "[package]\nversion = \"1\"\n[dependencies]\na.workspace = true\n\
                    b = { workspace = true, features = [\"x\"] } # note\nc = \"1\"\n\
                    [dev-dependencies]\nd = { version = \"1\", features = [\n  \"y\",\n] }\n\
                    [target.'cfg(unix)'.dependencies]\ne = \"2\"\n\
                    [dependencies.f]\nworkspace = true\noptional = true\n\
                    [build-dependencies.g]\nversion = \"3\"\n[features]\nh = [\"dep:a\"]\n";
        let mut names = own_versions(&text.parse().unwrap());
        names.sort_unstable();
        assert_eq!(names, ["c", "d", "e", "g"]);
    }
}
