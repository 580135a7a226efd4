//! The invariants that `docs/architecture.md` states of the workspace.
//!
//! Every invariant of that document is a function here, and the document must name every one of
//! them: the drawing of the architecture is executed.

mod core;
mod documents;
mod english;
mod files;
mod manifest;
mod modules;
mod ops;
mod sources;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// A rule about the workspace.
struct Invariant {
    /// How the document and the command line call it.
    name: &'static str,
    /// What must hold.
    claim: &'static str,
    /// Places where it does not, as `path:line: what`.
    check: fn(&Workspace) -> Result<Vec<String>>,
}

macro_rules! rules {
    ($($name:literal, $check:path, $claim:literal;)*) => {
        &[$(Invariant { name: $name, claim: $claim, check: $check },)*]
    };
}

/// All rules, in the order of the document.
const INVARIANTS: &[Invariant] = rules! {
    "core-is-plain", core::plain,
        "lrvd-core depends on error and serialisation macros only, and does no I/O";
    "module-directions", modules::directions,
        "modules use one another in one direction: at the top of every crate, in the upper crates everywhere";
    "backends-in-ops", sources::backends,
        "code that is generic over Burn's backends stays in lrvd-burn's operators";
    "operators-have-twins", ops::twins,
        "an operator with a hand-written form has a composite one, a backward node and a test";
    "one-version-table", manifest::versions,
        "every dependency comes from the workspace's table, where Burn is pinned exactly";
    "workspace-lints", manifest::lints,
        "every package inherits the workspace's lints";
    "features-add-up", manifest::features,
        "flex is the default; wgpu and cuda only add, through every crate above the core";
    "golden-has-origin", files::golden,
        "fixtures have a README that names their generator";
    "no-machine-paths", files::machine_paths,
        "no absolute path of some machine, no other registry in cargo's settings";
    "documents-hold", documents::hold,
        "links between documents resolve, and derivations name code and tests that exist";
    "plain-english", english::plain,
        "documents, comments and help texts are free of the phrases that CONTRIBUTING.md bans";
    "invariants-are-listed", documents::list_invariants,
        "docs/architecture.md lists exactly these invariants";
};

/// The invariants that can be named.
pub(crate) fn names() -> Vec<&'static str> {
    INVARIANTS.iter().map(|invariant| invariant.name).collect()
}

/// Checks all invariants or the named ones, or with `list` prints them.
pub(crate) fn run(names: &[String], list: bool) -> Result<ExitCode> {
    if list {
        for invariant in INVARIANTS {
            println!("{:<24} {}", invariant.name, invariant.claim);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let is_chosen =
        |invariant: &&Invariant| names.is_empty() || names.iter().any(|n| n == invariant.name);
    enforce(&Workspace::read()?, &INVARIANTS.iter().filter(is_chosen).collect::<Vec<_>>())?;
    Ok(ExitCode::SUCCESS)
}

/// Checks `chosen`; an error lists every place that breaks one of them.
fn enforce(workspace: &Workspace, chosen: &[&Invariant]) -> Result<()> {
    let mut broken = 0;
    for invariant in chosen {
        let findings = (invariant.check)(workspace)?;
        let verdict = if findings.is_empty() { "ok" } else { "BROKEN" };
        eprintln!("{:<24} {verdict}", invariant.name);
        if !findings.is_empty() {
            broken += 1;
            eprintln!("  {}", invariant.claim);
            for finding in findings {
                eprintln!("  - {finding}");
            }
        }
    }
    if broken > 0 {
        bail!("{broken} of {} invariants are broken", chosen.len());
    }
    Ok(())
}
