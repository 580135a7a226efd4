//! End-to-end comparisons of speed.
//!
//! | file | what |
//! |---|---|
//! | `comparisons.toml`, `table` | every comparison with its target |
//! | `programs` | our `step`, its peers in Python, and criterion's benches |
//! | `report` | medians, fits, an entry of speed.json for each comparison, pages |

pub(crate) mod programs;
pub(crate) mod report;
pub(crate) mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use self::programs::{Programs, criterion, missing_import};
use self::report::{Machine, replace, section, speed, versions};
use self::table::{Group, Program, groups, select_all, take_comparisons};
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
    /// A Python with torch, transformers and peft; for `generation` also llama-cpp-python and gguf, for `inference` onnxruntime
    /// and sentence-transformers, for `server` onnxruntime, fastapi and uvicorn [default: python3].
    #[arg(long)]
    python: Option<String>,
    /// Folder with `minilm` or `base`, models in place of random ones of their size, and `texts.txt`, one text a line, for
    /// `inference` and `server`.
    #[arg(long, value_name = "DIR")]
    inputs: Option<PathBuf>,
    /// Folder with built `lrvd`, `step` and `load`; by default they are built.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Too short for results: only print.
    #[arg(long)]
    quick: bool,
}

/// Runs the comparisons, or one of them, and writes them down.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace::root()?;
    let machine = Machine::read(&root);
    let mut chosen = groups(machine.avx512())?;
    if !options.only.is_empty() {
        chosen = select_all(&chosen, &options.only)?;
    }
    if options.quick {
        for group in chosen.iter_mut().filter(|group| !group.is_criterions()) {
            (group.rounds, group.steps) = QUICK;
        }
    }
    let missing = |program| missing_import(options.python(), program);
    let skipped = skip_missing(&mut chosen, options, missing)?;
    let (sections, failed) = measure(&chosen, &root, options, &machine)?;
    let page = speed(&json!({
        "machine": machine,
        "command": options.command(),
        "versions": versions(&sections),
        "skipped": skipped,
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
            self.inputs.is_some().then(|| " --inputs DIR".to_owned()),
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

/// Takes the comparisons with programs that have a `problem` out of `chosen`, and returns their names with the reason; an
/// error if they were asked for by name.
fn skip_missing(
    chosen: &mut Vec<Group>,
    options: &Options,
    problem: impl Fn(Program) -> Option<String>,
) -> Result<Vec<(Vec<String>, String)>> {
    let mut skipped = Vec::new();
    for program in Program::PEERS {
        let mut left = chosen.clone();
        let names = take_comparisons(&mut left, program);
        let Some(problem) = (!names.is_empty()).then(|| problem(program)).flatten() else {
            continue;
        };
        let (_, packages) = program.script().unwrap_or_default();
        let reason = format!("{packages} are not at hand ({problem})");
        // `--python` names the interpreter of PyTorch.
        let is_asked_for = options.python.is_some() && program == Program::PyTorch;
        if is_asked_for || left.is_empty() {
            bail!(
                "{reason}, as {} want; `--python PYTHON` names one that has them",
                names.join(", ")
            );
        }
        eprintln!("skipped, {reason}:\n  {}", names.join("\n  "));
        *chosen = left;
        skipped.push((names, reason));
    }
    Ok(skipped)
}

/// Sections of the groups that ran, and names and errors of those that failed.
type Outcome = (Vec<Value>, Vec<(String, String)>);

/// Runs every group; one that fails does not take the others along.
fn measure(groups: &[Group], root: &Path, options: &Options, machine: &Machine) -> Result<Outcome> {
    let mut programs = None;
    if !groups.iter().all(Group::is_criterions) {
        // The command is built along: all then share one set of compiled dependencies.
        let build = ["--package", "lrvd-cli", "--package", "lrvd-perf", "--bin", "lrvd"];
        let build = [&["--release"], &build[..], &["--bin", "step", "--bin", "load"]].concat();
        let step = match &options.programs {
            Some(folder) => folder.join(format!("step{}", std::env::consts::EXE_SUFFIX)),
            None => forward::build(root, &build, "step")?,
        };
        programs = Some(Programs {
            step: std::path::absolute(step)?,
            python: options.python().to_owned(),
            root: root.to_owned(),
            threads: machine.threads,
            warmup: 1,
            folder: tempfile::tempdir()?,
            inputs: options.inputs.clone(),
        });
    }
    let mut sections = Vec::new();
    let mut failed = Vec::new();
    for group in groups {
        eprintln!("\n== {}", group.name);
        let measured = match &programs {
            Some(programs) if !group.is_criterions() => programs.run(group),
            _ => criterion(root, group, options.quick),
        };
        match measured {
            Ok(measured) => sections.push(section(group, &measured, machine)),
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
            inputs: Some("own".into()),
            programs: Some("target/release".into()),
            quick: true,
        };
        let shown = "cargo xtask bench --out OUT --python PYTHON --inputs DIR --only nano,growth-lora --quick";
        assert_eq!(options.command(), shown);
    }

    #[test]
    fn comparisons_without_a_peer_are_skipped_unless_they_were_asked_for() {
        let missing = |program| (program == Program::PyTorch).then(|| "no module".to_owned());
        let quiet = Options::default();
        let asked = Options { python: Some("py".to_owned()), ..Options::default() };
        let all = groups(false).unwrap();
        let mut left = groups(false).unwrap();
        let skipped = skip_missing(&mut left, &quiet, missing).unwrap();
        let [(names, reason)] = &skipped[..] else { panic!("{skipped:?}") };
        assert!(names.contains(&"base-lora-pytorch".to_owned()) && reason.contains("no module"));
        assert!(names.len() == 13 && names.iter().all(|name| name.ends_with("-pytorch")));
        assert!(left.iter().any(|group| group.name == "base") && left.len() == all.len());
        // By name, or with a Python named for it, silence would be wrong.
        let mut only = select(all.clone(), "nano-lora-pytorch").unwrap();
        assert!(skip_missing(&mut only, &quiet, missing).is_err());
        assert!(skip_missing(&mut all.clone(), &asked, missing).is_err());
        let no_llama = |program| (program == Program::LlamaCpp).then(|| "no module".to_owned());
        assert_eq!(skip_missing(&mut all.clone(), &asked, no_llama).unwrap()[0].0.len(), 6);
        // Not asked if not needed.
        let mut pruned = select(all.clone(), "pruned-nano").unwrap();
        assert_eq!(skip_missing(&mut pruned, &asked, |_| panic!("asked")).unwrap(), []);
        let mut left = all.clone();
        assert_eq!(skip_missing(&mut left, &quiet, |_| None).unwrap(), []);
        assert_eq!(left, all);
    }
}
