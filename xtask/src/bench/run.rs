//! End-to-end comparisons of speed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde_json::json;

use super::machine::Machine;
use super::page::{Account, render, replace};
use super::programs::{Programs, criterion, torch_problem};
use super::report::{Sample, entries};
use super::table::groups;
use super::{Group, Program, select, without_torch};
use crate::workspace;

/// The page that a whole run writes.
const PAGE: &str = "docs/results/speed.md";
/// Asked for PyTorch unless another is named.
const PYTHON: &str = "python3";
/// Rounds and steps of a quick run.
const QUICK: (usize, usize) = (1, 2);

/// Options of `bench`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Folder for speed.md and speed.json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run one comparison or group, and only print it; an unknown name lists them.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// A Python with torch, transformers and peft [default: python3].
    #[arg(long)]
    python: Option<String>,
    /// Too short for results: only print.
    #[arg(long)]
    quick: bool,
}

/// Runs the comparisons, or one of them, and writes them down.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace::root()?;
    let machine = Machine::read(&root);
    let mut chosen = choose(groups(machine.avx512()), options.only.as_deref())?;
    if options.quick {
        for group in chosen.iter_mut().filter(|group| !group.is_criterions()) {
            (group.rounds, group.steps) = QUICK;
        }
    }
    let (chosen, skipped) = with_torch(chosen, options, || torch_problem(options.python()))?;
    let (measured, failed) = measure(chosen, &root, options, machine.threads)?;

    let account = Account {
        machine: &machine,
        command: &options.command(),
        skipped: skipped.as_ref().map(|(names, reason)| (names.as_slice(), reason.as_str())),
        failed: &failed,
    };
    let measured: Vec<_> = measured
        .iter()
        .map(|(group, samples)| (group, entries(group, samples, &machine)))
        .collect();
    let page = render(&account, &measured);
    match &options.out {
        Some(folder) => {
            write(&folder.join("speed.md"), &format!("# Speed\n\n{page}"))?;
            let entries: Vec<_> = measured.iter().flat_map(|(_, entries)| entries).collect();
            write(&folder.join("speed.json"), &format!("{:#}\n", json!(entries)))?;
        }
        None if options.is_whole() && failed.is_empty() => {
            let file = root.join(PAGE);
            let old =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read `{PAGE}`"))?;
            write(&file, &replace(&old, &page).with_context(|| format!("`{PAGE}`"))?)?;
        }
        None => print!("{page}"),
    }
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}

impl Options {
    /// Whether the run is one for the page: everything, at full length.
    fn is_whole(&self) -> bool {
        self.only.is_none() && !self.quick
    }

    /// The call as a reader would repeat it: paths of this machine stay out.
    fn command(&self) -> String {
        let only = self.only.as_ref().map(|name| format!(" --only {name}"));
        [
            Some("cargo xtask bench".to_owned()),
            self.out.is_some().then(|| " --out OUT".to_owned()),
            self.python.is_some().then(|| " --python PYTHON".to_owned()),
            only,
            self.quick.then(|| " --quick".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn python(&self) -> &str {
        self.python.as_deref().unwrap_or(PYTHON)
    }
}

/// All groups or the one asked for.
fn choose(groups: Vec<Group>, only: Option<&str>) -> Result<Vec<Group>> {
    let Some(name) = only else { return Ok(groups) };
    select(groups, name).map_err(|names| {
        anyhow!("there is no comparison `{name}`; there are\n  {}", names.join("\n  "))
    })
}

type Skipped = Option<(Vec<String>, String)>;

/// What can be run, and what is skipped for want of PyTorch; an error if it was asked for by name.
fn with_torch(
    chosen: Vec<Group>,
    options: &Options,
    problem: impl Fn() -> Option<String>,
) -> Result<(Vec<Group>, Skipped)> {
    let uses = |group: &Group| group.comparisons.iter().any(|c| group.needs(c, Program::Torch));
    let Some(problem) = chosen.iter().any(uses).then(problem).flatten() else {
        return Ok((chosen, None));
    };
    let reason = format!("PyTorch, transformers and PEFT are not at hand ({problem})");
    let (left, skipped) = without_torch(chosen);
    if options.python.is_some() || left.is_empty() {
        bail!(
            "{reason}, as {} want; `--python PYTHON` names one that has them",
            skipped.join(", ")
        );
    }
    eprintln!("skipped, {reason}:\n  {}", skipped.join("\n  "));
    Ok((left, Some((skipped, reason))))
}

/// Groups with their times, and those that failed with their errors.
type Times = (Vec<(Group, Vec<Sample>)>, Vec<(String, String)>);

/// Runs every group; one that fails does not take the others along.
fn measure(groups: Vec<Group>, root: &Path, options: &Options, threads: usize) -> Result<Times> {
    let programs = if groups.iter().all(Group::is_criterions) {
        None
    } else {
        // The command is built along: both then share one set of compiled dependencies.
        let build =
            ["--package", "lrvd-cli", "--package", "lrvd-perf", "--bin", "lrvd", "--bin", "step"];
        Some(Programs::new(root, (None, &build), (options.python(), threads, 1))?)
    };
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for group in groups {
        eprintln!("\n== {}", group.name);
        let samples = match &programs {
            Some(programs) if !group.is_criterions() => programs.run(&group),
            _ => criterion(root, &group, options.quick),
        };
        match samples {
            Ok(samples) => measured.push((group, samples)),
            Err(error) => {
                eprintln!("error: {error:#}");
                failed.push((group.name, format!("{error:#}")));
            }
        }
    }
    Ok((measured, failed))
}

fn write(file: &Path, text: &str) -> Result<()> {
    let shown = file.display();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    std::fs::write(file, text).with_context(|| format!("cannot write `{shown}`"))?;
    eprintln!("wrote {shown}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_command_on_the_page_names_no_folder_of_this_machine() {
        let options = Options {
            out: Some("x/y".into()),
            only: Some("nano".to_owned()),
            python: Some("z/python".to_owned()),
            quick: true,
        };
        let shown = "cargo xtask bench --out OUT --python PYTHON --only nano --quick";
        assert_eq!(options.command(), shown);
        assert!(!options.is_whole());
        assert!(Options { out: Some("x".into()), ..Options::default() }.is_whole());
    }

    #[test]
    fn an_unknown_comparison_is_rejected_with_the_list() {
        let rejection = choose(groups(false), Some("deberta")).unwrap_err().to_string();
        assert!(rejection.starts_with("there is no comparison `deberta`; there are\n  nano\n"));
        assert!(rejection.contains("\n  pruned-base-rank-10"), "{rejection}");
        assert_eq!(choose(groups(true), None).unwrap(), groups(true));
    }

    #[test]
    fn without_pytorch_comparisons_are_skipped_unless_it_was_asked_for() {
        let only = |name: &str| choose(groups(false), Some(name)).unwrap();
        let missing = || Some("no module".to_owned());
        let quiet = Options::default();
        let (left, skipped) = with_torch(groups(false), &quiet, missing).unwrap();
        let (names, reason) = skipped.unwrap();
        assert!(names.contains(&"base-lora-pytorch".to_owned()) && reason.contains("no module"));
        assert!(names.len() == 9 && names.iter().all(|name| name.ends_with("-pytorch")));
        assert!(left.iter().any(|group| group.name == "base") && left.len() == groups(false).len());
        // By name, or with a Python named for it, silence would be wrong.
        assert!(with_torch(only("nano-lora-pytorch"), &quiet, missing).is_err());
        let asked = Options { python: Some("py".to_owned()), ..Options::default() };
        assert!(with_torch(groups(false), &asked, missing).is_err());
        // Not asked if not needed.
        let (_, skipped) = with_torch(only("pruned-nano"), &asked, || panic!("asked")).unwrap();
        assert_eq!(skipped, None);
        assert_eq!(with_torch(groups(false), &quiet, || None).unwrap(), (groups(false), None));
    }
}
