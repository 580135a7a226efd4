//! Which module may use which: any, as long as no way leads back.

use std::collections::BTreeMap;

use anyhow::Result;

use super::sources::{self, Source};
use crate::workspace::Workspace;

/// Top-level modules of one crate, what each uses, and where it does so first.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// No circle among the top-level modules of any crate, from paths that begin with `crate::` or lead to the crate's
/// root by `super::`. The root itself may name every module and is named by none.
pub(crate) fn directions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut crates: BTreeMap<&str, Vec<(&str, Source<'_>)>> = BTreeMap::new();
    for source in sources::library(workspace)? {
        if let Some((package, path)) = source.file.split_once("/src/") {
            crates.entry(package).or_default().push((path, source));
        }
    }
    Ok(crates
        .into_iter()
        .filter_map(|(package, files)| Some((package, circle(&uses(&files))?)))
        .map(|(package, circle)| format!("{package}: {circle}"))
        .collect())
}

/// The module that a path below `src` belongs to; `None` for the root.
fn module(path: &str) -> Option<&str> {
    let name = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
    (path != "lib.rs" && path != "main.rs").then_some(name)
}

fn uses(files: &[(&str, Source<'_>)]) -> Uses {
    let names = files.iter().filter_map(|(path, _)| module(path));
    let mut uses: Uses = names.map(|name| (name.to_owned(), BTreeMap::new())).collect();
    for (path, source) in files {
        let Some(own) = module(path) else { continue };
        // Steps from the file's module up to the root.
        let steps = path.trim_end_matches("/mod.rs").split('/').count();
        let to_root = "super::".repeat(steps);
        for (number, name) in named(&source.lines, &["crate::", &to_root]) {
            if name != own && uses.contains_key(&name) {
                let place = || format!("{}:{number}", source.file);
                uses.entry(own.to_owned()).or_default().entry(name).or_insert_with(place);
            }
        }
    }
    uses
}

/// First names after one of `roots`, also within braces, with their lines.
fn named(lines: &[(usize, String)], roots: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Depth of the braces of a list that is open, and whether a name may begin.
    let mut depth = 0_usize;
    for (number, line) in lines {
        let mut rest = line.as_str();
        loop {
            if depth == 0 {
                let next = roots.iter().filter_map(|root| Some((rest.find(root)?, root.len())));
                let Some((at, length)) = next.min() else { break };
                let before = rest[..at].chars().next_back();
                rest = &rest[at + length..];
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                match rest.strip_prefix('{') {
                    Some(list) => (rest, depth) = (list, 1),
                    None => found.push((*number, word(rest).to_owned())),
                }
                continue;
            }
            // Within a list: names stand at depth 1, after its brace or a comma.
            rest = rest.trim_start();
            let name = word(rest);
            if depth == 1 && !name.is_empty() {
                found.push((*number, name.to_owned()));
            }
            let Some(stop) = rest.find(['{', '}', ',']) else { break };
            match rest.as_bytes()[stop] {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            rest = &rest[stop + 1..];
        }
    }
    found
}

/// The name at the start of `text`.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
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
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for (next, place) in &uses[module] {
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
    use super::*;

    fn source(file: &'static str, text: &str) -> (&'static str, Source<'static>) {
        let lines = (1..).zip(text.lines().map(str::to_owned)).collect();
        (file, Source { file, lines })
    }

    #[test]
    fn a_circle_is_printed_with_its_places() {
        let files = [
            source("lib.rs", "use crate::a::X;"),
            source("a/mod.rs", "use std::b;\nuse crate::{\n    b::{c::Y, d},\n    json,\n};"),
            source("b/deep.rs", "fn f() { super::super::c::g() }\nsuper::a::X; mycrate::a::X;"),
            source("c.rs", "use super::a::X; use crate::b as own;"),
            source("d.rs", "use crate::d::Own; use crate::a;"),
            source("json.rs", ""),
        ];
        let uses = uses(&files);
        assert_eq!(uses["a"].keys().collect::<Vec<_>>(), ["b", "json"]);
        assert_eq!(circle(&uses).as_deref(), Some("b -> c (b/deep.rs:1) -> b (c.rs:1)"));
        let mut broken = uses;
        broken.insert("c".to_owned(), BTreeMap::new());
        assert_eq!(circle(&broken), None);
    }
}
