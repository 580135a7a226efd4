//! Which runs there are, what each needs, and the files in which a sweep keeps that.
//!
//! | file below `plan/` | what |
//! |---|---|
//! | `plan.json` | the [`Plan`]: experiments with their resolved settings, model, data |
//! | `runs.jsonl` | the manifest: one run on each line, in the order of a single process |
//! | `claims/` | which worker makes which run, see `claim` |
//! | `failed/` | errors of runs, one file each |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arms::{Arms, folder as arm_folder};
use super::dry_run::{PlannedMemory, Sizes};
use super::kind::{Profile, Suite};
use super::options::SuiteOptions;
use crate::error::Result;
use crate::io::{
    JsonLayout, create_dir, read_lines, read_versioned, sha256_text, write_json, write_json_lines,
};
use crate::method::{MethodForm, MethodName};
use crate::record::{ModelRecord, TaskData};
use crate::settings::Config;
use crate::task::Task;

const SCHEMA: u32 = 1;
pub(super) const PLAN_DIR: &str = "plan";
const PLAN_FILE: &str = "plan.json";
const RUNS_FILE: &str = "runs.jsonl";
pub(super) const CLAIMS_DIR: &str = "claims";
/// Hex digits of a run's id.
const ID_DIGITS: usize = 16;

/// Members of an ensemble take their seeds from here: `MEMBER_SEEDS · seed + member`.
const MEMBER_SEEDS: u64 = 1000;
/// Largest seed: those of members, and what is mixed into the higher bits, must stay apart.
pub(super) const MAX_SEED: u64 = (1 << 40) / MEMBER_SEEDS - 1;

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    /// Hash of its resolved settings, task, arm, method and seed; empty until data and weights are known.
    pub id: String,
    /// Place of its experiment in the plan.
    pub experiment: usize,
    pub arm: Option<String>,
    pub task: Task,
    pub method: MethodName,
    pub seed: u64,
    /// Whether it is only a part of other rows.
    pub is_member: bool,
    /// Places of the runs that must be finished before it: the members of an ensemble, the runs whose ranks it is given.
    pub needs: Vec<usize>,
}

impl PlannedRun {
    pub fn label(&self) -> String {
        let arm = self.arm.as_ref().map(|arm| format!("{arm} / ")).unwrap_or_default();
        format!("{arm}{} / {} / seed {}", self.task.display_name(), self.method, self.seed)
    }

    /// Whether it is made from the answers of the runs that it needs, without training.
    pub(super) fn is_combined(&self) -> bool {
        matches!(self.method.entry().form, MethodForm::Ensemble { .. })
    }

    /// Its folder below the output folder of its experiment.
    pub(super) fn folder(&self) -> PathBuf {
        let kind = if self.is_member { "members" } else { "runs" };
        [kind, self.task.name(), &self.method.key(), &format!("seed-{}", self.seed)]
            .iter()
            .collect()
    }

    /// The members that this row is made of; empty for a separate run. Temperature scaling on top of
    /// the row is on top of each of them.
    fn members(&self) -> Vec<Self> {
        let MethodForm::Ensemble { member, members } = self.method.entry().form else {
            return Vec::new();
        };
        let method = MethodName::from_name(member).unwrap_or(self.method);
        let method = if self.method.is_tempered() { method.tempered() } else { method };
        (0..members as u64)
            .map(|i| Self {
                method,
                seed: MEMBER_SEEDS * self.seed + i,
                is_member: true,
                ..self.clone()
            })
            .collect()
    }

    /// Whether `other` is the same run, whatever it needs.
    fn is(&self, other: &Self) -> bool {
        let key = |run: &Self| (run.experiment, run.task, run.method, run.seed, run.is_member);
        key(self) == key(other)
    }
}

/// Matching belongs to the paper's first table; beside other methods everything has one rank.
pub(super) fn matches_ranks(options: &SuiteOptions) -> bool {
    let first_table = |m: &MethodName| MethodName::FIRST_TABLE.contains(m);
    options.suite.matches_ranks() && options.methods.iter().all(first_table)
}

/// Adds the runs of an experiment, task by task. Where ranks are matched, BayesLoRA comes first for every seed: AdaLoRA
/// is given the rank of each of its seeds, LoRA the median of all. The members of a row come before it, once.
pub(super) fn add_runs(
    runs: &mut Vec<PlannedRun>,
    experiment: usize,
    arm: Option<&str>,
    options: &SuiteOptions,
) {
    let mut methods = options.methods.clone();
    if options.suite == Suite::Glue {
        let first = MethodName::FIRST_TABLE;
        let place = |m: &MethodName| first.iter().rev().position(|f| f == m);
        methods.sort_by_key(|m| place(m).unwrap_or(first.len()));
    }
    let matches = matches_ranks(options);
    for &task in &options.tasks {
        for &method in &methods {
            let row = |&seed: &u64| PlannedRun {
                id: String::new(),
                experiment,
                arm: arm.map(str::to_owned),
                task,
                method,
                seed,
                is_member: false,
                needs: Vec::new(),
            };
            let mut rows: Vec<PlannedRun> = options.seeds.iter().map(row).collect();
            for row in &mut rows {
                for member in row.members() {
                    let place = runs.iter().position(|run| run.is(&member)).unwrap_or(runs.len());
                    if place == runs.len() {
                        runs.push(member);
                    }
                    row.needs.push(place);
                }
                if matches {
                    row.needs = matched(runs, row);
                }
            }
            runs.extend(rows);
        }
    }
}

/// The runs whose learnt ranks `row` is given: those with the same seed if it keeps to a budget, those of all seeds if
/// its rank is fixed.
fn matched(runs: &[PlannedRun], row: &PlannedRun) -> Vec<usize> {
    let can = row.method.can();
    if can.prunes && !can.budget {
        return Vec::new();
    }
    let learns = |run: &PlannedRun| {
        let theirs = run.method.can();
        (run.experiment, run.task) == (row.experiment, row.task)
            && theirs.prunes
            && !theirs.budget
            && (!can.budget || run.seed == row.seed)
    };
    (0..runs.len()).filter(|&place| learns(&runs[place])).collect()
}

/// An arm, or the whole suite: everything that its runs have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    pub arm: Option<String>,
    pub preset: String,
    pub matches: bool,
    /// What `settings.json` holds.
    pub settings: Value,
    pub config: Config,
    /// By task.
    pub data: BTreeMap<String, TaskData>,
}

/// An arms file as it was read, with the settings of the folder that holds all arms.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArmsOfPlan {
    pub file: Arms,
    pub preset: String,
    pub settings: Value,
}

/// A whole sweep: what a worker must know to make any of its runs, and what a report says of all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    schema_version: u32,
    pub(super) suite: Suite,
    pub(super) profile: Profile,
    pub(super) device: String,
    /// Folder or repository; `None` for the profile's own.
    pub(super) model: Option<String>,
    /// `None` for the generated data in the output folder.
    pub(super) data_dir: Option<PathBuf>,
    pub(super) keep: bool,
    pub(super) compare: Option<PathBuf>,
    pub(super) command: String,
    pub(super) git_revision: Option<String>,
    pub(super) started_at: String,
    pub(super) backbone: ModelRecord,
    pub(super) arms: Option<ArmsOfPlan>,
    pub(super) experiments: Vec<Experiment>,
    #[serde(skip)]
    pub runs: Vec<PlannedRun>,
}

/// A line of the manifest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    index: usize,
    id: String,
    arm: Option<String>,
    task: String,
    method: MethodName,
    seed: u64,
    member: bool,
    /// Ids of the runs that must be finished before.
    needs: Vec<String>,
    steps: usize,
    /// Estimated, at the peak.
    memory_gib: f64,
    /// Below the output folder.
    folder: PathBuf,
}

impl Plan {
    /// The plan of `runs`, whose ids follow from the settings and files of their experiments.
    pub(super) fn new(
        options: &SuiteOptions,
        started_at: String,
        backbone: ModelRecord,
        experiments: Vec<Experiment>,
        mut runs: Vec<PlannedRun>,
    ) -> Self {
        for run in &mut runs {
            run.id = id(&experiments[run.experiment], run);
        }
        Self {
            schema_version: SCHEMA,
            suite: options.suite,
            profile: options.profile,
            device: options.device.clone(),
            model: options.model.clone(),
            data_dir: options.data_dir.clone(),
            keep: options.keep,
            compare: options.compare.clone(),
            command: options.command.clone(),
            git_revision: options.git_revision.clone(),
            started_at,
            backbone,
            arms: None,
            experiments,
            runs,
        }
    }

    pub(super) fn write(&self, out: &Path, sizes: &[Sizes]) -> Result<()> {
        let folder = out.join(PLAN_DIR);
        create_dir(&folder.join(CLAIMS_DIR))?;
        write_json(&folder.join(PLAN_FILE), self, JsonLayout::Pretty)?;
        let lines = self.runs.iter().enumerate().map(|(index, run)| {
            let memory = sizes[run.experiment].memory(run.method).map_or(0.0, PlannedMemory::total);
            let is_trained = !run.is_combined();
            Line {
                index,
                id: run.id.clone(),
                arm: run.arm.clone(),
                task: run.task.name().to_owned(),
                method: run.method,
                seed: run.seed,
                member: run.is_member,
                needs: run.needs.iter().map(|&place| self.runs[place].id.clone()).collect(),
                steps: self.steps(run),
                memory_gib: if is_trained { memory } else { 0.0 },
                folder: self.folder(run),
            }
        });
        write_json_lines(&folder.join(RUNS_FILE), lines)
    }

    /// The plan of the output folder `out`.
    pub fn read(out: &Path) -> Result<Self> {
        let folder = out.join(PLAN_DIR);
        if !folder.join(PLAN_FILE).is_file() {
            bail!(
                "`{}` holds no plan; `lrvd bench glue --plan {0}` or `lrvd bench reasoning --plan {0}` writes one",
                out.display()
            );
        }
        let mut plan: Self = read_versioned(&folder.join(PLAN_FILE), SCHEMA)?;
        let path = folder.join(RUNS_FILE);
        for (place, line) in read_lines::<Line>(&path)?.into_iter().enumerate() {
            let of_line =
                |what: String| anyhow!("`{}`, line {}: {what}", path.display(), place + 1);
            let is_of = |experiment: &Experiment| experiment.arm == line.arm;
            let experiment = plan.experiments.iter().position(is_of);
            let experiment = experiment.ok_or_else(|| of_line(format!("no arm {:?}", line.arm)))?;
            let place = |id: &String| plan.runs.iter().position(|run| run.id == *id);
            let missing = |id: &String| of_line(format!("no run `{id}` before this one"));
            let needs = line.needs.iter().map(|id| place(id).ok_or_else(|| missing(id)));
            let run = PlannedRun {
                experiment,
                task: plan.suite.task(&line.task).map_err(|e| of_line(format!("{e:#}")))?,
                method: line.method,
                seed: line.seed,
                is_member: line.member,
                needs: needs.collect::<Result<_>>()?,
                arm: line.arm,
                id: line.id,
            };
            plan.runs.push(run);
        }
        Ok(plan)
    }

    /// Folder of an experiment: the output folder `out`, or that of its arm.
    pub(super) fn place(&self, out: &Path, experiment: usize) -> PathBuf {
        let arm = self.experiments[experiment].arm.as_ref();
        arm.map_or_else(|| out.to_owned(), |arm| out.join(arm_folder(arm)))
    }

    /// Folder of a run below the output folder.
    pub fn folder(&self, run: &PlannedRun) -> PathBuf {
        let folder = run.folder();
        run.arm.as_ref().map_or_else(|| folder.clone(), |arm| arm_folder(arm).join(&folder))
    }

    /// Optimiser steps; 0 for a row that is made from other runs.
    pub(super) fn steps(&self, run: &PlannedRun) -> usize {
        if run.is_combined() { 0 } else { self.experiments[run.experiment].config.steps }
    }

    /// Folder of the run that events call `label`, below the output folder.
    pub fn folder_of(&self, label: &str) -> PathBuf {
        let run = self.runs.iter().find(|run| run.label() == label);
        run.map(|run| self.folder(run)).unwrap_or_default()
    }

    /// Place of the run with this number or id.
    pub fn find(&self, name: &str) -> Result<usize> {
        let by_number = name.parse().ok().filter(|&index: &usize| index < self.runs.len());
        by_number.or_else(|| self.runs.iter().position(|run| run.id == name)).ok_or_else(|| {
            anyhow!(
                "the plan has no run `{name}`: expected an index from 0 to {} or an id",
                self.runs.len().saturating_sub(1)
            )
        })
    }
}

/// The runs of the suite, or of its `arms`, without ids: nothing is read.
pub fn planned_runs(options: &SuiteOptions, arms: Option<&Arms>) -> Result<Vec<PlannedRun>> {
    let mut runs = Vec::new();
    match arms {
        None => add_runs(&mut runs, 0, None, &options.clone().resolved()?),
        Some(arms) => {
            for (place, (name, options)) in arms.experiments(options)?.into_iter().enumerate() {
                add_runs(&mut runs, place, Some(&name), &options.resolved()?);
            }
        }
    }
    Ok(runs)
}

/// Places of the runs that can be made at once, then of those that need one of these, and so on.
pub(super) fn levels(runs: &[PlannedRun]) -> Vec<Vec<usize>> {
    let mut depth: Vec<usize> = Vec::new();
    for run in runs {
        depth.push(run.needs.iter().map(|&place| depth[place] + 1).max().unwrap_or(0));
    }
    let most = depth.iter().max().map_or(0, |most| most + 1);
    (0..most).map(|d| (0..runs.len()).filter(|&run| depth[run] == d).collect()).collect()
}

/// Hash of what a run depends on: everything in the settings but the lists that may grow and the files of other tasks,
/// which count by their content.
fn id(experiment: &Experiment, run: &PlannedRun) -> String {
    let mut settings = experiment.settings.clone();
    let key = run.task.name();
    if let Some(settings) = settings.as_object_mut() {
        for grows in ["tasks", "methods", "seeds", "data_dir"] {
            settings.remove(grows);
        }
        let mut hashes = hashes(&experiment.settings, run.task);
        hashes.sort_unstable();
        settings.insert("data_files".to_owned(), json!(hashes));
    }
    let text = json!([settings, run.arm, key, run.method, run.seed, run.is_member]).to_string();
    sha256_text(&text)[..ID_DIGITS].to_owned()
}

/// Hashes of the files of `task`, in the order of their paths.
pub(super) fn hashes(settings: &Value, task: Task) -> Vec<String> {
    let files = settings["data_files"][task.name()].as_object();
    let files = files.into_iter().flat_map(serde_json::Map::values);
    files.filter_map(|hash| hash.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn runs_of(suite: Suite, task: &str, methods: &[&str]) -> Vec<PlannedRun> {
        let mut options = SuiteOptions::new(suite, Profile::Quick, PathBuf::from("unused"));
        options.tasks = vec![suite.task(task).unwrap()];
        options.seeds = vec![1, 2];
        options.methods = methods.iter().map(|m| MethodName::from_name(m).unwrap()).collect();
        let mut runs = Vec::new();
        add_runs(&mut runs, 0, None, &options);
        runs
    }

    #[test]
    fn members_come_first_and_once() {
        let runs = runs_of(Suite::Reasoning, "obqa", &["ens-3", "lora"]);
        let seeds = |member: bool| -> Vec<u64> {
            runs.iter().filter(|run| run.is_member == member).map(|run| run.seed).collect()
        };
        assert_eq!(seeds(true), [1000, 1001, 1002, 2000, 2001, 2002]);
        assert_eq!(seeds(false), [1, 2, 1, 2]);
        assert!(runs[..6].iter().all(|run| run.is_member));
        assert_eq!((&runs[6].needs, &runs[7].needs), (&vec![0, 1, 2], &vec![3, 4, 5]));
        let shared = runs_of(Suite::Reasoning, "obqa", &["ens-3", "ens-10"]);
        assert_eq!(shared.iter().filter(|run| run.is_member).count(), 20);
        assert_eq!(levels(&shared)[1].len(), 4);
    }

    #[test]
    fn a_temperature_on_a_row_is_on_its_members() {
        for run in runs_of(Suite::Reasoning, "obqa", &["ens-3+ts", "bayeslora+ts"]) {
            assert!(run.method.is_tempered(), "{}", run.label());
        }
    }

    #[test]
    fn matched_ranks_are_dependencies() {
        let runs = runs_of(Suite::Glue, "sst2", &["lora", "adalora", "bayeslora"]);
        let needs = |method: &str| -> Vec<Vec<usize>> {
            let rows = runs.iter().filter(|run| run.method.key() == method);
            rows.map(|run| run.needs.clone()).collect()
        };
        assert!(needs("bayeslora").concat().is_empty());
        assert_eq!(needs("adalora"), [vec![0], vec![1]]);
        assert_eq!(needs("lora"), [vec![0, 1], vec![0, 1]]);
        assert_eq!(levels(&runs), [vec![0, 1], vec![2, 3, 4, 5]]);
        // Beside other methods nothing is matched.
        let beside = runs_of(Suite::Glue, "sst2", &["lora", "bayeslora", "mcd"]);
        assert!(beside.iter().all(|run| run.needs.is_empty()));
    }
}
