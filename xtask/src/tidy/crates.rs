//! Which package may use which.

use anyhow::Result;

use crate::workspace::{Kind, Package, Workspace};

/// The chain, lowest first: each may use those before it.
const CHAIN: [&str; 5] = ["lrvd-core", "lrvd-burn", "lrvd-models", "lrvd-bench", "lrvd-cli"];
/// Packages beside the chain, which nothing may use, and whether they may use the chain.
const BESIDE: [(&str, bool); 2] = [("lrvd-perf", true), ("xtask", false)];
/// Crates that only make sense where there is a terminal and a person.
const TERMINAL: [&str; 9] = [
    "clap",
    "comfy-table",
    "console",
    "crossterm",
    "ctrlc",
    "eyre",
    "indicatif",
    "signal-hook",
    "tracing-subscriber",
];
/// The default backend and the two that may be added.
const DEFAULT: &str = "flex";
const ADDED: [&str; 2] = ["wgpu", "cuda"];

/// No package uses one above it.
#[expect(clippy::unnecessary_wraps, reason = "all checks have one signature")]
pub(crate) fn directions(workspace: &Workspace) -> Result<Vec<String>> {
    Ok(wrong_directions(&workspace.packages))
}

fn wrong_directions(packages: &[Package]) -> Vec<String> {
    let height = |name: &str| CHAIN.iter().position(|c| *c == name);
    let beside = |name: &str| BESIDE.iter().find(|(b, _)| *b == name);
    let mut findings = Vec::new();
    for package in packages {
        let own = height(&package.name);
        if own.is_none() && beside(&package.name).is_none() {
            findings.push(format!(
                "{}: `{}` has no place in the order; give it one in xtask/src/tidy/crates.rs",
                package.manifest, package.name
            ));
            continue;
        }
        let members =
            package.dependencies.iter().filter(|d| packages.iter().any(|p| p.name == d.name));
        for dependency in members {
            let allowed = match (own, height(&dependency.name)) {
                (Some(own), Some(other)) => other < own,
                (None, Some(_)) => beside(&package.name).is_some_and(|(_, may)| *may),
                (_, None) => false,
            };
            if !allowed {
                findings.push(format!(
                    "{}: `{}` may not use `{}`",
                    package.manifest, package.name, dependency.name
                ));
            }
        }
    }
    for name in CHAIN {
        if packages.iter().all(|p| p.name != name) {
            findings.push(format!("no package `{name}`"));
        }
    }
    findings
}

/// Terminal crates are direct dependencies of the CLI alone.
#[expect(clippy::unnecessary_wraps, reason = "all checks have one signature")]
pub(crate) fn terminal(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        if !CHAIN[..CHAIN.len() - 1].contains(&package.name.as_str()) {
            continue;
        }
        let found = package
            .dependencies
            .iter()
            .filter(|d| d.kind != Kind::Development && TERMINAL.contains(&d.name.as_str()));
        findings.extend(found.map(|d| format!("{}: dependency `{}`", package.manifest, d.name)));
    }
    Ok(findings)
}

/// Backends are features that add up, passed on by every crate above the core.
#[expect(clippy::unnecessary_wraps, reason = "all checks have one signature")]
pub(crate) fn features(workspace: &Workspace) -> Result<Vec<String>> {
    Ok(workspace
        .packages
        .iter()
        .filter(|p| CHAIN[1..].contains(&p.name.as_str()))
        .flat_map(wrong_features)
        .collect())
}

fn wrong_features(package: &Package) -> Vec<String> {
    let list = |name: &str| package.features.iter().find(|(n, _)| n == name).map(|(_, l)| l);
    let mut findings = Vec::new();
    let mut wrong = |text: String| findings.push(format!("{}: {text}", package.manifest));
    let default = list("default").map_or(&[][..], Vec::as_slice);
    if !default.iter().any(|s| s == DEFAULT) || default.iter().any(|s| ADDED.contains(&s.as_str()))
    {
        wrong(format!("`{DEFAULT}` is not the one backend among the default features"));
    }
    for name in ADDED.into_iter().chain([DEFAULT]) {
        let Some(switched) = list(name) else {
            wrong(format!("no feature `{name}`"));
            continue;
        };
        if name != DEFAULT && switched.iter().any(|s| s == DEFAULT || s.ends_with("/flex")) {
            wrong(format!("`{name}` switches `{DEFAULT}` on"));
        }
        let lower = package
            .dependencies
            .iter()
            .filter(|d| d.kind == Kind::Normal && CHAIN[1..].contains(&d.name.as_str()));
        for dependency in lower {
            if !switched.iter().any(|s| *s == format!("{}/{name}", dependency.name)) {
                wrong(format!("`{name}` does not reach `{}`", dependency.name));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, uses: &[&str]) -> Package {
        let dependency = |n: &&str| Dependency { name: (*n).to_owned(), kind: Kind::Normal };
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: uses.iter().map(dependency).collect(),
            features: Vec::new(),
        }
    }

    fn chain() -> Vec<Package> {
        (0..CHAIN.len()).map(|i| package(CHAIN[i], &CHAIN[..i])).collect()
    }

    #[test]
    fn the_chain_has_one_direction() {
        let mut packages = chain();
        packages.push(package("lrvd-perf", &["lrvd-core", "lrvd-models"]));
        packages.push(package("xtask", &["serde_json"]));
        assert_eq!(wrong_directions(&packages), [""; 0]);
        packages[0] = package("lrvd-core", &["lrvd-burn"]);
        packages[1] = package("lrvd-burn", &["lrvd-perf"]);
        packages.push(package("xtask", &["lrvd-core"]));
        packages.push(package("newcomer", &[]));
        assert_eq!(wrong_directions(&packages).len(), 4);
        assert_eq!(
            wrong_directions(&packages[1..]).last().map(String::as_str),
            Some("no package `lrvd-core`")
        );
    }

    #[test]
    fn features_reach_down_and_do_not_bring_the_default() {
        let mut upper = package("lrvd-models", &["lrvd-core", "lrvd-burn"]);
        let set = |text: &str| {
            text.lines()
                .filter_map(|l| l.split_once('='))
                .map(|(n, l)| {
                    (n.trim().to_owned(), l.split_whitespace().map(str::to_owned).collect())
                })
                .collect::<Vec<_>>()
        };
        upper.features = set(
            "default=flex\nflex=burn/flex lrvd-burn/flex\nwgpu=lrvd-burn/wgpu\ncuda=lrvd-burn/cuda",
        );
        assert_eq!(wrong_features(&upper), [""; 0]);
        upper.features =
            set("default=flex wgpu\nflex=lrvd-burn/flex\nwgpu=flex lrvd-burn/wgpu\ncuda=");
        let found = wrong_features(&upper);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
