//! What every manifest inherits.

use anyhow::Result;

use crate::workspace::Workspace;

/// The crate whose insides the operators reach into, and its own parts.
const PINNED: [&str; 4] = ["burn", "burn-cubecl", "burn-flex", "cubecl"];

/// A line of a manifest with the table it stands in.
#[derive(Debug, PartialEq, Eq)]
struct Entry<'a> {
    line: usize,
    table: &'a str,
    key: &'a str,
    value: &'a str,
}

/// Keys, values and tables of a manifest. Values that span lines keep their first line only, which
/// is all that is looked at here.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let (mut table, mut found, mut depth) = ("", Vec::new(), 0_i64);
    for (number, line) in text.lines().enumerate() {
        let line = line.split_once(" #").map_or(line, |(head, _)| head).trim();
        let opened = |c| line.matches(c).count() as i64;
        if depth == 0 {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            if line.starts_with('[') {
                table = line.trim_matches(|c| c == '[' || c == ']').trim();
                continue;
            }
            if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim(), value.trim());
                found.push(Entry { line: number + 1, table, key, value });
            }
        }
        depth += opened('[') + opened('{') - opened(']') - opened('}');
    }
    found
}

/// The package a table or a key describes, if the table lists dependencies.
fn dependency<'a>(entry: &Entry<'a>) -> Option<&'a str> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let table = entry.table.rsplit_once("'.").map_or(entry.table, |(_, tail)| tail);
    if kinds.contains(&table) {
        return Some(entry.key.split_once('.').map_or(entry.key, |(name, _)| name));
    }
    // `[dependencies.name]`
    let (kind, name) = table.split_once('.')?;
    kinds.contains(&kind).then_some(name)
}

fn inherits(entry: &Entry<'_>) -> bool {
    let inline = entry.value.split_whitespace().collect::<String>();
    (entry.key.ends_with("workspace") && entry.value == "true") || inline.contains("workspace=true")
}

fn own_versions(text: &str) -> Vec<(usize, &str)> {
    let entries = entries(text);
    entries
        .iter()
        .filter_map(|entry| Some((entry, dependency(entry)?)))
        .filter(|(entry, name)| {
            // In `[dependencies.name]` any line of the table may inherit.
            !entries
                .iter()
                .any(|e| e.table == entry.table && dependency(e) == Some(*name) && inherits(e))
        })
        .map(|(entry, name)| (entry.line, name))
        .collect()
}

/// Members take versions from the table; the table pins Burn.
pub(crate) fn versions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let text = workspace.text(&package.manifest)?.unwrap_or_default();
        findings.extend(own_versions(&text).into_iter().map(|(line, name)| {
            format!("{}:{line}: `{name}` does not say `workspace = true`", package.manifest)
        }));
    }
    let text = workspace.text("Cargo.toml")?.unwrap_or_default();
    let table = entries(&text);
    for name in PINNED {
        let entry = table.iter().find(|e| e.table == "workspace.dependencies" && e.key == name);
        match entry {
            Some(e) if e.value.contains("version = \"=") => {}
            Some(e) => {
                findings.push(format!("Cargo.toml:{}: `{name}` is not pinned with `=`", e.line));
            }
            None => findings.push(format!("Cargo.toml: no `{name}` in the version table")),
        }
    }
    Ok(findings)
}

/// Members inherit the lints.
pub(crate) fn lints(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let text = workspace.text(&package.manifest)?.unwrap_or_default();
        let inherited = entries(&text).iter().any(|e| {
            e.value == "true"
                && ((e.table == "lints" && e.key == "workspace") || e.key == "lints.workspace")
        });
        if !inherited {
            findings.push(format!("{}: no `lints.workspace = true`", package.manifest));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_with_own_versions_are_found() {
        let text = "[package]\nversion = \"1\"\n[dependencies]\na.workspace = true\n\
                    b = { workspace = true, features = [\"x\"] } # note\nc = \"1\"\n\
                    [dev-dependencies]\nd = { version = \"1\", features = [\n  \"y\",\n] }\n\
                    [target.'cfg(unix)'.dependencies]\ne = \"2\"\n\
                    [dependencies.f]\nworkspace = true\noptional = true\n\
                    [build-dependencies.g]\nversion = \"3\"\n[features]\nh = [\"dep:a\"]\n";
        let names: Vec<&str> = own_versions(text).into_iter().map(|(_, n)| n).collect();
        assert_eq!(names, ["c", "d", "e", "g"]);
        assert_eq!(own_versions(text)[0].0, 6);
    }

    #[test]
    fn tables_and_keys_are_read_line_by_line() {
        let found =
            entries("# x = 1\n[lints]\nworkspace = true\nlist = [\n  \"a = b\",\n]\nz = 3\n");
        let keys: Vec<&str> = found.iter().map(|e| e.key).collect();
        assert_eq!(keys, ["workspace", "list", "z"]);
        assert_eq!((found[0].table, found[2].line), ("lints", 7));
    }
}
