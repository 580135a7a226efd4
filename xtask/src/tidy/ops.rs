//! One formula, three places.

use std::collections::BTreeMap;

use anyhow::Result;

use super::sources::has_word;
use crate::workspace::Workspace;

const OPERATORS: &str = "crates/lrvd-burn/src/ops/";
const TESTS: &str = "crates/lrvd-burn/tests/";
/// Files of an operator that are written by hand for some backend.
const BY_HAND: [&str; 3] = ["cpu.rs", "kernel.rs", "launch.rs"];

/// A hand-written operator has a composite twin, and a test names both.
pub(crate) fn twins(workspace: &Workspace) -> Result<Vec<String>> {
    let mut tests = String::new();
    for file in workspace.below(TESTS, ".rs") {
        tests.push_str(&workspace.text(file)?.unwrap_or_default());
    }
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in workspace.below(OPERATORS, ".rs") {
        if let Some((folder, name)) = file[OPERATORS.len()..].split_once('/') {
            folders.entry(folder).or_default().push(name);
        }
    }
    Ok(missing(&folders, &tests))
}

fn missing(folders: &BTreeMap<&str, Vec<&str>>, tests: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (folder, files) in folders {
        // `cpu/` holds what the operators share, not an operator.
        let by_hand = files.contains(&"mod.rs")
            && (files.contains(&"composite.rs") || files.iter().any(|f| BY_HAND.contains(f)));
        if !by_hand {
            continue;
        }
        if !files.contains(&"composite.rs") {
            findings.push(format!("{OPERATORS}{folder}: no `composite.rs`"));
        }
        if files.contains(&"kernel.rs") != files.contains(&"launch.rs") {
            findings
                .push(format!("{OPERATORS}{folder}: `kernel.rs` and `launch.rs` come together"));
        }
        if !has_word(tests, folder) {
            findings.push(format!("{TESTS}: no test names `{folder}`"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_needs_its_twin_and_a_test() {
        let whole = vec!["composite.rs", "kernel.rs", "launch.rs", "mod.rs"];
        let folders = BTreeMap::from([
            ("cpu", vec!["mod.rs", "real.rs"]),
            ("gelu", whole.clone()),
            ("tanh", vec!["kernel.rs", "mod.rs"]),
        ]);
        let found = missing(&folders, "use ops::{gelu, gelu_composite};");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|f| f.contains("tanh")));
        let folders = BTreeMap::from([("gelu", whole)]);
        assert!(missing(&folders, "gelu_composite").first().is_some_and(|f| f.contains("gelu")));
    }
}
