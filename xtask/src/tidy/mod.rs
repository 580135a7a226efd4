//! The invariants that `docs/architecture.md` states of the workspace.
//!
//! Every invariant of that document is a function here, and the document must name every one of
//! them: the drawing of the architecture is executed.

mod core;
mod crates;
mod documents;
mod english;
mod files;
mod lints;
mod manifest;
mod modules;
mod ops;
mod sources;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// A rule about the workspace.
pub(crate) struct Invariant {
    /// How the document and the command line call it.
    pub(crate) name: &'static str,
    /// What must hold.
    pub(crate) claim: &'static str,
    /// Places where it does not, as `path:line: what`.
    check: fn(&Workspace) -> Result<Vec<String>>,
}

macro_rules! rules {
    ($($name:literal, $check:path, $claim:literal;)*) => {
        &[$(Invariant { name: $name, claim: $claim, check: $check },)*]
    };
}

/// All rules, in the order of the document.
pub(crate) const INVARIANTS: &[Invariant] = rules! {
    "core-is-plain", core::plain,
        "lrvd-core depends on error and serialisation macros only, and does no I/O";
    "crate-directions", crates::directions,
        "lrvd-core <- lrvd-burn <- lrvd-models <- lrvd-bench <- lrvd-cli; no way back";
    "module-directions", modules::directions,
        "the top-level modules of a crate use one another in one direction";
    "terminal-in-cli", crates::terminal,
        "argument parsing, progress bars and signal handlers are the CLI's";
    "noise-is-an-argument", lints::noise,
        "no process-wide seed, no random tensors of Burn, no dropout that hides its mask";
    "backends-in-ops", sources::backends,
        "code that is generic over Burn's backends stays in lrvd-burn's operators";
    "environment-at-edges", lints::edges,
        "environment and network are met in named files only";
    "operators-have-twins", ops::twins,
        "an operator with a hand-written form has a composite one, a backward node and a test";
    "one-version-table", manifest::versions,
        "every dependency comes from the workspace's table, where Burn is pinned exactly";
    "workspace-lints", manifest::lints,
        "every package inherits the workspace's lints";
    "features-add-up", crates::features,
        "flex is the default; wgpu and cuda only add, through every crate above the core";
    "golden-has-origin", files::golden,
        "fixtures have a README that names their generator";
    "file-sizes", files::sizes,
        "no source file over 800 lines without a stated reason";
    "no-machine-paths", files::machine_paths,
        "no absolute path of some machine, no other registry in cargo's settings";
    "documents-hold", documents::hold,
        "links between documents resolve, and derivations name code and tests that exist";
    "plain-english", english::plain,
        "documents, comments and help texts are free of the phrases that CONTRIBUTING.md bans";
    "invariants-are-listed", documents::list_invariants,
        "docs/architecture.md lists exactly these invariants";
};

/// Checks `chosen`; an error lists every place that breaks one of them.
pub(crate) fn enforce(workspace: &Workspace, chosen: &[&Invariant]) -> Result<()> {
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
