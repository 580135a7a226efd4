//! Our `step` and PyTorch's: built, found and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::measure::Run;
use super::{Program, Side};
use crate::{forward, process};

/// Stands for the shared folder in a side's arguments.
pub(crate) const FOLDER: &str = "FOLDER";
/// The other side's script.
pub(crate) const SCRIPT: &str = "xtask/python/torch_step.py";

/// Programs to run, with the same number of threads each.
pub(crate) struct Programs {
    step: PathBuf,
    python: String,
    root: PathBuf,
    threads: usize,
    /// What a side leaves for the others.
    folder: PathBuf,
}

impl Drop for Programs {
    fn drop(&mut self) {
        // It is there only if a side wrote into it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Programs {
    /// Builds our side in release mode.
    ///
    /// The command is built along: both then share one set of compiled dependencies.
    pub(crate) fn build(root: &Path, python: &str, threads: usize) -> Result<Self> {
        let packages = ["--package", "lrvd-cli", "--package", "lrvd-perf"];
        let bins = ["--bin", "lrvd", "--bin", "step"];
        let step = forward::release(root, &[packages, bins].concat(), "step")?;
        let folder = std::env::temp_dir().join(format!("lrvd-bench-{}", std::process::id()));
        Ok(Self { step, python: python.to_owned(), root: root.to_owned(), threads, folder })
    }

    /// The call that times `steps` steps of a side.
    fn command(&self, side: &Side, steps: usize) -> Result<Command> {
        let threads = self.threads.to_string();
        let mut command = match side.program {
            Program::Ours => {
                let mut command = Command::new(&self.step);
                command.env("RAYON_NUM_THREADS", &threads);
                command
            }
            Program::Torch => {
                let mut command = Command::new(&self.python);
                command.arg(self.root.join(SCRIPT)).args(["--threads", &threads]);
                command
            }
            Program::Criterion => bail!("criterion has no single runs"),
        };
        for argument in side.arguments.split_whitespace() {
            match argument {
                FOLDER => command.arg(&self.folder),
                other => command.arg(other),
            };
        }
        command.args(["--warmup", "1", "--steps", &steps.to_string()]);
        Ok(command)
    }

    /// Times `steps` steps of a side.
    pub(crate) fn run(&self, side: &Side, steps: usize) -> Result<Run> {
        let mut command = self.command(side, steps)?;
        let run = time(&mut command)?;
        if run.seconds.len() != steps {
            bail!("`{}` timed {} steps", process::show(&command), run.seconds.len());
        }
        Ok(run)
    }
}

/// What `command` timed.
pub(crate) fn time(command: &mut Command) -> Result<Run> {
    let text = process::output(command)?;
    parse(&text).with_context(|| format!("`{}`", process::show(command)))
}

/// The last line of a program's output.
fn parse(text: &str) -> Result<Run> {
    let line = text.lines().next_back().context("nothing was printed")?;
    let mut facts: Value = serde_json::from_str(line).context("the last line is not JSON")?;
    let seconds = facts.as_object_mut().and_then(|facts| facts.remove("seconds"));
    let seconds = seconds.context("no `seconds`")?;
    let seconds: Vec<f64> = serde_json::from_value(seconds).context("`seconds`")?;
    match seconds.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
        Some(bad) => bail!("a step of {bad} s"),
        None => Ok(Run { seconds, facts }),
    }
}

/// Why `python` cannot run the other side; `None` if it can.
pub(crate) fn torch_problem(python: &str) -> Option<String> {
    let mut command = Command::new(python);
    command.args(["-c", "import torch, transformers, peft"]);
    let error = process::output(&mut command).err()?;
    // The last line of a traceback says what is missing.
    let text = format!("{error:#}");
    Some(text.lines().next_back().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_line_is_read() {
        let run = parse("loading\n{\"seconds\": [0.5, 0.25], \"peak_rss_bytes\": 7}\n").unwrap();
        assert_eq!(run.seconds, [0.5, 0.25]);
        assert_eq!(run.facts["peak_rss_bytes"], 7);
        for bad in ["", "done", "{}", "{\"seconds\": [0.0]}", "{\"seconds\": \"1\"}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_sides_get_the_same_threads_and_steps() {
        let programs = Programs {
            step: "step".into(),
            python: "py".to_owned(),
            root: "root".into(),
            threads: 3,
            folder: "shared".into(),
        };
        let shown = |program| {
            let arguments = "--config nano --trained FOLDER".to_owned();
            let side = Side { label: String::new(), program, arguments };
            process::show(&programs.command(&side, 4).unwrap())
        };
        assert_eq!(
            [Program::Ours, Program::Torch].map(shown),
            [
                "RAYON_NUM_THREADS=3 step --config nano --trained shared --warmup 1 --steps 4",
                "py root/xtask/python/torch_step.py --threads 3 --config nano --trained shared --warmup 1 --steps 4"
            ]
        );
    }

    #[test]
    fn a_missing_python_is_a_problem_with_a_reason() {
        let problem = torch_problem("no-such-python").unwrap();
        assert!(!problem.is_empty());
    }
}
