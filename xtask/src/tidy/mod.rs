//! The invariants that `docs/architecture.md` states of the workspace.
//!
//! Every invariant of that document is a function here, and the document must name every one of
//! them: the drawing of the architecture is executed.

mod manifest;
mod reader;
mod sources;
mod texts;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// A rule about the workspace: how the document and the command line call it, what finds the places where it is broken, as
/// `path:line: what`, and what must hold.
type Invariant = (&'static str, fn(&Workspace) -> Result<Vec<String>>, &'static str);

/// All rules, in the order of the document.
const INVARIANTS: [Invariant; 12] = [
    (
        "core-is-plain",
        sources::plain_core,
        "lrvd-core depends on error and serialisation macros only, and does no I/O",
    ),
    (
        "module-directions",
        sources::directions,
        "modules of one parent use one another in one direction, at every level of every crate",
    ),
    (
        "backends-in-ops",
        sources::backends,
        "code that is generic over Burn's backends stays in lrvd-burn's operators",
    ),
    (
        "one-version-table",
        manifest::versions,
        "every dependency comes from the workspace's table, where Burn is pinned exactly",
    ),
    ("workspace-lints", manifest::lints, "every package inherits the workspace's lints"),
    (
        "features-add-up",
        manifest::features,
        "flex is the default; wgpu and cuda only add, through every crate above the core",
    ),
    ("golden-has-origin", texts::golden, "fixtures have a README that names their generator"),
    (
        "no-machine-paths",
        texts::machine_paths,
        "no absolute path of some machine, no other registry in cargo's settings",
    ),
    (
        "documents-hold",
        texts::hold,
        "links between documents resolve, the site has all of them, and derivations name code and tests that exist",
    ),
    (
        "results-are-dated",
        texts::measured,
        "pages of results say revision, date, processor, rows, steps and seeds",
    ),
    (
        "plain-english",
        texts::plain_english,
        "documents, comments and help texts are free of the phrases that CONTRIBUTING.md bans",
    ),
    (
        "invariants-are-listed",
        texts::list_invariants,
        "docs/architecture.md lists exactly these invariants",
    ),
];

/// The invariants that can be named.
pub(crate) fn names() -> Vec<&'static str> {
    INVARIANTS.map(|(name, ..)| name).to_vec()
}

/// Checks all invariants or the named ones, or with `list` prints them; an error lists every place that breaks one.
pub(crate) fn run(names: &[String], list: bool) -> Result<()> {
    if list {
        for (name, _, claim) in INVARIANTS {
            println!("{name:<24} {claim}");
        }
        return Ok(());
    }
    let workspace = Workspace::read()?;
    let mut checked = 0;
    let mut broken = 0;
    for (name, check, claim) in INVARIANTS {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        checked += 1;
        let findings = check(&workspace)?;
        let verdict = if findings.is_empty() { "ok" } else { "BROKEN" };
        eprintln!("{name:<24} {verdict}");
        if !findings.is_empty() {
            broken += 1;
            eprintln!("  {claim}");
            for finding in findings {
                eprintln!("  - {finding}");
            }
        }
    }
    if broken > 0 {
        bail!("{broken} of {checked} invariants are broken");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `broken.txt` is a workspace, each file below a line `== PATH`, and last what is found in it. A `@` keeps the file
    /// itself free of the paths.
    #[test]
    fn broken_invariants_are_found_with_their_places() {
        let text = include_str!("broken.txt").replace('@', "");
        let (files, expected) = text.split_once("\n== FINDINGS\n").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut workspace = Workspace { root: folder.path().to_owned(), files: Vec::new() };
        for file in files.split("== ").skip(1) {
            let (name, text) = file.split_once('\n').unwrap();
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            workspace.files.push(name.to_owned());
        }
        let mut found = Vec::new();
        // The first one asks cargo for the tree of dependencies.
        for (name, check, _) in &INVARIANTS[1..] {
            found.push((*name).to_owned());
            found.extend(check(&workspace).unwrap().iter().map(|what| format!("  {what}")));
        }
        assert_eq!(found.join("\n"), expected.trim_end(), "{found:#?}");
    }
}
