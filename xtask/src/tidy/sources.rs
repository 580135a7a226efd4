//! What library sources do not mention, where clippy has no words for it: plain text, line by line.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::workspace::Workspace;

/// Where operators live.
const OPERATORS: &str = "crates/lrvd-burn/src/ops/";
/// What names a backend of Burn. Clippy cannot forbid a crate, nor a trait within some folders only.
const BACKENDS: [&str; 6] =
    ["Backend", "AutodiffBackend", "FloatTensor", "burn_cubecl", "cubecl", "burn_flex"];

/// A source file without comments and tests.
pub(crate) struct Source<'a> {
    /// Path from the root.
    pub(crate) file: &'a str,
    /// Its lines, from 1.
    pub(crate) lines: Vec<(usize, String)>,
}

/// Every source file of crates and this program, outside tests.
pub(crate) fn library(workspace: &Workspace) -> Result<Vec<Source<'_>>> {
    let (mut sources, mut tests) = (Vec::new(), BTreeSet::new());
    let files = ["crates/", "xtask/"].into_iter().flat_map(|f| workspace.below(f, ".rs"));
    for file in files.filter(|f| f.contains("/src/")) {
        let (lines, modules) = code(&workspace.text(file)?.unwrap_or_default());
        let folder = match file.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
            _ => file.trim_end_matches(".rs"),
        };
        for module in modules {
            tests.extend([".rs", "/"].map(|end| format!("{folder}/{module}{end}")));
        }
        sources.push(Source { file, lines });
    }
    sources.retain(|s| !tests.iter().any(|test| s.file.starts_with(test.as_str())));
    Ok(sources)
}

/// Lines without comments and items that are compiled for tests only, and the names of modules among the latter that
/// have separate files. An item ends where rustfmt lets it end: with a brace in the column of its attribute.
fn code(text: &str) -> (Vec<(usize, String)>, Vec<String>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push((number, line.split("//").next().unwrap_or_default().to_owned()));
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        for (_, line) in lines.by_ref() {
            let item = line.trim();
            if let Some(name) = item.strip_suffix(';').and_then(|i| i.rsplit_once("mod ")) {
                modules.push(name.1.to_owned());
            }
            let closed = line.len() == indent + 1 && item == "}";
            if closed || (item.ends_with(';') && line.find(item) == Some(indent)) {
                break;
            }
        }
    }
    (kept, modules)
}

/// Places in library sources below `folder` that mention one of `words`.
pub(crate) fn mentions(
    workspace: &Workspace,
    folder: &str,
    except: &[&str],
    words: &[&str],
) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for Source { file, lines } in library(workspace)? {
        if file.starts_with(folder) && !except.iter().any(|e| file.starts_with(e)) {
            for (number, line) in lines {
                let found = words.iter().filter(|word| has_word(&line, word));
                findings.extend(found.map(|word| format!("{file}:{number}: `{word}`")));
            }
        }
    }
    Ok(findings)
}

/// Whether `word` stands alone somewhere in `line`.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(i, _)| {
        !part(line[..i].chars().next_back()) && !part(line[i + word.len()..].chars().next())
    })
}

/// Backends appear in operators only.
pub(crate) fn backends(workspace: &Workspace) -> Result<Vec<String>> {
    mentions(workspace, "crates/", &[OPERATORS], &BACKENDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_left_out() {
        let text = "fn a() {} // b\n/// c\n#[cfg(test)]\nmod d;\nfn e() {}\n#[cfg(test)]\nmod f {\n    fn g() {}\n}\n\
                    fn h() {}\n#[cfg(test)]\nuse i::j;\n    #[cfg(test)]\n    fn k() {\n        l;\n    }\nfn m() {}\n";
        let (lines, modules) = code(text);
        let kept: String = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(kept, "fn a() {} fn e() {}fn h() {}fn m() {}");
        assert_eq!(lines.last().map(|(number, _)| *number), Some(17));
        assert_eq!(modules, ["d"]);
    }

    #[test]
    fn words_stand_alone() {
        assert!(has_word("impl Backend for X", "Backend") && has_word("<Backend>", "Backend"));
        assert!(!has_word("AutodiffBackend", "Backend") && !has_word("Backends", "Backend"));
    }
}
