//! End-to-end comparisons of speed.
//!
//! | file | what |
//! |---|---|
//! | `comparisons.toml`, `table` | every comparison with its target |
//! | `programs` | our `step`, `PyTorch`'s, and criterion's benches |
//! | `report` | medians, fits, an entry of speed.json for each comparison, pages |

pub(crate) mod programs;
pub(crate) mod report;
pub(crate) mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use self::programs::{Programs, criterion, torch_problem};
use self::report::{Machine, replace, section, speed, versions};
use self::table::{Group, groups, select_all, take_pytorch};
use crate::{forward, workspace};

const PAGE: &str = "docs/results/speed.md";
const QUICK: (usize, usize) = (1, 2);

/// Options of `bench`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Folder for speed.md and speed.json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run comparisons or groups by name, and only print them; an unknown name lists all.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
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
    let mut machine = Machine::read(&root);
    let mut chosen = groups(machine.avx512())?;
    if !options.only.is_empty() {
        chosen = select_all(&chosen, &options.only)?;
    }
    if options.quick {
        for group in chosen.iter_mut().filter(|group| !group.is_criterions()) {
            (group.rounds, group.steps) = QUICK;
        }
    }
    let skipped = skip_pytorch(&mut chosen, options, || torch_problem(options.python()))?;
    let (sections, failed) = measure(&chosen, &root, options, &mut machine)?;
    let page = speed(&json!({
        "machine": machine,
        "command": options.command(),
        "versions": versions(&sections),
        "skipped": skipped.map(|(names, reason)| json!({ "names": names, "reason": reason })),
        "failed": failed,
        "sections": sections,
    }))?;
    match &options.out {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make `{}`", folder.display()))?;
            write(&folder.join("speed.md"), &format!("# Speed\n\n{page}"))?;
            let entries = sections.iter().filter_map(|s| s["entries"].as_array()).flatten();
            let entries = json!(entries.collect::<Vec<_>>());
            write(&folder.join("speed.json"), &format!("{entries:#}\n"))?;
        }
        None if options.only.is_empty() && !options.quick && failed.is_empty() => {
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
    /// The call as a reader would repeat it: paths of this machine stay out.
    fn command(&self) -> String {
        let only = (!self.only.is_empty()).then(|| format!(" --only {}", self.only.join(",")));
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
        self.python.as_deref().unwrap_or("python3")
    }
}

/// Takes the comparisons with `PyTorch` out of `chosen` if it has a `problem`, and returns their names and the reason; an
/// error if they were asked for by name.
fn skip_pytorch(
    chosen: &mut Vec<Group>,
    options: &Options,
    problem: impl Fn() -> Option<String>,
) -> Result<Option<(Vec<String>, String)>> {
    let mut left = chosen.clone();
    let skipped = take_pytorch(&mut left);
    let Some(problem) = (!skipped.is_empty()).then(problem).flatten() else { return Ok(None) };
    let reason = format!("PyTorch, transformers and PEFT are not at hand ({problem})");
    if options.python.is_some() || left.is_empty() {
        bail!(
            "{reason}, as {} want; `--python PYTHON` names one that has them",
            skipped.join(", ")
        );
    }
    eprintln!("skipped, {reason}:\n  {}", skipped.join("\n  "));
    *chosen = left;
    Ok(Some((skipped, reason)))
}

/// Sections of the groups that ran, and names and errors of those that failed.
type Measured = (Vec<Value>, Vec<(String, String)>);

/// Runs every group; one that fails does not take the others along.
fn measure(
    groups: &[Group],
    root: &Path,
    options: &Options,
    machine: &mut Machine,
) -> Result<Measured> {
    let mut programs = None;
    if !groups.iter().all(Group::is_criterions) {
        // The command is built along: both then share one set of compiled dependencies.
        let build = ["--package", "lrvd-cli", "--package", "lrvd-perf", "--bin", "lrvd"];
        let build = [&["--release"], &build[..], &["--bin", "step"]].concat();
        let built = Programs {
            step: forward::build(root, &build, "step")?,
            python: options.python().to_owned(),
            root: root.to_owned(),
            threads: machine.threads,
            warmup: 1,
            folder: tempfile::tempdir()?,
        };
        machine.ceiling = Some(built.ceiling()?);
        programs = Some(built);
    }
    let (mut sections, mut failed) = (Vec::new(), Vec::new());
    for group in groups {
        eprintln!("\n== {}", group.name);
        let samples = match &programs {
            Some(programs) if !group.is_criterions() => programs.run(group),
            _ => criterion(root, group, options.quick),
        };
        match samples {
            Ok(samples) => sections.push(section(group, &samples, machine)),
            Err(error) => {
                eprintln!("error: {error:#}");
                failed.push((group.name.clone(), format!("{error:#}")));
            }
        }
    }
    Ok((sections, failed))
}

fn write(file: &Path, text: &str) -> Result<()> {
    let shown = file.display();
    std::fs::write(file, text).with_context(|| format!("cannot write `{shown}`"))?;
    eprintln!("wrote {shown}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::table::select;
    use super::*;

    #[test]
    fn the_command_on_the_page_names_no_folder_of_this_machine() {
        let options = Options {
            out: Some("x/y".into()),
            only: vec!["nano".to_owned(), "growth-lora".to_owned()],
            python: Some("z/python".to_owned()),
            quick: true,
        };
        let shown = "cargo xtask bench --out OUT --python PYTHON --only nano,growth-lora --quick";
        assert_eq!(options.command(), shown);
    }

    #[test]
    fn without_pytorch_comparisons_are_skipped_unless_it_was_asked_for() {
        let missing = || Some("no module".to_owned());
        let quiet = Options::default();
        let asked = Options { python: Some("py".to_owned()), ..Options::default() };
        let (all, mut left) = (groups(false).unwrap(), groups(false).unwrap());
        let (names, reason) = skip_pytorch(&mut left, &quiet, missing).unwrap().unwrap();
        assert!(names.contains(&"base-lora-pytorch".to_owned()) && reason.contains("no module"));
        assert!(names.len() == 9 && names.iter().all(|name| name.ends_with("-pytorch")));
        assert!(left.iter().any(|group| group.name == "base") && left.len() == all.len());
        // By name, or with a Python named for it, silence would be wrong.
        let mut only = select(all.clone(), "nano-lora-pytorch").unwrap();
        assert!(skip_pytorch(&mut only, &quiet, missing).is_err());
        assert!(skip_pytorch(&mut all.clone(), &asked, missing).is_err());
        // Not asked if not needed.
        let mut pruned = select(all.clone(), "pruned-nano").unwrap();
        assert_eq!(skip_pytorch(&mut pruned, &asked, || panic!("asked")).unwrap(), None);
        let mut left = all.clone();
        assert_eq!(skip_pytorch(&mut left, &quiet, || None).unwrap(), None);
        assert_eq!(left, all);
    }
}
