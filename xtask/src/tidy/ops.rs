//! One formula, three places.

use anyhow::Result;

use super::texts::has_word;
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
    let mut findings = Vec::new();
    for folder in workspace.below(OPERATORS, "/mod.rs").map(|file| file.trim_end_matches("mod.rs"))
    {
        let has = |file: &str| workspace.exists(&format!("{folder}{file}"));
        // `cpu/` holds what the operators share, not an operator.
        if !has("composite.rs") && !BY_HAND.into_iter().any(has) {
            continue;
        }
        let name = folder[OPERATORS.len()..].trim_end_matches('/');
        let broken = [
            (!has("composite.rs"), "no `composite.rs`"),
            (has("kernel.rs") != has("launch.rs"), "`kernel.rs` and `launch.rs` come together"),
            (!has_word(&tests, name), "no test names it"),
        ];
        let broken = broken.into_iter().filter(|(is_broken, _)| *is_broken);
        findings.extend(broken.map(|(_, what)| format!("{OPERATORS}{name}: {what}")));
    }
    Ok(findings)
}
