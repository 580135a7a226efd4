//! Our `step`, its peers in Python, and criterion's benches: run and read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::table::{Group, Program, Side};
use crate::process;

/// Folder of the peers' scripts.
const SCRIPTS: &str = "xtask/python";

/// All runs of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Seconds of each step by round.
    pub(crate) rounds: Vec<Vec<f64>>,
    /// Further values that the last run printed.
    pub(crate) facts: Value,
}

/// Limits of the processor, with the threads of both sides.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ceiling {
    /// Of a matrix product in single precision.
    pub(crate) product_gflops: f64,
    /// From memory that no cache holds.
    pub(crate) read_gigabytes_per_second: f64,
}

/// By key of the side.
pub(crate) type Samples = BTreeMap<String, Sample>;

/// A group that ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) samples: Samples,
    /// Limits of the processor as the sides found it: the means of before and after. `None` where no program of ours computes on
    /// it.
    pub(crate) ceiling: Option<Ceiling>,
}

/// The middle value; of an even number the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Programs to run, with the same number of threads each.
pub(crate) struct Programs {
    pub(crate) step: PathBuf,
    pub(crate) python: String,
    pub(crate) root: PathBuf,
    pub(crate) threads: usize,
    /// Steps before the clock starts.
    pub(crate) warmup: usize,
    /// Files of a side that the others read.
    pub(crate) folder: TempDir,
    /// Folder with models and texts of the user, in place of random ones.
    pub(crate) inputs: Option<PathBuf>,
}

impl Programs {
    /// The call that times the steps of a side of `group`.
    fn command(&self, group: &Group, side: &Side) -> Command {
        let threads = group.threads.unwrap_or(self.threads).to_string();
        let mut command = if let Some((script, _)) = side.program.script() {
            let mut command = Command::new(&self.python);
            command.arg(self.root.join(SCRIPTS).join(script)).args(["--threads", &threads]);
            if let Program::Inference | Program::Server = side.program {
                command.arg("--program").arg(self.built("lrvd"));
                command.args(
                    self.inputs.iter().flat_map(|folder| [OsStr::new("--inputs"), folder.as_ref()]),
                );
            }
            if side.program == Program::Server {
                command.arg("--load").arg(self.built("load"));
            }
            command
        } else {
            let mut command = Command::new(&self.step);
            command.env("RAYON_NUM_THREADS", &threads);
            command
        };
        for argument in side.arguments.split_whitespace() {
            match argument {
                "FOLDER" => command.arg(self.folder.path()),
                other => command.arg(other),
            };
        }
        let warmup = self.warmup.to_string();
        let steps = group.steps.to_string();
        command.args(["--warmup", &warmup, "--steps", &steps]);
        command
    }

    /// A program that is beside `step`.
    fn built(&self, name: &str) -> PathBuf {
        let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        self.step.with_file_name(name)
    }

    /// Measures the limits of the processor with the threads of `group`.
    fn ceiling(&self, group: &Group) -> Result<Ceiling> {
        let mut command = Command::new(&self.step);
        let threads = group.threads.unwrap_or(self.threads);
        command.env("RAYON_NUM_THREADS", threads.to_string()).arg("--ceiling");
        let text = process::output(&mut command)?;
        let found: Value = serde_json::from_str(text.trim()).context("`step --ceiling`")?;
        let number = |key: &str| found[key].as_f64().with_context(|| format!("no `{key}`"));
        Ok(Ceiling {
            product_gflops: number("product_flops")? * 1e-9,
            read_gigabytes_per_second: number("read_bytes_per_second")? * 1e-9,
        })
    }

    /// The times of a group, side by side, and the limits of the processor meanwhile.
    pub(crate) fn run(&self, group: &Group) -> Result<Measured> {
        let before = self.ceiling(group)?;
        let samples = self.samples(group)?;
        let after = self.ceiling(group)?;
        let ceiling = Ceiling {
            product_gflops: f64::midpoint(before.product_gflops, after.product_gflops),
            read_gigabytes_per_second: f64::midpoint(
                before.read_gigabytes_per_second,
                after.read_gigabytes_per_second,
            ),
        };
        Ok(Measured { samples, ceiling: Some(ceiling) })
    }

    fn samples(&self, group: &Group) -> Result<Samples> {
        interleave(group, |side| {
            let mut command = self.command(group, side);
            let text = process::output(&mut command)?;
            let run = parse(&text).with_context(|| format!("`{}`", process::show(&command)))?;
            if run.0.len() != group.steps {
                bail!("`{}` timed {} steps", process::show(&command), run.0.len());
            }
            eprintln!("{:40} {:.4} s", side.label, median(&run.0));
            Ok(run)
        })
    }
}

/// Runs the sides in turn, A B A B, so that a drift of the machine's speed meets all of them.
fn interleave(
    group: &Group,
    mut once: impl FnMut(&Side) -> Result<(Vec<f64>, Value)>,
) -> Result<Samples> {
    let mut samples = Samples::new();
    for _ in 0..group.rounds {
        for side in group.used() {
            let (seconds, facts) = once(side)?;
            let sample = samples.entry(side.key.clone()).or_default();
            sample.rounds.push(seconds);
            sample.facts = facts;
        }
    }
    Ok(samples)
}

/// The last line of a program's output: seconds of each timed step, and everything else.
fn parse(text: &str) -> Result<(Vec<f64>, Value)> {
    let line = text.lines().next_back().context("nothing was printed")?;
    let mut facts: Value = serde_json::from_str(line).context("the last line is not JSON")?;
    let seconds = facts.as_object_mut().and_then(|facts| facts.remove("seconds"));
    let seconds = seconds.context("no `seconds`")?;
    let seconds: Vec<f64> = serde_json::from_value(seconds).context("`seconds`")?;
    match seconds.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
        Some(bad) => bail!("a step of {bad} s"),
        None => Ok((seconds, facts)),
    }
}

/// Why `python` cannot run `program`; `None` if it can.
pub(crate) fn missing_import(python: &str, program: Program) -> Option<String> {
    let (_, imports) = program.script()?;
    let mut command = Command::new(python);
    command.args(["-c", &format!("import {imports}")]);
    let error = process::output(&mut command).err()?;
    // The last line of a traceback says what is missing.
    let text = format!("{error:#}");
    Some(text.lines().next_back().unwrap_or_default().to_owned())
}

/// Runs the benches of `group` and reads criterion's medians.
pub(crate) fn criterion(root: &Path, group: &Group, quick: bool) -> Result<Measured> {
    let ids: Vec<&str> = group.used().map(|side| side.arguments.as_str()).collect();
    // Criterion removes nothing: an old estimate must not replace a missing one.
    let home = tempdir()?;
    let mut command = process::cargo(root);
    command
        .args(["bench", "--package", "lrvd-cli", "--package", "lrvd-perf"])
        .args(["--bench", "operators", "--"])
        .arg(format!("^({})$", ids.join("|")))
        .args(quick.then_some("--quick"))
        .env("CRITERION_HOME", home.path());
    process::run(&mut command)?;
    let sample = |side: &Side| Ok((side.key.clone(), estimate(home.path(), &side.arguments)?));
    Ok(Measured { samples: group.used().map(sample).collect::<Result<_>>()?, ceiling: None })
}

/// The median of one function.
fn estimate(home: &Path, id: &str) -> Result<Sample> {
    let file = home.join(id).join("new/estimates.json");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("criterion left no estimate of `{id}`"))?;
    let value: Value = serde_json::from_str(&text).with_context(|| format!("`{id}`"))?;
    let nanoseconds = value["median"]["point_estimate"].as_f64();
    let nanoseconds = nanoseconds.with_context(|| format!("`{id}` has no median"))?;
    Ok(Sample { rounds: vec![vec![nanoseconds * 1e-9]], facts: Value::Null })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::table::{groups, select};
    use super::*;

    #[test]
    fn sides_are_run_in_turn() {
        let group = &mut select(groups(false).unwrap(), "nano-lora-pytorch").unwrap()[0];
        group.rounds = 2;
        let mut order = Vec::new();
        let samples = interleave(group, |side| {
            order.push(side.key.clone());
            Ok((vec![order.len() as f64], Value::Null))
        });
        assert_eq!(order, ["pytorch", "lora", "pytorch", "lora"]);
        assert_eq!(samples.unwrap()["lora"].rounds, [[2.0], [4.0]]);
        assert!(interleave(group, |_| bail!("no")).is_err());
    }

    #[test]
    fn the_last_line_is_read() {
        let text = "loading\n{\"seconds\": [0.5, 0.25], \"peak_rss_bytes\": 7}\n";
        let (seconds, facts) = parse(text).unwrap();
        assert_eq!((seconds, &facts["peak_rss_bytes"]), (vec![0.5, 0.25], &Value::from(7)));
        for bad in ["", "done", "{}", "{\"seconds\": [0.0]}", "{\"seconds\": \"1\"}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_sides_get_the_same_threads_and_steps() {
        let folder = tempdir().unwrap();
        let shared = folder.path().display().to_string();
        let python = "py".to_owned();
        let step = "step".into();
        let root = "root".into();
        let inputs = Some("own".into());
        let programs = Programs { step, python, root, threads: 3, warmup: 1, folder, inputs };
        let mut group = groups(true).unwrap().remove(0);
        group.steps = 4;
        let shown = |program| {
            let arguments = "--config nano --trained FOLDER".to_owned();
            let side = Side { key: String::new(), label: String::new(), program, arguments };
            process::show(&programs.command(&group, &side)).replace(&shared, "shared")
        };
        assert_eq!(
            [Program::Ours, Program::PyTorch, Program::Server].map(shown),
            [
                "RAYON_NUM_THREADS=3 step --config nano --trained shared --warmup 1 --steps 4",
                "py root/xtask/python/torch_step.py --threads 3 --config nano --trained shared --warmup 1 --steps 4",
                "py root/xtask/python/server_bench.py --threads 3 --program lrvd --inputs own --load load --config nano --trained shared --warmup 1 --steps 4"
            ]
        );
    }

    #[test]
    fn the_median_is_read_in_seconds() {
        let home = tempdir().unwrap();
        let folder = home.path().join("gelu/fused/new");
        std::fs::create_dir_all(&folder).unwrap();
        let estimates =
            r#"{"mean": {"point_estimate": 1.0}, "median": {"point_estimate": 2500000.0}}"#;
        std::fs::write(folder.join("estimates.json"), estimates).unwrap();
        assert_eq!(estimate(home.path(), "gelu/fused").unwrap().rounds, [[0.0025]]);
        let missing = estimate(home.path(), "gelu/composite").unwrap_err().to_string();
        assert!(missing.contains("gelu/composite"), "{missing}");
    }
}
