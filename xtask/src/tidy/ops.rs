//! One formula, three places.

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
    let folders = workspace.below(OPERATORS, "/mod.rs").map(|file| file.trim_end_matches("mod.rs"));
    let missing = folders.flat_map(|folder| {
        let has = |file: &str| workspace.exists(&format!("{folder}{file}"));
        missing(folder[OPERATORS.len()..].trim_end_matches('/'), has, &tests)
    });
    Ok(missing.collect())
}

fn missing(name: &str, has: impl Fn(&str) -> bool, tests: &str) -> Vec<String> {
    // `cpu/` holds what the operators share, not an operator.
    if !has("composite.rs") && !BY_HAND.into_iter().any(&has) {
        return Vec::new();
    }
    let broken = [
        (!has("composite.rs"), "no `composite.rs`"),
        (has("kernel.rs") != has("launch.rs"), "`kernel.rs` and `launch.rs` come together"),
        (!has_word(tests, name), "no test names it"),
    ];
    let broken = broken.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, what)| format!("{OPERATORS}{name}: {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_needs_its_twin_and_a_test() {
        let missing = |name, files: &[&str], tests| missing(name, |f| files.contains(&f), tests);
        let whole = ["composite.rs", "kernel.rs", "launch.rs"];
        assert_eq!(missing("cpu", &["real.rs"], ""), [""; 0]);
        assert_eq!(missing("gelu", &whole, "use ops::{gelu, gelu_composite};"), [""; 0]);
        assert_eq!(missing("gelu", &whole, "gelu_composite").len(), 1);
        assert_eq!(missing("tanh", &["kernel.rs"], "gelu").len(), 3);
    }
}
