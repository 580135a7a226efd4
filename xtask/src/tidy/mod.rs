//! The invariants that `docs/architecture.md` states of the workspace.
//!
//! Every invariant of that document is a function here, and the document must name every one of
//! them: the drawing of the architecture is executed.

mod core;
mod crates;
mod documents;
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

/// All rules, in the order of the document.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "core-is-plain",
        claim: "lrvd-core depends on error and serialisation macros only, and does no I/O",
        check: core::plain,
    },
    Invariant {
        name: "crate-directions",
        claim: "lrvd-core <- lrvd-burn <- lrvd-models <- lrvd-bench <- lrvd-cli; no way back",
        check: crates::directions,
    },
    Invariant {
        name: "module-directions",
        claim: "the top-level modules of a crate use one another in one direction",
        check: modules::directions,
    },
    Invariant {
        name: "terminal-in-cli",
        claim: "argument parsing, progress bars and signal handlers are the CLI's",
        check: crates::terminal,
    },
    Invariant {
        name: "no-prints",
        claim: "no library writes to the terminal; in the CLI only the printer does",
        check: lints::prints,
    },
    Invariant {
        name: "noise-is-an-argument",
        claim: "no process-wide seed, no random tensors of Burn, no dropout that hides its mask",
        check: lints::noise,
    },
    Invariant {
        name: "no-unsafe",
        claim: "no unsafe code, and no permission for it",
        check: lints::no_unsafe,
    },
    Invariant {
        name: "backends-in-ops",
        claim: "code that is generic over Burn's backends stays in lrvd-burn's operators",
        check: sources::backends,
    },
    Invariant {
        name: "environment-at-edges",
        claim: "environment and network are met in named files only",
        check: lints::edges,
    },
    Invariant {
        name: "operators-have-twins",
        claim: "an operator with a hand-written form has a composite one, a backward node and a test",
        check: ops::twins,
    },
    Invariant {
        name: "one-version-table",
        claim: "every dependency comes from the workspace's table, where Burn is pinned exactly",
        check: manifest::versions,
    },
    Invariant {
        name: "workspace-lints",
        claim: "every package inherits the workspace's lints",
        check: manifest::lints,
    },
    Invariant {
        name: "features-add-up",
        claim: "flex is the default; wgpu and cuda only add, through every crate above the core",
        check: crates::features,
    },
    Invariant {
        name: "golden-has-origin",
        claim: "fixtures have a README that names their generator",
        check: files::golden,
    },
    Invariant {
        name: "file-sizes",
        claim: "no source file over 800 lines without a stated reason",
        check: files::sizes,
    },
    Invariant {
        name: "no-machine-paths",
        claim: "no absolute path of some machine, no registry other than crates.io",
        check: files::machine_paths,
    },
    Invariant {
        name: "documents-hold",
        claim: "links between documents resolve, and derivations name code and tests that exist",
        check: documents::hold,
    },
    Invariant {
        name: "invariants-are-listed",
        claim: "docs/architecture.md lists exactly these invariants",
        check: documents::list_invariants,
    },
];

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
