//! The conformance suite of decision models, and their Python clients, against `lrvd serve`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::served::{DRAWS, Lrvd, Server, TINY};
use crate::{forward, process, workspace};

/// What is installed, with versions.
const PACKAGES: &str = "xtask/python/jevcompat.txt";
const CLIENTS: &str = "xtask/python/decision_clients.py";
/// The virtual environment, which is kept.
const ENVIRONMENT: &str = "target/jevcompat";
const KEY: &str = "a-key-of-this-test";
/// Seconds that the suite waits for an answer; an answer that takes longer is one that was not tested.
const PATIENCE: &str = "3600";
/// Requirements that the suite tests only with a key, and the one that it tests only without.
const KEYED: [&str; 3] = ["auth.bearer", "auth.missing", "auth.invalid"];
const OPEN: [&str; 1] = ["auth.ignored-when-off"];

/// Options of `jevcompat`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A built `lrvd` [default: it is built].
    #[arg(long, value_name = "LRVD")]
    program: Option<PathBuf>,
    /// A language model to train and test beside that of the repository; may be repeated.
    #[arg(long, value_name = "DIR")]
    model: Vec<PathBuf>,
    /// The Python that makes the virtual environment.
    #[arg(long, default_value = "python3")]
    python: String,
}

/// What the suite writes.
#[derive(Debug, Deserialize)]
struct Report {
    results: Vec<Requirement>,
    /// Why nothing was tested.
    aborted: Option<String>,
    /// Requests without an answer.
    inconclusive: Vec<String>,
    /// Cases that did not end, with the reason.
    case_errors: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct Requirement {
    id: String,
    /// `MUST` or `SHOULD`.
    level: String,
    /// `pass`, `fail` or `skip`.
    status: String,
    /// Why it was skipped.
    reason: String,
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    case: String,
    message: String,
}

/// One server and what was found of it.
#[derive(Debug)]
struct Row {
    model: String,
    has_key: bool,
    draws: usize,
    /// Passed of all: requirements of both levels, and checks of the clients.
    counts: [(usize, usize); 3],
    /// What did not pass, with the reason.
    failed: Vec<String>,
}

/// Tests every model with and without a key, at the posterior mean and with draws.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace::root()?;
    let python = environment(&root, &options.python)?;
    let program = forward::program(&root, options.program.as_deref())?;
    let lrvd = Lrvd { program, root: root.clone() };
    let folder = tempfile::tempdir()?;
    let mut models = vec![root.join(TINY)];
    for model in &options.model {
        models.push(std::path::absolute(model)?);
    }
    let mut rows = Vec::new();
    for (i, model) in models.iter().enumerate() {
        let trained = folder.path().join(i.to_string());
        lrvd.train(model, &trained)?;
        for has_key in [false, true] {
            for draws in [0, DRAWS] {
                let options = ["--draws", &*draws.to_string()];
                let server = lrvd.serve(Some(&trained), &options, has_key.then_some(KEY))?;
                let mut row = Row {
                    model: model
                        .file_name()
                        .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
                    has_key,
                    draws,
                    counts: Default::default(),
                    failed: Vec::new(),
                };
                row.suite(&python, &server, &folder.path().join("report.json"))?;
                row.clients(&python, &root, &server)?;
                eprintln!("{}", row.line());
                rows.push(row);
            }
        }
    }
    println!("{}", table(&rows));
    let failed = rows.iter().any(|row| !row.failed.is_empty());
    Ok(ExitCode::from(u8::from(failed)))
}

/// The Python of the virtual environment, with what is to be installed; nothing is fetched where it is there.
fn environment(root: &Path, python: &str) -> Result<PathBuf> {
    let folder = root.join(ENVIRONMENT);
    let own = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !process::works(Command::new(&own).arg("--version")) {
        process::run(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    }
    let mut pip = Command::new(&own);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    process::run(pip.arg(root.join(PACKAGES)))?;
    Ok(own)
}

impl Row {
    /// Runs the suite, whose report goes to `file`.
    fn suite(&mut self, python: &Path, server: &Server, file: &Path) -> Result<()> {
        let mut command = Command::new(python);
        command.args(["-m", "jevcompat.cli", "test", &server.address, "--timeout", PATIENCE]);
        command.arg("--json").arg(file);
        if self.has_key {
            command.args(["--key", KEY]);
        }
        // A report of another server is not read.
        if file.exists() {
            std::fs::remove_file(file)?;
        }
        let shown = process::show(&command);
        // Whether all passed is in the report; the text would repeat it for each server.
        let status =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot start `{shown}`"))?;
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("`{shown}` wrote no report ({status})"))?;
        self.read(
            &serde_json::from_str(&text).with_context(|| format!("the report of `{shown}`"))?,
        );
        Ok(())
    }

    fn read(&mut self, report: &Report) {
        let not_for_this = if self.has_key { &OPEN[..] } else { &KEYED[..] };
        for Requirement { id, level, status, reason, findings } in &report.results {
            let (passed, all) = &mut self.counts[usize::from(level != "MUST")];
            if status == "skip" && not_for_this.contains(&&**id) {
                continue;
            }
            *all += 1;
            match &**status {
                "pass" => *passed += 1,
                "skip" => self.failed.push(format!("{level} {id}: not tested: {reason}")),
                _ => {
                    let reasons = findings
                        .iter()
                        .map(|Finding { case, message }| format!("{case}: {message}"));
                    self.failed
                        .push(format!("{level} {id}: {}", reasons.collect::<Vec<_>>().join("; ")));
                }
            }
        }
        let aborted = report.aborted.iter().map(|reason| format!("not tested: {reason}"));
        let unanswered = report.inconclusive.iter().map(|request| format!("no answer: {request}"));
        let errors = report.case_errors.iter().map(|(case, reason)| format!("{case}: {reason}"));
        self.failed.extend(aborted.chain(unanswered).chain(errors));
    }

    /// Runs the checks of the clients.
    fn clients(&mut self, python: &Path, root: &Path, server: &Server) -> Result<()> {
        let draws = self.draws.to_string();
        let mut command = Command::new(python);
        command.arg(root.join(CLIENTS)).args([&server.address, "--draws", &draws]);
        if self.has_key {
            command.args(["--key", KEY]);
        }
        let found: BTreeMap<String, Option<String>> =
            serde_json::from_str(&process::output(&mut command)?)
                .with_context(|| format!("what `{}` printed", process::show(&command)))?;
        if found.is_empty() {
            bail!("`{CLIENTS}` has no checks");
        }
        self.counts[2] = (found.values().filter(|failure| failure.is_none()).count(), found.len());
        let failed = found
            .into_iter()
            .filter_map(|(name, failure)| Some(format!("client {name}: {}", failure?)));
        self.failed.extend(failed);
        Ok(())
    }

    fn line(&self) -> String {
        let key = if self.has_key { "on" } else { "off" };
        let [must, should, clients] = self.counts.map(|(passed, all)| format!("{passed}/{all}"));
        format!("{:<24} {key:<4} {:>5}  {must:>6} {should:>7} {clients:>8}", self.model, self.draws)
    }
}

/// All servers, a line each, and below what failed.
fn table(rows: &[Row]) -> String {
    let mut lines = vec![format!(
        "{:<24} {:<4} {:>5}  {:>6} {:>7} {:>8}",
        "model", "key", "draws", "MUST", "SHOULD", "clients"
    )];
    lines.extend(rows.iter().map(Row::line));
    // The same failure of several servers is printed once.
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows {
        let server = format!(
            "{} key {} draws {}",
            row.model,
            if row.has_key { "on" } else { "off" },
            row.draws
        );
        for what in &row.failed {
            failed.entry(what).or_default().push(server.clone());
        }
    }
    for (what, servers) in failed {
        lines.push(format!("\nFAILED {what}\n  at {}", servers.join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn row(has_key: bool, report: &Report) -> Row {
        let counts = Default::default();
        let mut row =
            Row { model: "tiny".to_owned(), has_key, draws: 10, counts, failed: Vec::new() };
        row.read(report);
        row
    }

    /// What was not tested has not passed, unless it is of servers with a key and this has none, or the reverse.
    #[test]
    fn what_fails_or_is_not_tested_is_named() {
        let requirement = |id: &str, level: &str, status: &str| {
            let findings = if status == "fail" {
                json!([{ "case": "options:64", "message": "got 422", "where": "", "exchange": 3 }])
            } else {
                json!([])
            };
            json!({ "id": id, "level": level, "status": status, "section": "1", "title": "", "findings": findings,
                    "cases": [], "reason": "no key" })
        };
        let report: Report = serde_json::from_value(json!({
            "url": "", "aborted": null, "inconclusive": ["choice: no response"], "case_errors": [["unicode", "reset"]],
            "results": [
                requirement("http.json", "MUST", "pass"),
                requirement("choice.options", "MUST", "fail"),
                requirement("auth.bearer", "MUST", "skip"),
                requirement("auth.invalid", "SHOULD", "skip"),
                requirement("auth.ignored-when-off", "MUST", "pass"),
                requirement("errors.json", "SHOULD", "skip"),
            ],
        }))
        .unwrap();
        let open = row(false, &report);
        assert_eq!(open.counts, [(2, 3), (0, 1), (0, 0)]);
        assert_eq!(
            open.failed,
            [
                "MUST choice.options: options:64: got 422",
                "SHOULD errors.json: not tested: no key",
                "no answer: choice: no response",
                "unicode: reset",
            ]
        );
        let keyed = row(true, &report);
        assert_eq!(keyed.counts, [(2, 4), (0, 2), (0, 0)]);
        assert!(keyed.failed.contains(&"MUST auth.bearer: not tested: no key".to_owned()));
        let text = table(&[open, keyed]);
        assert!(
            text.contains("\ntiny                     on      10     2/4     0/2      0/0\n"),
            "{text}"
        );
        let both = "MUST choice.options: options:64: got 422\n  at tiny key off draws 10, tiny key on draws 10";
        assert_eq!(text.matches(both).count(), 1, "{text}");
    }
}
