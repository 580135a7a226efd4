//! The programs of the documents in a crate outside the workspace, as a user has them.
//!
//! Inside it every crate has Burn at hand, so that a program which lacks an import compiles there and nowhere else.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

/// Documents, and the names of their programs.
const DOCUMENTS: [(&str, &str); 3] = [
    ("docs/tutorials/own-model.md", "own_model"),
    ("crates/lrvd-burn/README.md", "lrvd_burn_readme"),
    ("docs/guides/first-adapter.md", "first_adapter"),
];
/// The document that says what a `Cargo.toml` needs, and the place of the clone in it.
const MANIFEST: (&str, &str) = ("docs/tutorials/own-model.md", "\"lrvd/");

/// Type-checks the programs; the documentation tests run them. The crate takes over the workspace's profile `dev`, lock file
/// and target folder, so that what the workspace has checked with the same features is not checked again.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root()?;
    let folder = tempfile::tempdir()?;
    let read = |file: &str| {
        std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read `{file}`"))
    };
    let write = |file: &str, text: &str| {
        std::fs::write(folder.path().join(file), text)
            .with_context(|| format!("cannot write `{file}`"))
    };
    std::fs::create_dir_all(folder.path().join("src/bin"))?;
    write("Cargo.toml", &manifest(&root, &read(MANIFEST.0)?, &read("Cargo.toml")?)?)?;
    write("Cargo.lock", &read("Cargo.lock")?)?;
    for (document, name) in DOCUMENTS {
        let text = read(document)?;
        let program = block(&text, "rust", "fn main()").with_context(|| document.to_owned())?;
        write(&format!("src/bin/{name}.rs"), program)?;
    }
    let mut command = process::cargo(folder.path());
    command.args(["check", "--bins"]).env("CARGO_TARGET_DIR", workspace::target(&root));
    process::run(&mut command)
}

/// The `Cargo.toml` of a user: what `document` says, with the workspace at `root` as the clone, and its profile of tests.
fn manifest(root: &Path, document: &str, workspace: &str) -> Result<String> {
    let dependencies = block(document, "toml", "[dependencies]").context(MANIFEST.0)?;
    if !dependencies.contains(MANIFEST.1) {
        bail!("`{}` names no path that starts with {}", MANIFEST.0, MANIFEST.1);
    }
    let place = root.to_str().context("the path of the workspace is not UTF-8")?;
    let dependencies = dependencies.replace(MANIFEST.1, &format!("\"{place}/"));
    let workspace: toml::Table = toml::from_str(workspace).context("`Cargo.toml`")?;
    let profile = workspace.get("profile").and_then(|profiles| profiles.get("dev"));
    let dev = toml::Table::from_iter(profile.map(|dev| ("dev".to_owned(), dev.clone())));
    let profiles = toml::Table::from_iter([("profile".to_owned(), dev.into())]);
    let mut text =
        "[package]\nname = \"outside\"\nedition = \"2024\"\npublish = false\n".to_owned();
    write!(text, "\n[workspace]\n\n{dependencies}\n{}", toml::to_string(&profiles)?)?;
    Ok(text)
}

/// The first block of `text` in `language` that holds `part`.
fn block<'a>(text: &'a str, language: &str, part: &str) -> Result<&'a str> {
    let opening = format!("```{language}\n");
    let blocks = text.split(&opening).skip(1);
    let mut blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    blocks
        .find(|block| block.contains(part))
        .with_context(|| format!("there is no block of {language} with `{part}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_documents_have_programs_and_a_manifest() {
        let root = workspace::root().unwrap();
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        for (document, _) in DOCUMENTS {
            let text = read(document);
            let program = block(&text, "rust", "fn main()").unwrap();
            assert!(program.contains("use lrvd_burn::burn;"), "{document}");
        }
        let text = manifest(&root, &read(MANIFEST.0), &read("Cargo.toml")).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let path = table["dependencies"]["lrvd-burn"]["path"].as_str().unwrap();
        assert!(Path::new(path).join("Cargo.toml").is_file(), "{path}");
        assert!(table["profile"]["dev"].is_table());
        assert!(block("```rust\nlet x = 1;\n```\n", "rust", "fn main()").is_err());
    }
}
