//! The files of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Files that belong to the repository.
pub(crate) struct Workspace {
    /// The folder that holds everything.
    pub(crate) root: PathBuf,
    /// Files relative to the root, sorted: tracked ones and those that could be.
    pub(crate) files: Vec<String>,
}

/// The root of the workspace this program was built from.
pub(crate) fn root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = own.parent().context("the xtask package has no parent folder")?;
    Ok(root.to_owned())
}

/// The folder of build outputs.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}

impl Workspace {
    /// Reads the list of files from git.
    pub(crate) fn read() -> Result<Self> {
        let root = root()?;
        Ok(Self { files: files(&root)?, root })
    }

    /// The text of a file, or `None` if it is not text.
    pub(crate) fn text(&self, file: &str) -> Result<Option<String>> {
        let bytes =
            std::fs::read(self.root.join(file)).with_context(|| format!("cannot read `{file}`"))?;
        Ok(String::from_utf8(bytes).ok())
    }

    /// True if a file or folder of this name exists.
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
