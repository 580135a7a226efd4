//! The files of a release.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::{forward, process, workspace};

const REVISION: &str = "LRVD_GIT_REVISION";

/// Builds and tests them by `xtask/python/dist.py`, which needs no package.
pub(crate) fn test(arguments: &[String]) -> Result<ExitCode> {
    let root = workspace::root()?;
    let mut command = Command::new("python3");
    command.arg(root.join("xtask/python/dist.py")).args(arguments);
    // The program keeps the revision; a workflow has set it.
    if std::env::var_os(REVISION).is_none()
        && let Some(revision) = forward::revision(&root)
    {
        command.env(REVISION, revision);
    }
    process::forget_cargo(&mut command);
    let shown = process::show(&command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(file: &str) -> String {
        std::fs::read_to_string(workspace::root().unwrap().join(file)).unwrap()
    }

    /// The targets of the workflow.
    fn targets() -> Vec<String> {
        let text = read(".github/workflows/release.yml");
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- { target: "));
        lines.map(|rest| rest.split_once(',').unwrap().0.to_owned()).collect()
    }

    /// cargo-binstall fills in its templates with the names that `dist.py` gives to the archives.
    #[test]
    fn binstall_finds_the_archive_of_every_target() {
        let manifest: toml::Table = read("crates/lrvd-cli/Cargo.toml").parse().unwrap();
        let binstall = &manifest["package"]["metadata"]["binstall"];
        let text = read("xtask/python/dist.py");
        assert!(text.contains(r#"self.name = f"lrvd-{self.target}""#));
        assert_eq!(targets().len(), 5);
        for target in targets() {
            let is_windows = target.contains("windows");
            let own = binstall["overrides"].get(&target);
            assert_eq!(own.is_some(), is_windows, "{target}");
            let own = own.unwrap_or(binstall);
            let url = own["pkg-url"].as_str().unwrap().replace("{ target }", &target);
            let (format, ending) = if is_windows { ("zip", ".zip") } else { ("tgz", ".tar.gz") };
            assert_eq!(own["pkg-fmt"].as_str(), Some(format));
            let file = format!("lrvd-{target}{ending}");
            assert_eq!(url, format!("{{ repo }}/releases/download/v{{ version }}/{file}"));
        }
        let inside = binstall["bin-dir"].as_str().unwrap();
        assert_eq!(inside, "lrvd-{ target }/{ bin }{ binary-ext }");
    }

    #[test]
    fn the_installer_knows_the_targets_but_windows() {
        let text = read("crates/lrvd-cli/install.sh");
        let named = text.lines().filter_map(|line| {
            // The arms of a system have its name in quotes.
            let (system, rest) = line.split_once(") echo ")?;
            system.contains('"').then_some(rest)?.strip_suffix(" ;;")
        });
        let mut named: Vec<&str> = named.collect();
        let mut expected = targets();
        expected.retain(|target| !target.contains("windows"));
        named.sort_unstable();
        expected.sort_unstable();
        assert_eq!(named, expected);
    }

    /// Nothing is published before the tests of the three systems.
    #[test]
    fn a_release_needs_the_continuous_integration() {
        let text = read(".github/workflows/release.yml");
        let jobs = text.split_once("\njobs:\n").unwrap().1;
        let mut needs = std::collections::BTreeMap::new();
        let mut job = "";
        for line in jobs.lines() {
            if let Some(name) = line.strip_prefix("  ").and_then(|l| l.strip_suffix(':'))
                && !name.starts_with(' ')
            {
                job = name;
                needs.insert(job, Vec::new());
            } else if let Some(list) = line.strip_prefix("    needs: ") {
                let list = list.trim_matches(['[', ']']).split(", ").collect();
                needs.insert(job, list);
            }
        }
        for (mut name, _) in needs.clone() {
            while name != "ci" {
                name =
                    needs[name].first().copied().unwrap_or_else(|| panic!("`{name}` needs no job"));
            }
        }
        assert!(jobs.contains("uses: ./.github/workflows/ci.yml"));
        let ci = read(".github/workflows/ci.yml");
        assert!(ci.contains("\n  workflow_call:"));
        assert!(ci.contains("os: [ubuntu-24.04, macos-14, windows-2022]"));
    }
}
