//! Features that every crate above the core passes on.

use anyhow::Result;

use crate::workspace::{Kind, Package, Workspace};

/// The crates that compute by Burn.
const BUILT_ON_BURN: [&str; 4] = ["lrvd-burn", "lrvd-models", "lrvd-bench", "lrvd-cli"];
/// The default backend and the two that may be added.
const DEFAULT: &str = "flex";
const ADDED: [&str; 2] = ["wgpu", "cuda"];

/// Backends are features that add up, passed on by every crate above the core.
#[expect(clippy::unnecessary_wraps, reason = "all checks have one signature")]
pub(crate) fn add_up(workspace: &Workspace) -> Result<Vec<String>> {
    Ok(workspace
        .packages
        .iter()
        .filter(|p| BUILT_ON_BURN.contains(&p.name.as_str()))
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
            .filter(|d| d.kind == Kind::Normal && BUILT_ON_BURN.contains(&d.name.as_str()));
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
