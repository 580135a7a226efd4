//! The site: the documents and a reference that the program prints, as pages with search.

mod help;
mod settings;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::{self, Workspace};
use crate::{forward, process};
use help::Help;

/// Programs that make the site, with their version and the features that they are built with.
const TOOLS: [(&str, &str, &[&str]); 3] = [
    ("mdbook", "0.5.3", &["--no-default-features", "--features", "search"]),
    ("mdbook-katex", "0.10.0", &[]),
    ("hyperlink", "0.3.2", &[]),
];
/// Folder of the documents.
pub(crate) const DOCS: &str = "docs/";
/// The list of the pages.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
/// Place of what a document links to outside of `docs`.
const REPOSITORY: &str = "https://github.com/lrvd/lrvd";

/// Builds the site into `target/site/html`, and checks its links.
pub(crate) fn run(program: Option<&Path>) -> Result<()> {
    let workspace = Workspace::read()?;
    let root = &workspace.root;
    let program = forward::program(root, program)?;
    let target = workspace::target(root);
    let path = install(root, &target.join("tools"))?;
    let [source, pages] = ["site/source", "site/html"].map(|name| target.join(name));
    for folder in [&source, &pages] {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
    }
    copy(&workspace, &source)?;
    write_reference(&program, &source)?;
    let tool = |name: &str| {
        let mut command = Command::new(name);
        let katex = format!("'{}'", root.join("xtask/katex.sh").display());
        command.current_dir(root).env("PATH", &path);
        command.env("MDBOOK_PREPROCESSOR__KATEX__COMMAND", katex);
        command
    };
    process::run(tool("mdbook").arg("build").arg("--dest-dir").args([&pages, &source]))?;
    process::run(tool("hyperlink").arg("--check-anchors").arg(&pages))?;
    println!("{}", pages.join("index.html").display());
    Ok(())
}

/// Installs into `folder` the tools that are not on the path in their version; returns the path with them.
fn install(root: &Path, folder: &Path) -> Result<OsString> {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&before));
    let path = std::env::join_paths(folders).context("PATH")?;
    for (name, version, features) in TOOLS {
        let printed = process::output(Command::new(name).arg("--version").env("PATH", &path));
        if printed.is_ok_and(|text| text.contains(version)) {
            continue;
        }
        // Unoptimised they are built in half of the time, and are fast enough.
        let mut command = process::cargo(root);
        command.args(["install", "--locked", "--debug", "--version", version, name]);
        process::run(command.args(features).arg("--root").arg(folder))?;
    }
    Ok(path)
}

/// Copies the documents into `source`, their links to other files of the repository made addresses.
fn copy(workspace: &Workspace, source: &Path) -> Result<()> {
    for file in workspace.below(DOCS, "") {
        let copied = source.join(&file[DOCS.len()..]);
        let folder = copied.parent().unwrap_or(source);
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let is_page = file != SUMMARY && copied.extension().is_some_and(|name| name == "md");
        let text = if is_page { workspace.text(file)? } else { None };
        match text {
            Some(text) => fs::write(&copied, outward(&text, file, &workspace.files)),
            None => fs::copy(workspace.root.join(file), &copied).map(drop),
        }
        .with_context(|| format!("cannot write `{}`", copied.display()))?;
    }
    Ok(())
}

/// A document with the links that it has on the site: addresses of what is not there.
fn outward(text: &str, file: &str, files: &[String]) -> String {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let address = |target: &str| {
        let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
        if path.is_empty() || path.contains(':') {
            return None;
        }
        let path = normal(&folder.join(path));
        let is_file = files.binary_search(&path).is_ok();
        let kind = if is_file { "blob" } else { "tree" };
        if !is_file || !path.starts_with(DOCS) || path == SUMMARY {
            return Some(format!("{REPOSITORY}/{kind}/main/{path}{anchor}"));
        }
        // The page of a README is the index of its folder.
        path.ends_with("README.md").then(|| target.replace("README.md", "index.md"))
    };
    let mut out = String::new();
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if fenced || is_fence {
            out.push_str(line);
            continue;
        }
        for (i, part) in line.split('`').enumerate() {
            out.push_str(if i > 0 { "`" } else { "" });
            let is_code = i % 2 == 1;
            for (j, part) in part.split("](").enumerate() {
                out.push_str(if j > 0 { "](" } else { "" });
                let target = part.split(')').next().filter(|_| j > 0 && !is_code);
                match target.and_then(|target| Some((target, address(target)?))) {
                    Some((target, address)) => {
                        out.push_str(&address);
                        out.push_str(&part[target.len()..]);
                    }
                    None => out.push_str(part),
                }
            }
        }
    }
    out
}

/// A path without `.` and `..`, with `/`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.iter().filter_map(|part| part.to_str()) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Writes the reference in place of the entries without a page in the summary of `source`.
fn write_reference(program: &Path, source: &Path) -> Result<()> {
    let folder = source.join("reference");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let write = |file: PathBuf, text: &str| {
        fs::write(&file, text).with_context(|| format!("cannot write `{}`", file.display()))
    };
    let commands = commands(program)?;
    let mut entry = "[Commands](reference/commands.md)".to_owned();
    for (name, page) in &commands {
        if name != "commands" {
            let _ = write!(entry, "\n  - [{}](reference/{name}.md)", name.replace('-', " "));
        }
        write(folder.join(format!("{name}.md")), page)?;
    }
    write(folder.join("settings.md"), &settings::page(program)?)?;
    write(folder.join("methods.md"), &methods(program)?)?;
    let file = source.join(Path::new(SUMMARY).file_name().unwrap_or_default());
    let mut summary = fs::read_to_string(&file).with_context(|| SUMMARY.to_owned())?;
    for (empty, entry) in [
        ("[Commands]()", &*entry),
        ("[Settings]()", "[Settings](reference/settings.md)"),
        ("[Methods]()", "[Methods](reference/methods.md)"),
    ] {
        if !summary.contains(empty) {
            bail!("`{SUMMARY}` has no entry `{empty}`");
        }
        summary = summary.replace(empty, entry);
    }
    write(file, &summary)
}

/// The page `commands` with all commands and their common options, then a page for each command, by file.
fn commands(program: &Path) -> Result<Vec<(String, String)>> {
    let help = |words: &[&str]| {
        let text = print(program, &[words, &["--help"]].concat())?;
        Ok::<_, anyhow::Error>(Help::read(&text))
    };
    let common = help(&[])?;
    let mut index = common.page("lrvd", 1, &Help::default());
    let mut pages = Vec::new();
    for (name, _) in common.commands() {
        let own = help(&[name])?;
        let mut page = own.page(&format!("lrvd {name}"), 1, &common);
        for (part, _) in own.commands() {
            page += &help(&[name, part])?.page(&format!("lrvd {name} {part}"), 2, &common);
        }
        index = index.replace(&format!("\n`{name}`\n"), &format!("\n[`{name}`](lrvd-{name}.md)\n"));
        page += "\n[Options of all commands](commands.md#options)\n";
        pages.push((format!("lrvd-{name}"), page));
    }
    pages.insert(0, ("commands".to_owned(), index));
    Ok(pages)
}

/// The page of the methods.
fn methods(program: &Path) -> Result<String> {
    let listed = print(program, &["methods", "--format", "json"])?;
    let listed: Value = serde_json::from_str(&listed).context("`lrvd methods --format json`")?;
    let help = Help::read(&print(program, &["methods", "--help"])?);
    let mut page = "# Methods\n\n| `--method` | | learns | draws | train | texts | |\n".to_owned();
    page += "|---|---|---|---|---|---|---|\n";
    for method in listed["methods"].as_array().into_iter().flatten() {
        let text = |key: &str| help::escaped(method[key].as_str().unwrap_or_default());
        let mark = |key: &str| if method[key] == true { "yes" } else { "" };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} ({}) |",
            method["method"].as_str().unwrap_or_default(),
            text("name"),
            text("learns"),
            mark("draws"),
            mark("train"),
            mark("texts"),
            text("summary"),
            text("source"),
        );
    }
    Ok(page + "\n" + help.notes())
}

/// Standard output of the program.
fn print(program: &Path, words: &[&str]) -> Result<String> {
    process::output(Command::new(program).args(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_documents_are_addresses() {
        let files = ["README.md", "docs/a.csv", "docs/guides/b.md", "docs/r/README.md"];
        let files = files.map(String::from);
        for (text, expected) in [
            ("[b](b.md#part)", "[b](b.md#part)"),
            (
                "[a](../a.csv), [here](#x), [far](https://x.org/y)",
                "[a](../a.csv), [here](#x), [far](https://x.org/y)",
            ),
            (
                "[`r`](../../README.md#top) and",
                "[`r`](https://github.com/lrvd/lrvd/blob/main/README.md#top) and",
            ),
            ("[r](../r/README.md#x)", "[r](../r/index.md#x)"),
            ("[x](../results)", "[x](https://github.com/lrvd/lrvd/tree/main/docs/results)"),
            ("`[x](../../README.md)`", "`[x](../../README.md)`"),
            ("```\n[x](../../README.md)\n```\n", "```\n[x](../../README.md)\n```\n"),
        ] {
            assert_eq!(outward(text, "docs/guides/c.md", &files), expected);
        }
    }
}
