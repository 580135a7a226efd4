//! What clippy rejects is suspended in its places only, and what it has no words for.
//!
//! The lists themselves are in `clippy.toml`; `cargo xtask check` runs clippy with warnings as errors.

use anyhow::Result;

use super::sources::mentions;
use crate::workspace::{Kind, Workspace};

/// Where the environment may be read.
const ENVIRONMENT: [&str; 3] = [
    "crates/lrvd-bench/src/backbone/hub.rs",
    "crates/lrvd-bench/src/suite/run.rs",
    "crates/lrvd-cli/src/",
];
/// Who opens connections: the client of the model hub and the server.
const NETWORK: [Network; 2] = [
    Network {
        places: &["crates/lrvd-bench/src/backbone/hub"],
        client: "ureq",
        user: "lrvd-bench",
        words: &["ureq"],
    },
    Network {
        places: &["crates/lrvd-cli/src/serve/"],
        client: "axum",
        user: "lrvd-cli",
        words: &["axum", "tokio"],
    },
];

/// One of those who open connections.
struct Network {
    /// Where.
    places: &'static [&'static str],
    /// By which crate.
    client: &'static str,
    /// Which shipped package alone depends on it outside tests.
    user: &'static str,
    /// What its sources alone mention.
    words: &'static [&'static str],
}

/// Crates that make random numbers.
const GENERATORS: [&str; 4] = ["rand", "fastrand", "getrandom", "oorandom"];

/// No randomness but that of a key.
pub(crate) fn noise(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = mentions(workspace, "crates/", &[], &["disallowed_types"])?;
    // Its one other use is the environment's.
    findings.extend(mentions(workspace, "crates/", &ENVIRONMENT, &["disallowed_methods"])?);
    for package in workspace.packages.iter().filter(|p| p.manifest.starts_with("crates/")) {
        let found = package.dependencies.iter().filter(|d| GENERATORS.contains(&d.name.as_str()));
        findings.extend(found.map(|d| format!("{}: dependency `{}`", package.manifest, d.name)));
    }
    Ok(findings)
}

/// Environment and network in their places.
pub(crate) fn edges(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = mentions(workspace, "crates/", &ENVIRONMENT, &["disallowed_methods"])?;
    findings.extend(mentions(workspace, "crates/", &[], &["disallowed_types"])?);
    for Network { places, client, user, words } in NETWORK {
        findings.extend(mentions(workspace, "crates/", places, words)?);
        let others = workspace.packages.iter().filter(|package| package.name != user);
        let shipped = others.filter(|package| package.manifest.starts_with("crates/"));
        let users = shipped
            .filter(|p| p.dependencies.iter().any(|d| d.kind == Kind::Normal && d.name == client));
        findings.extend(users.map(|p| format!("{}: dependency `{client}`", p.manifest)));
    }
    Ok(findings)
}
