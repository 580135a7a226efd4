//! Which module may use which: any, as long as no way leads back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context as _, Result};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::workspace::Workspace;

/// Crates in which also the files of a module use one another in one direction.
const TO_THE_FILES: [&str; 3] = ["crates/lrvd-bench", "crates/lrvd-cli", "xtask"];

/// A module, or an item of one, by its names from the crate's root down.
type Path = Vec<String>;
/// Modules, what each uses, and where it does so first.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// No circle among modules that stand side by side: at the top of every crate, and in [`TO_THE_FILES`] at every level. A
/// parent may use its modules. A name that a parent re-exports is one of the module that it comes from.
pub(crate) fn directions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for file in ["crates/", "xtask/"].into_iter().flat_map(|f| workspace.below(f, ".rs")) {
        let Some((package, path)) = file.split_once("/src/") else { continue };
        let text = workspace.text(file)?.unwrap_or_default();
        crates.entry(package).or_default().read(file, module(path), &text)?;
    }
    let mut findings = Vec::new();
    for (package, known) in crates {
        let mut parents: BTreeSet<&[String]> = BTreeSet::from([&[][..]]);
        if TO_THE_FILES.contains(&package) {
            parents.extend(known.files.keys().filter_map(|path| Some(path.split_last()?.1)));
        }
        let found = |parent: &[String]| {
            let place = [&[package.to_owned()], parent].concat().join("::");
            Some(format!("{place}: {}", circle(&known.uses(parent))?))
        };
        findings.extend(parents.into_iter().filter_map(found));
    }
    Ok(findings)
}

/// The module of a file below `src`.
fn module(path: &str) -> Path {
    let names = path.trim_end_matches(".rs").split('/');
    names.filter(|name| !["lib", "main", "mod"].contains(name)).map(str::to_owned).collect()
}

/// The files of a crate, outside tests.
#[derive(Default)]
struct Crate {
    /// Path of every file, and what it uses, with the lines.
    files: BTreeMap<Path, (String, Vec<(Path, usize)>)>,
    /// Where the names come from that a module re-exports.
    exports: BTreeMap<Path, Path>,
    /// Modules of tests.
    tests: BTreeSet<Path>,
}

impl Crate {
    fn read(&mut self, file: &str, own: Path, text: &str) -> Result<()> {
        let parsed = syn::parse_file(text).with_context(|| format!("`{file}`"))?;
        let mut names =
            Names { own: &own, used: Vec::new(), exports: Vec::new(), tests: Vec::new() };
        names.visit_file(&parsed);
        let Names { used, exports, tests, .. } = names;
        self.tests.extend(tests.into_iter().map(|name| joined(&own, &[name])));
        self.exports.extend(exports.into_iter().filter_map(|(name, path)| {
            Some((joined(&own, &[name]), path)).filter(|(name, path)| name != path)
        }));
        self.files.insert(own, (file.to_owned(), used));
        Ok(())
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

    /// What the modules directly below `parent` use of one another.
    fn uses(&self, parent: &[String]) -> Uses {
        let below = |path: &Path| path.strip_prefix(parent)?.first().cloned();
        let mut uses = Uses::new();
        for (own, (file, used)) in &self.files {
            let is_test = (1..=own.len()).any(|n| self.tests.contains(&own[..n]));
            let Some(from) = below(own).filter(|_| !is_test) else { continue };
            let arrows = uses.entry(from.clone()).or_default();
            for (path, line) in used {
                if let Some(to) = below(&self.file(path)).filter(|to| *to != from) {
                    arrows.entry(to).or_insert_with(|| format!("{file}:{line}"));
                }
            }
        }
        uses
    }
}

fn joined(start: &[String], end: &[String]) -> Path {
    [start, end].concat()
}

/// The paths of one file.
struct Names<'a> {
    own: &'a Path,
    used: Vec<(Path, usize)>,
    /// Names that the file re-exports, and where they come from.
    exports: Vec<(String, Path)>,
    /// Its modules of tests.
    tests: Vec<String>,
}

impl Names<'_> {
    /// `names` from the crate's root. A first name of another crate is taken for one of a module, which then does not exist.
    fn absolute(&self, names: &[String]) -> Path {
        let up = names.iter().take_while(|name| *name == "super").count();
        match names.first().map(String::as_str) {
            Some("crate") => names[1..].to_vec(),
            Some("super") => joined(&self.own[..self.own.len().saturating_sub(up)], &names[up..]),
            Some("self") => joined(self.own, &names[1..]),
            _ => joined(self.own, names),
        }
    }

    fn tree(&mut self, tree: &UseTree, start: &[String], is_export: bool) {
        let name = |ident: &syn::Ident| ident.to_string();
        let (path, called) = match tree {
            UseTree::Path(path) => {
                return self.tree(&path.tree, &joined(start, &[name(&path.ident)]), is_export);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.tree(tree, start, is_export));
            }
            UseTree::Glob(_) => (start.to_vec(), None),
            UseTree::Name(own) if own.ident == "self" => (start.to_vec(), start.last().cloned()),
            UseTree::Name(own) => (joined(start, &[name(&own.ident)]), Some(name(&own.ident))),
            UseTree::Rename(own) => (joined(start, &[name(&own.ident)]), Some(name(&own.rename))),
        };
        let path = self.absolute(&path);
        match called.filter(|_| is_export) {
            Some(called) => self.exports.push((called, path)),
            None => self.used.push((path, tree.span().start().line)),
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Mod(module) = item
            && is_for_tests(&module.attrs)
        {
            self.tests.push(file_name(module));
        } else if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names: Path = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.used.push((self.absolute(&names), path.span().start().line));
        }
        visit::visit_path(self, path);
    }
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg"));
        condition.is_some_and(|list| list.tokens.to_string() == "test")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name of a module's file, which `#[path]` may change.
fn file_name(module: &syn::ItemMod) -> String {
    let path = module.attrs.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }) = &pair.value else {
            return None;
        };
        pair.path.is_ident("path").then(|| file.value().trim_end_matches(".rs").to_owned())
    });
    path.unwrap_or_else(|| module.ident.to_string())
}
/// A shortest circle, as `a -> b (file:line) -> a (file:line)`.
fn circle(uses: &Uses) -> Option<String> {
    uses.keys().filter_map(|start| way_back(uses, start)).min_by_key(Vec::len).map(|steps| {
        let first = steps.last().map_or("", |(name, _)| *name);
        let rest = steps.iter().map(|(name, place)| format!(" -> {name} ({place})"));
        format!("{first}{}", rest.collect::<String>())
    })
}

/// The shortest way from `start` to itself, as the modules that it passes and the places that lead to them.
fn way_back<'a>(uses: &'a Uses, start: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let mut came_from: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for (next, place) in uses.get(module).into_iter().flatten() {
            if came_from.contains_key(next.as_str()) {
                continue;
            }
            came_from.insert(next, (module, place));
            if next == start {
                let mut steps = vec![(start, place.as_str())];
                let mut at = module;
                while at != start {
                    let (before, place) = came_from[at];
                    steps.push((at, place));
                    at = before;
                }
                steps.reverse();
                return Some(steps);
            }
            queue.push_back(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            files.read(file, module(file), text).unwrap();
        }
        let uses = files.uses(&[]);
        assert_eq!(uses["a"].keys().collect::<Vec<_>>(), ["b", "json"]);
        assert_eq!(uses["d"].keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(circle(&uses).as_deref(), Some("b -> c (b/deep.rs:1) -> b (c.rs:1)"));
        let mut broken = uses;
        broken.insert("c".to_owned(), BTreeMap::new());
        assert_eq!(circle(&broken), None);
        // The parent's name is that of the file it comes from, and tests are left out.
        let within = files.uses(&["a".to_owned()]);
        assert_eq!(within["y"], BTreeMap::from([("x".to_owned(), "a/y.rs:1".to_owned())]));
        assert!(within["x"].is_empty() && !within.contains_key("own_tests"), "{within:?}");
    }
}
