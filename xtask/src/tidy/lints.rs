//! What the compiler and clippy refuse: their settings are there, and no source suspends them.
//!
//! The lists themselves are in `Cargo.toml` and `clippy.toml`; `cargo xtask check` runs clippy with warnings as errors.

use std::collections::BTreeSet;

use anyhow::Result;

use super::manifest::read;
use super::sources::mentions;
use crate::workspace::{Kind, Workspace};

/// Where the CLI writes.
const PRINTER: &str = "crates/lrvd-cli/src/printer";
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

const NOISE: [&str; 6] = [
    "burn::tensor::Device::seed",
    "burn::tensor::Tensor::random",
    "burn::nn::Dropout",
    "burn::nn::DropoutConfig",
    "burn::nn::GaussianNoise",
    "burn::nn::GaussianNoiseConfig",
];
const EDGES: [&str; 9] = [
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::env::vars_os",
    "std::env::set_var",
    "std::env::remove_var",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
];

/// No print macro.
pub(crate) fn prints(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for lint in ["print_stdout", "print_stderr", "dbg_macro"] {
        if level(workspace, "clippy", lint)?.is_none() {
            findings.push(format!("Cargo.toml: the lint `{lint}` is not switched on"));
        }
        findings.extend(suspended(workspace, lint, &[PRINTER])?);
    }
    Ok(findings)
}

/// No randomness but that of a key.
pub(crate) fn noise(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = unlisted(workspace, &NOISE)?;
    findings.extend(suspended(workspace, "disallowed_types", &[])?);
    // Its one other use is the environment's.
    findings.extend(suspended(workspace, "disallowed_methods", &ENVIRONMENT)?);
    for package in workspace.packages.iter().filter(|p| p.manifest.starts_with("crates/")) {
        let found = package.dependencies.iter().filter(|d| GENERATORS.contains(&d.name.as_str()));
        findings.extend(found.map(|d| format!("{}: dependency `{}`", package.manifest, d.name)));
    }
    Ok(findings)
}

/// No unsafe code: what is forbidden cannot be permitted further down.
pub(crate) fn no_unsafe(workspace: &Workspace) -> Result<Vec<String>> {
    let found = level(workspace, "rust", "unsafe_code")?;
    let missing = found.as_deref() != Some("forbid");
    Ok(missing
        .then(|| "Cargo.toml: the lint `unsafe_code` is not `forbid`".to_owned())
        .into_iter()
        .collect())
}

/// Environment and network in their places.
pub(crate) fn edges(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = unlisted(workspace, &EDGES)?;
    findings.extend(suspended(workspace, "disallowed_methods", &ENVIRONMENT)?);
    findings.extend(suspended(workspace, "disallowed_types", &[])?);
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

/// The level of a lint in the workspace's table.
fn level(workspace: &Workspace, tool: &str, lint: &str) -> Result<Option<String>> {
    let manifest = read(workspace, "Cargo.toml")?;
    let entry = (|| manifest.get("workspace")?.get("lints")?.get(tool)?.get(lint))();
    let level = entry.and_then(|e| e.as_str().or_else(|| e.get("level")?.as_str()));
    Ok(level.filter(|level| *level != "allow").map(str::to_owned))
}

/// Those of `paths` that clippy is not told to refuse.
fn unlisted(workspace: &Workspace, paths: &[&str]) -> Result<Vec<String>> {
    let settings = read(workspace, "clippy.toml")?;
    let lists = ["disallowed-methods", "disallowed-types"].into_iter();
    let entries = lists.filter_map(|name| settings.get(name)?.as_array()).flatten();
    let listed: BTreeSet<&str> = entries.filter_map(|entry| entry.get("path")?.as_str()).collect();
    Ok(paths
        .iter()
        .filter(|path| !listed.contains(*path))
        .map(|path| format!("clippy.toml: `{path}` is not disallowed"))
        .collect())
}

/// Library sources outside `permitted` that suspend a lint of clippy.
fn suspended(workspace: &Workspace, lint: &str, permitted: &[&str]) -> Result<Vec<String>> {
    mentions(workspace, "crates/", permitted, &[lint])
}
