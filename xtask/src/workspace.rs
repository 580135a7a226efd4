//! The workspace as files and as packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// Where a dependency is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By the library or the binary.
    Normal,
    /// By tests, examples and benches.
    Development,
    /// By the build script.
    Build,
}

/// A line of a manifest's dependency tables.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// Package name.
    pub(crate) name: String,
    /// Where it is used.
    pub(crate) kind: Kind,
}

/// A member of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// Package name.
    pub(crate) name: String,
    /// Manifest, relative to the root.
    pub(crate) manifest: String,
    /// Direct dependencies.
    pub(crate) dependencies: Vec<Dependency>,
    /// Features with what each switches on.
    pub(crate) features: Vec<(String, Vec<String>)>,
}

/// Files that belong to the repository, and its packages.
pub(crate) struct Workspace {
    /// The folder that holds everything.
    pub(crate) root: PathBuf,
    /// Files relative to the root, sorted: tracked ones and those that could be.
    pub(crate) files: Vec<String>,
    /// Members, by name.
    pub(crate) packages: Vec<Package>,
}

/// The root of the workspace this program was built from.
pub(crate) fn root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = own.parent().context("the xtask package has no parent folder")?;
    Ok(root.to_owned())
}

impl Workspace {
    /// Reads the list of files from git and the packages from cargo.
    pub(crate) fn read() -> Result<Self> {
        let root = root()?;
        let files = files(&root)?;
        let mut command = process::cargo(&root);
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let packages = packages(&process::output(&mut command)?, &root)?;
        Ok(Self { root, files, packages })
    }

    /// The text of a file, or `None` if it is not text.
    pub(crate) fn text(&self, file: &str) -> Result<Option<String>> {
        let bytes =
            std::fs::read(self.root.join(file)).with_context(|| format!("cannot read `{file}`"))?;
        Ok(String::from_utf8(bytes).ok())
    }

    /// Whether a file or folder of this name exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Files below `folder` whose name ends with `ending`.
    pub(crate) fn below<'a>(
        &'a self,
        folder: &'a str,
        ending: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        self.files
            .iter()
            .map(String::as_str)
            .filter(move |f| f.starts_with(folder) && f.ends_with(ending))
    }
}

fn files(root: &Path) -> Result<Vec<String>> {
    // A checkout may belong to another user, as in containers; reading a list of names is harmless.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"])
        .arg("--exclude-standard")
        .current_dir(root);
    let listed = process::output(&mut git).context("the list of files comes from git")?;
    let mut files: Vec<String> = listed
        .split('\0')
        .filter(|f| !f.is_empty() && root.join(f).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    if files.is_empty() {
        bail!("git lists no file below `{}`", root.display());
    }
    Ok(files)
}

fn packages(metadata: &str, root: &Path) -> Result<Vec<Package>> {
    let value: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let list = value["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut packages = list
        .iter()
        .map(|p| package(p, root).with_context(|| format!("package `{}`", p["name"])))
        .collect::<Result<Vec<_>>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn package(value: &Value, root: &Path) -> Result<Package> {
    let text = |v: &Value| v.as_str().map(str::to_owned).context("a field is missing");
    let manifest = text(&value["manifest_path"])?;
    let manifest = Path::new(&manifest)
        .strip_prefix(root)
        .context("the manifest is outside the workspace")?
        .to_string_lossy()
        .replace('\\', "/");
    let dependencies = value["dependencies"]
        .as_array()
        .context("no dependencies")?
        .iter()
        .map(|d| {
            let kind = match d["kind"].as_str() {
                None => Kind::Normal,
                Some("dev") => Kind::Development,
                Some("build") => Kind::Build,
                Some(other) => bail!("unknown kind of dependency `{other}`"),
            };
            Ok(Dependency { name: text(&d["name"])?, kind })
        })
        .collect::<Result<_>>()?;
    let features = value["features"]
        .as_object()
        .context("no features")?
        .iter()
        .map(|(name, list)| {
            let list = list.as_array().context("a feature is no list")?;
            Ok((name.clone(), list.iter().map(text).collect::<Result<_>>()?))
        })
        .collect::<Result<_>>()?;
    Ok(Package { name: text(&value["name"])?, manifest, dependencies, features })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn metadata_is_read_with_kinds_and_features() {
        let text = r#"{"packages": [{
            "name": "upper", "manifest_path": "/w/crates/upper/Cargo.toml",
            "dependencies": [
                {"name": "lower", "kind": null}, {"name": "tempfile", "kind": "dev"},
                {"name": "cc", "kind": "build"}],
            "features": {"default": ["flex"], "flex": []}}]}"#;
        let found = packages(text, Path::new("/w")).unwrap();
        assert_eq!(found[0].manifest, "crates/upper/Cargo.toml");
        let kinds: Vec<Kind> = found[0].dependencies.iter().map(|d| d.kind).collect();
        assert_eq!(kinds, [Kind::Normal, Kind::Development, Kind::Build]);
        assert_eq!(found[0].features[0], ("default".to_owned(), vec!["flex".to_owned()]));
        assert!(packages(text, Path::new("/elsewhere")).is_err());
        assert!(packages("{}", Path::new("/w")).is_err());
    }
}
