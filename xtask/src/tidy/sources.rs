//! What library sources use, outside comments and tests.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::reader::{self, Names, Path};
use crate::process;
use crate::workspace::Workspace;

const CORE: &str = "lrvd-core";
/// Everything that may be in the dependency tree of the definitions: errors, optional serialisation, what the two derive macros
/// are made of, and special functions.
const DEPENDENCIES_OF_CORE: [&str; 14] = [
    CORE,
    "approx",
    "libm",
    "num-traits",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "statrs",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
];
/// Parts of the standard library that reach outside the process or depend on more than arguments.
const OUTSIDE: [&str; 7] = ["env", "fs", "io", "net", "process", "thread", "time"];
const OPERATORS: &str = "crates/lrvd-burn/src/ops/";
/// Names of backends of Burn. Clippy cannot forbid a crate, nor a trait within some folders only.
const BACKENDS: [&str; 6] =
    ["Backend", "AutodiffBackend", "FloatTensor", "burn_cubecl", "cubecl", "burn_flex"];

/// Modules, what each uses, and where it does so first.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// No circle among modules of one parent, at every level of every crate. A parent may use its modules. A name that a parent re-exports is one of the module that it comes from.
pub(crate) fn directions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (package, known) in crates(workspace)? {
        let mut parents: BTreeSet<&[String]> = BTreeSet::from([&[][..]]);
        parents.extend(known.files.keys().filter_map(|path| Some(path.split_last()?.1)));
        let found = |parent: &[String]| {
            let place = [&[package.to_owned()], parent].concat().join("::");
            Some(format!("{place}: {}", circle(known.uses(parent))?))
        };
        findings.extend(parents.into_iter().filter_map(found));
    }
    Ok(findings)
}

/// Backends appear in operators only.
pub(crate) fn backends(workspace: &Workspace) -> Result<Vec<String>> {
    let crates = crates(workspace)?;
    let files = crates.values().flat_map(Crate::outside_tests);
    let files = files.filter(|(_, file)| !file.name.starts_with(OPERATORS));
    let found = |(_, file): (_, &File)| {
        let name = file.name.clone();
        let words = file.words.clone();
        let words = words.into_iter().filter(|(word, _)| BACKENDS.contains(&word.as_str()));
        words.map(move |(word, line)| format!("{name}:{line}: `{word}`")).collect::<Vec<_>>()
    };
    Ok(files.filter(|(_, file)| file.name.starts_with("crates/")).flat_map(found).collect())
}

/// The tree of the core's normal dependencies is the allowed one, and its sources do no I/O.
pub(crate) fn plain_core(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = process::cargo(&workspace.root);
    command.args(["tree", "--package", CORE, "--edges", "normal", "--all-features"]);
    let tree = process::output(command.args(["--prefix", "none", "--format", "{p}"]))?;
    let names: BTreeSet<&str> = tree.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let mut findings: Vec<String> = names
        .into_iter()
        .filter(|name| !DEPENDENCIES_OF_CORE.contains(name))
        .map(|name| format!("`{name}` is in the dependency tree of {CORE}"))
        .collect();
    let crates = crates(workspace)?;
    for (_, File { name, used, .. }) in crates["crates/lrvd-core"].outside_tests() {
        let is_outside = |pair: &[String]| pair[0] == "std" && OUTSIDE.contains(&pair[1].as_str());
        let found = used.iter().filter(|(path, _)| path.windows(2).any(is_outside));
        findings.extend(found.map(|(path, line)| format!("{name}:{line}: `{}`", path.join("::"))));
    }
    Ok(findings)
}

/// The sources of every package, by its folder.
fn crates(workspace: &Workspace) -> Result<BTreeMap<&str, Crate>> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for file in ["crates/", "xtask/"].into_iter().flat_map(|f| workspace.below(f, ".rs")) {
        let Some((package, path)) = file.split_once("/src/") else { continue };
        let text = workspace.text(file)?.unwrap_or_default();
        crates.entry(package).or_default().read(file, module(path), &text);
    }
    Ok(crates)
}

/// The module of a file below `src`.
fn module(path: &str) -> Path {
    let names = path.trim_end_matches(".rs").split('/');
    names.filter(|name| !["lib", "main", "mod"].contains(name)).map(str::to_owned).collect()
}

struct File {
    name: String,
    /// The paths in it, with their lines.
    used: Vec<(Path, usize)>,
    /// All identifiers, with their lines.
    words: Vec<(String, usize)>,
}

#[derive(Default)]
struct Crate {
    files: BTreeMap<Path, File>,
    /// Origins of the names that a module re-exports.
    exports: BTreeMap<Path, Path>,
    /// Modules of tests.
    tests: BTreeSet<Path>,
}

impl Crate {
    fn read(&mut self, file: &str, own: Path, text: &str) {
        let Names { used, words, exports, tests } = reader::read(text, &own);
        self.tests.extend(tests.into_iter().map(|name| joined(&own, &[name])));
        self.exports.extend(exports.into_iter().filter_map(|(name, path)| {
            Some((joined(&own, &[name]), path)).filter(|(name, path)| name != path)
        }));
        self.files.insert(own, File { name: file.to_owned(), used, words });
    }

    fn outside_tests(&self) -> impl Iterator<Item = (&Path, &File)> {
        let is_test = |own: &Path| (1..=own.len()).any(|n| self.tests.contains(&own[..n]));
        self.files.iter().filter(move |(own, _)| !is_test(own))
    }

    /// The file that `path` leads to, through re-exports.
    fn file(&self, path: &Path) -> Path {
        let mut path = path.clone();
        // A module wins over an item of the same name.
        let exported = |path: &Path| {
            let names = (1..=path.len()).filter(|&n| !self.files.contains_key(&path[..n]));
            names.into_iter().find_map(|n| Some((n, self.exports.get(&path[..n])?.clone())))
        };
        // Re-exports that lead in a circle do not compile.
        while let Some((n, from)) = exported(&path) {
            path = joined(&from, &path[n..]);
        }
        let known = (0..=path.len()).rev().find(|&n| self.files.contains_key(&path[..n]));
        path.truncate(known.unwrap_or(0));
        path
    }

    /// Uses of one another by the modules directly below `parent`.
    fn uses(&self, parent: &[String]) -> Uses {
        let below = |path: &Path| path.strip_prefix(parent)?.first().cloned();
        let mut uses = Uses::new();
        for (own, File { name, used, .. }) in self.outside_tests() {
            let Some(from) = below(own) else { continue };
            let arrows = uses.entry(from.clone()).or_default();
            for (path, line) in used {
                if let Some(to) = below(&self.file(path)).filter(|to| *to != from) {
                    arrows.entry(to).or_insert_with(|| format!("{name}:{line}"));
                }
            }
        }
        uses
    }
}

fn joined(start: &[String], end: &[String]) -> Path {
    [start, end].concat()
}

/// A circle, as `a -> b (file:line) -> a (file:line)`.
fn circle(mut uses: Uses) -> Option<String> {
    // A module that uses no other that is left is in no circle.
    let is_done = |uses: &Uses, arrows: &BTreeMap<String, String>| {
        !arrows.keys().any(|to| uses.contains_key(to))
    };
    while let Some((done, _)) = uses.iter().find(|(_, arrows)| is_done(&uses, arrows)) {
        let done = done.clone();
        uses.remove(&done);
    }
    let mut way = Vec::new();
    let mut at = uses.keys().next()?;
    while !way.contains(&at) {
        way.push(at);
        at = uses[at].keys().find(|to| uses.contains_key(*to))?;
    }
    let start = way.iter().position(|module| *module == at)?;
    let steps = way[start..].iter().zip(way[start + 1..].iter().chain([&at]));
    let steps = steps.map(|(from, to)| format!(" -> {to} ({})", uses[*from][*to]));
    Some(format!("{at}{}", steps.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_printed_with_its_places() {
        let mut files = Crate::default();
        for (file, text) in [
            ("lib.rs", "mod a; pub use b::Y; use crate::a::X;"),
            (
                "a/mod.rs",
                "mod x;\nmod y;\npub use x::X;\n#[cfg(test)]\n#[path = \"own_tests.rs\"]\nmod tests;",
            ),
            ("a/x.rs", "use crate::{\n    b::{c::Y, d},\n    json,\n};\npub struct X;"),
            ("a/y.rs", "fn f() -> super::X { super::super::Y }"),
            ("a/own_tests.rs", "use super::x::X;"),
            ("b/mod.rs", "pub struct Y;"),
            (
                "b/deep.rs",
                "fn f() { super::super::c::g(); } #[cfg(test)] mod tests { use crate::a::X; }",
            ),
            ("c.rs", "use super::a::X; use crate::Y as own;"),
            ("d.rs", "use crate::d::Own; use other::a; use crate::a;"),
            ("json.rs", ""),
        ] {
            files.read(file, module(file), text);
        }
        let uses = files.uses(&[]);
        assert_eq!(uses["a"].keys().collect::<Vec<_>>(), ["b", "json"]);
        assert_eq!(uses["d"].keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(
            circle(uses.clone()).as_deref(),
            Some("a -> b (a/x.rs:2) -> c (b/deep.rs:1) -> a (c.rs:1)")
        );
        let mut broken = uses;
        broken.insert("c".to_owned(), BTreeMap::new());
        assert_eq!(circle(broken), None);
        // The parent's name is that of the file it comes from, and tests are left out.
        let within = files.uses(&["a".to_owned()]);
        assert_eq!(within["y"], BTreeMap::from([("x".to_owned(), "a/y.rs:1".to_owned())]));
        assert!(within["x"].is_empty() && !within.contains_key("own_tests"), "{within:?}");
    }
}
