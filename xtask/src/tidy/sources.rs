//! What library sources do not contain.

use std::collections::BTreeSet;

use anyhow::Result;

use super::rust_code::{self, TestModule, line, words};
use crate::workspace::Workspace;

/// Where the CLI writes.
const PRINTER: &str = "crates/lrvd-cli/src/printer";
/// Where operators live.
const OPERATORS: &str = "crates/lrvd-burn/src/ops/";
/// Where the environment may be read.
const ENVIRONMENT: [&str; 3] = [
    "crates/lrvd-bench/src/backbone/hub.rs",
    "crates/lrvd-bench/src/suite/run.rs",
    "crates/lrvd-cli/src/",
];
/// Where the network may be met.
const NETWORK: [&str; 1] = ["crates/lrvd-bench/src/backbone/hub.rs"];

const PRINT_MACROS: [&str; 5] = ["print!", "println!", "eprint!", "eprintln!", "dbg!"];
/// Modules of Burn that draw from its process-wide state.
const HIDDEN_DROPOUT: [&str; 4] =
    ["Dropout", "DropoutConfig", "GaussianNoise", "GaussianNoiseConfig"];

/// A source file without comments, literals and tests.
pub(crate) struct Source<'a> {
    /// Path from the root.
    pub(crate) file: &'a str,
    /// The code.
    pub(crate) code: String,
}

/// Every library source outside tests.
pub(crate) fn library(workspace: &Workspace) -> Result<Vec<Source<'_>>> {
    let mut sources = Vec::new();
    let mut tests = BTreeSet::new();
    for file in workspace.library_sources() {
        let Some(text) = workspace.text(file)? else { continue };
        let parts = rust_code::without_tests(&text, &rust_code::code_only(&text));
        tests.extend(parts.modules.iter().flat_map(|module| test_files(file, module)));
        sources.push(Source { file, code: parts.code });
    }
    let is_test = |file: &str| {
        tests
            .iter()
            .any(|t: &String| file == t || (t.ends_with('/') && file.starts_with(t.as_str())))
    };
    sources.retain(|s| !is_test(s.file));
    Ok(sources)
}

/// Files (and folders, with a slash) of a test module declared in `file`.
fn test_files(file: &str, module: &TestModule) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match module {
        TestModule::Path(path) => vec![format!("{folder}/{path}")],
        TestModule::Named(module) => {
            let stem = name.trim_end_matches(".rs");
            let base = match stem {
                "mod" | "lib" | "main" => folder.to_owned(),
                _ => format!("{folder}/{stem}"),
            };
            vec![format!("{base}/{module}.rs"), format!("{base}/{module}/")]
        }
    }
}

/// Findings of `look`, which returns offsets and words, over all library sources.
fn scan(
    workspace: &Workspace,
    exempt: &[&str],
    look: impl Fn(&str) -> Vec<(usize, String)>,
) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for source in library(workspace)? {
        if exempt.iter().any(|e| source.file.starts_with(e)) {
            continue;
        }
        for (offset, what) in look(&source.code) {
            findings.push(format!("{}:{}: `{what}`", source.file, line(&source.code, offset)));
        }
    }
    Ok(findings)
}

/// Offsets of any of `names` as whole words.
fn any_word(code: &str, names: &[&str]) -> Vec<(usize, String)> {
    names.iter().flat_map(|n| words(code, n).map(|i| (i, (*n).to_owned()))).collect()
}

/// No print macro.
pub(crate) fn prints(workspace: &Workspace) -> Result<Vec<String>> {
    scan(workspace, &[PRINTER], print_macros)
}

fn print_macros(code: &str) -> Vec<(usize, String)> {
    PRINT_MACROS
        .iter()
        .flat_map(|name| {
            let word = &name[..name.len() - 1];
            words(code, word)
                .filter(move |i| code[i + word.len()..].starts_with('!'))
                .map(|i| (i, (*name).to_owned()))
        })
        .collect()
}

/// No randomness but that of a key.
pub(crate) fn noise(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = scan(workspace, &[], hidden_noise)?;
    for package in workspace.packages.iter().filter(|p| p.manifest.starts_with("crates/")) {
        let found = package
            .dependencies
            .iter()
            .filter(|d| matches!(d.name.as_str(), "rand" | "fastrand" | "getrandom" | "oorandom"));
        findings.extend(found.map(|d| format!("{}: dependency `{}`", package.manifest, d.name)));
    }
    Ok(findings)
}

/// `Tensor::random`, `Device::seed`, `device.seed(…)` and Burn's dropout modules.
fn hidden_noise(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for i in words(code, "random") {
        if type_before(code, i) == Some("Tensor") {
            found.push((i, "Tensor::random".to_owned()));
        }
    }
    for i in words(code, "seed") {
        let of_device = type_before(code, i) == Some("Device");
        let method = code[..i].strip_suffix("device.").is_some() && code[i..].starts_with("seed(");
        if of_device || method {
            found.push((i, "Device::seed".to_owned()));
        }
    }
    for name in HIDDEN_DROPOUT {
        for i in words(code, name) {
            if from_nn(code, i) {
                found.push((i, format!("nn::{name}")));
            }
        }
    }
    found
}

/// The type in `Type::name` or `Type::<…>::name` if `name` starts at `offset`.
fn type_before(code: &str, offset: usize) -> Option<&str> {
    let mut head = code[..offset].trim_end().strip_suffix("::")?.trim_end();
    if head.ends_with('>') {
        let mut depth = 0_usize;
        let open = head.char_indices().rev().find_map(|(i, c)| {
            match c {
                '>' => depth += 1,
                '<' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(i)
        })?;
        head = head[..open].trim_end();
        head = head.strip_suffix("::").unwrap_or(head);
    }
    let start = head.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |i| i + 1);
    Some(&head[start..])
}

/// Whether the word at `offset` is reached through a module `nn`, alone or in a `use` list.
fn from_nn(code: &str, offset: usize) -> bool {
    if type_before(code, offset) == Some("nn") {
        return true;
    }
    let statement = code[..offset].rfind(';').map_or(0, |i| i + 1);
    let head: String = code[statement..offset].split_whitespace().collect();
    head.rfind("nn::{").is_some_and(|i| head[i..].contains("use") || head.contains("use"))
        && !head.contains('}')
}

/// No unsafe code and no permission for it.
pub(crate) fn no_unsafe(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in workspace.below("", ".rs") {
        let Some(text) = workspace.text(file)? else { continue };
        let code = rust_code::code_only(&text);
        for (offset, what) in any_word(&code, &["unsafe", "unsafe_code"]) {
            findings.push(format!("{file}:{}: `{what}`", line(&code, offset)));
        }
    }
    let manifest = workspace.text("Cargo.toml")?.unwrap_or_default();
    if !manifest
        .lines()
        .any(|l| matches!(l.trim(), "unsafe_code = \"deny\"" | "unsafe_code = \"forbid\""))
    {
        findings.push("Cargo.toml: the lint `unsafe_code` is not denied".to_owned());
    }
    Ok(findings)
}

/// Backends appear in operators only.
pub(crate) fn backends(workspace: &Workspace) -> Result<Vec<String>> {
    scan(workspace, &[OPERATORS], |code| {
        any_word(
            code,
            &["Backend", "AutodiffBackend", "FloatTensor", "burn_cubecl", "cubecl", "burn_flex"],
        )
    })
}

/// Environment and network in their places.
pub(crate) fn edges(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = scan(workspace, &ENVIRONMENT, |code| {
        let variable =
            |call: &&str| ["var", "set_var", "remove_var"].iter().any(|v| call.starts_with(v));
        words(code, "env")
            .filter(|i| code[i + 3..].strip_prefix("::").as_ref().is_some_and(variable))
            .map(|i| (i, "env::var".to_owned()))
            .collect()
    })?;
    findings.extend(scan(workspace, &NETWORK, |code| {
        any_word(code, &["hf_hub", "ureq", "TcpStream", "TcpListener", "UdpSocket"])
    })?);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<String> {
        hidden_noise(code).into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn hidden_noise_is_told_from_its_namesakes() {
        for code in [
            "Tensor::random([2], d, &dev)",
            "let t = Tensor::<2>::random(s)",
            "burn::tensor::Tensor::<2, Int>::random(s)",
        ] {
            assert_eq!(found(code), ["Tensor::random"], "{code}");
        }
        assert_eq!(found("Device::seed(&d, 1)"), ["Device::seed"]);
        assert_eq!(found("self.device.seed(1)"), ["Device::seed"]);
        assert_eq!(found("burn::nn::Dropout"), ["nn::Dropout"]);
        assert_eq!(found("use burn::nn::{Linear, DropoutConfig};"), ["nn::DropoutConfig"]);
        for code in [
            "fn f() -> Tensor<2> { Self::random(seed) }",
            "config.seed(3)",
            "struct Dropout; impl Backward<B, 1> for Dropout {}",
            "use burn::nn::{Linear}; struct Dropout;",
            "let random = 1;",
        ] {
            assert!(found(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn print_macros_are_told_from_functions() {
        let found = print_macros("println!(); self.print(); eprint!(); printer::print(x); dbg!(y)");
        let names: Vec<&str> = found.iter().map(|(_, n)| n.as_str()).collect();
        assert_eq!(names, ["println!", "eprint!", "dbg!"]);
    }

    #[test]
    fn test_modules_lead_to_their_files() {
        let named = TestModule::Named("tests".to_owned());
        assert_eq!(
            test_files("crates/x/src/a/config.rs", &named),
            ["crates/x/src/a/config/tests.rs", "crates/x/src/a/config/tests/"]
        );
        assert_eq!(test_files("crates/x/src/a/mod.rs", &named)[0], "crates/x/src/a/tests.rs");
        let path = TestModule::Path("b_tests.rs".to_owned());
        assert_eq!(test_files("crates/x/src/a/b.rs", &path), ["crates/x/src/a/b_tests.rs"]);
    }
}
