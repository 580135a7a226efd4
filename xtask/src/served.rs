//! A decision model of this workspace behind `lrvd serve`, for programs that are not ours.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::process;

/// The language model of the repository.
pub(crate) const TINY: &str = "crates/lrvd-bench/assets/stories260K";
/// Typed questions to train on, and others to validate on.
const ROWS: [&str; 2] = ["decisions.jsonl", "decided.jsonl"];
const DATA: &str = "crates/lrvd-cli/tests/cli/data";
/// Draws of the posterior that a temperature is fitted for, beside its mean.
pub(crate) const DRAWS: usize = 10;
/// Where a server reads its key from.
const KEY_VARIABLE: &str = "LRVD_XTASK_KEY";

/// What trains and serves.
pub(crate) struct Lrvd {
    pub(crate) program: PathBuf,
    /// The workspace.
    pub(crate) root: PathBuf,
}

impl Lrvd {
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.root).args(words);
        process::forget_cargo(&mut command);
        command
    }

    /// Trains the language model in `model` on typed questions, with a posterior and a temperature, into `out`.
    pub(crate) fn train(&self, model: &Path, out: &Path) -> Result<()> {
        // Long questions are no reason to fail.
        let length = positions(model)?.to_string();
        let draws = format!("draws=[{DRAWS}]");
        let [train, validation] = ROWS.map(|name| format!("{DATA}/{name}"));
        let words =
            ["train", "--quiet", "--method", "bayeslora+ts", "--set", &draws, "--steps", "20"];
        let mut command = self.command(&words);
        command.args(["--batch-size", "4", "--rank", "3", "--learning-rate", "3e-3"]);
        command.args(["--max-length", &length]);
        command.args(["--train", &train, "--validation", &validation]);
        command.arg("--model").arg(model).arg("--out").arg(out);
        process::run(command.stdout(Stdio::null()))
    }

    /// The confidence below which no answer is given, for answers at the mean: one that tiny models reach.
    ///
    /// Its rows are the validation rows, six times with another text each: 40 of each type are needed, and none that the run
    /// has seen.
    pub(crate) fn fit_threshold(&self, run: &Path) -> Result<()> {
        let rows = std::fs::read_to_string(self.root.join(DATA).join(ROWS[1]))?;
        let mut others = String::new();
        for number in 0..6 {
            for line in rows.lines() {
                let mut row: Value = serde_json::from_str(line)?;
                let state = row["state"].take();
                row["state"] = json!({ "number": number, "text": state });
                others.push_str(&row.to_string());
                others.push('\n');
            }
        }
        let file = tempfile::NamedTempFile::with_suffix(".jsonl")?;
        std::fs::write(file.path(), others)?;
        let mut command = self.command(&["abstain", "fit", "--draws", "0", "--risk", "0.9"]);
        command.args(["--delta", "0.5", "--data"]).arg(file.path()).arg(run);
        process::run(command.stdout(Stdio::null()))
    }

    /// Serves what was trained, or what the options name, at a free port, with a key, if there is one.
    pub(crate) fn serve(
        &self,
        run: Option<&Path>,
        options: &[&str],
        key: Option<&str>,
    ) -> Result<Server> {
        // Nothing here tests how long an answer takes.
        let words = [
            "serve",
            "--quiet",
            "--format",
            "json",
            "--address",
            "127.0.0.1:0",
            "--timeout",
            "3600",
        ];
        let mut command = self.command(&words);
        command.args(options).args(run).stdout(Stdio::piped());
        if let Some(key) = key {
            command.args(["--api-key-env", KEY_VARIABLE]).env(KEY_VARIABLE, key);
        }
        let shown = process::show(&command);
        let child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
        let mut server = Server { child, address: String::new() };
        let mut line = String::new();
        let stdout = server.child.stdout.take().context("no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        match serde_json::from_str::<Value>(&line)
            .ok()
            .and_then(|value| Some(value["address"].as_str()?.to_owned()))
        {
            Some(address) => server.address = address,
            None => bail!("`{shown}` printed no address, but `{}`", line.trim_end()),
        }
        Ok(server)
    }
}

/// The largest number of tokens that a model reads.
fn positions(model: &Path) -> Result<u64> {
    let file = model.join("config.json");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read `{}`", file.display()))?;
    let config: Value =
        serde_json::from_str(&text).with_context(|| format!("`{}`", file.display()))?;
    config["max_position_embeddings"]
        .as_u64()
        .with_context(|| format!("`{}` has no number `max_position_embeddings`", file.display()))
}

/// A running server; it ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    /// As in `http://127.0.0.1:8080`.
    pub(crate) address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
