//! Our `step`, PyTorch's, and criterion's benches: built, found and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::{Sample, median};
use super::{Group, Program, Side};
use crate::{forward, process};

/// Stands for the shared folder in a side's arguments.
pub(crate) const FOLDER: &str = "FOLDER";
/// The other side's script.
const SCRIPT: &str = "xtask/python/torch_step.py";

/// What one call of a program says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    /// Seconds of each timed step.
    seconds: Vec<f64>,
    /// Everything else that it printed.
    facts: Value,
}

/// Programs to run, with the same number of threads each.
pub(crate) struct Programs {
    pub(crate) step: PathBuf,
    pub(crate) python: String,
    pub(crate) root: PathBuf,
    pub(crate) threads: usize,
    /// Steps before the clock starts.
    pub(crate) warmup: usize,
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
    /// With the program `step`, or with one that is built in release mode by the arguments `build`.
    pub(crate) fn new(
        root: &Path,
        (step, build): (Option<&str>, &[&str]),
        (python, threads, warmup): (&str, usize, usize),
    ) -> Result<Self> {
        let step = match step {
            Some(program) => program.into(),
            None => forward::build(root, &[&["--release"], build].concat(), "step")?,
        };
        let (root, python) = (root.to_owned(), python.to_owned());
        Ok(Self { step, python, root, threads, warmup, folder: temporary("bench") })
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
        let (warmup, steps) = (self.warmup.to_string(), steps.to_string());
        command.args(["--warmup", &warmup, "--steps", &steps]);
        Ok(command)
    }

    /// The times of a group, side by side.
    pub(crate) fn run(&self, group: &Group) -> Result<Vec<Sample>> {
        interleave(group, &mut |side, steps| {
            let mut command = self.command(side, steps)?;
            let text = process::output(&mut command)?;
            let run = parse(&text).with_context(|| format!("`{}`", process::show(&command)))?;
            if run.seconds.len() != steps {
                bail!("`{}` timed {} steps", process::show(&command), run.seconds.len());
            }
            eprintln!("{:40} {:.4} s", side.label, median(&run.seconds));
            Ok(run)
        })
    }
}

/// Runs the sides in turn, A B A B, so that a drift of the machine's speed meets all of them.
fn interleave(
    group: &Group,
    once: &mut dyn FnMut(&Side, usize) -> Result<Run>,
) -> Result<Vec<Sample>> {
    let mut samples = vec![Sample::default(); group.sides.len()];
    for _ in 0..group.rounds {
        for (place, sample) in samples.iter_mut().enumerate().filter(|(i, _)| group.uses(*i)) {
            let run = once(&group.sides[place], group.steps)?;
            sample.rounds.push(run.seconds);
            sample.facts = run.facts;
        }
    }
    Ok(samples)
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

/// Runs the benches of `group` and reads criterion's medians.
pub(crate) fn criterion(root: &Path, group: &Group, quick: bool) -> Result<Vec<Sample>> {
    let ids = |side: &Side| side.arguments.clone();
    let ids: Vec<String> = group.sides.iter().map(ids).collect();
    // Criterion removes nothing: an old estimate must not replace a missing one.
    let home = temporary("criterion");
    let mut command = process::cargo(root);
    command
        .args(["bench", "--package", "lrvd-cli", "--package", "lrvd-perf"])
        .args(["--bench", "operators", "--"])
        .arg(format!("^({})$", ids.join("|")))
        .args(quick.then_some("--quick"))
        .env("CRITERION_HOME", &home);
    let samples = process::run(&mut command)
        .and_then(|()| ids.iter().map(|id| estimate(&home, id)).collect::<Result<Vec<_>>>());
    let _ = std::fs::remove_dir_all(&home);
    samples
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

/// A folder of this process that is not there yet.
fn temporary(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lrvd-{what}-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::table::groups;
    use super::*;

    #[test]
    fn sides_are_run_in_turn() {
        let mut group = groups(false).remove(0);
        group.comparisons.truncate(1);
        group.rounds = 2;
        let mut order = Vec::new();
        let samples = interleave(&group, &mut |side, steps| {
            order.push(side.label.clone());
            let seconds = vec![order.len() as f64; steps];
            Ok(Run { seconds, facts: Value::Null })
        });
        assert_eq!(order, ["PyTorch + PEFT, LoRA", "LoRA", "PyTorch + PEFT, LoRA", "LoRA"]);
        let samples = samples.unwrap();
        assert_eq!(samples[1].rounds, [vec![2.0; 15], vec![4.0; 15]]);
        assert_eq!(samples[1].median(), 3.0);
        assert!(interleave(&group, &mut |_, _| bail!("no")).is_err());
    }

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
        let mut programs =
            Programs::new(Path::new("root"), (Some("step"), &[]), ("py", 3, 1)).unwrap();
        programs.folder = "shared".into();
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
        assert!(!torch_problem("no-such-python").unwrap().is_empty());
    }

    #[test]
    fn the_median_is_read_in_seconds() {
        let home = temporary("estimate");
        let folder = home.join("gelu/fused/new");
        std::fs::create_dir_all(&folder).unwrap();
        let estimates =
            r#"{"mean": {"point_estimate": 1.0}, "median": {"point_estimate": 2500000.0}}"#;
        std::fs::write(folder.join("estimates.json"), estimates).unwrap();
        let found = estimate(&home, "gelu/fused");
        let missing = estimate(&home, "gelu/composite");
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(found.unwrap().median(), 0.0025);
        assert!(missing.unwrap_err().to_string().contains("gelu/composite"));
    }
}
