//! A sweep, and the files in which it is kept.
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
use lrvd_burn::files::is_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::arms::{Arms, ArmsOfPlan, folder as arm_folder};
use super::cluster::PLAN_DIR;
use super::kind::{Matching, Profile, Suite};
use super::options::SuiteOptions;
use super::runs::{PlannedRun, add_runs};
use crate::error::Result;
use crate::io::{
    JsonLayout, create_dir, read_lines, read_versioned, sha256_text, write_json, write_json_lines,
};
use crate::memory::Sizes;
use crate::method::MethodName;
use crate::record::{ModelRecord, TaskData};
use crate::run::{CLAIMS_DIR, RECORD_FILE, file_hashes};
use crate::settings::Config;
use crate::task::Task;

pub(super) const SCHEMA: u32 = 2;
const PLAN_FILE: &str = "plan.json";
const RUNS_FILE: &str = "runs.jsonl";
const ID_DIGITS: usize = 16;

/// An arm, or the whole suite: everything that its runs have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    pub arm: Option<String>,
    pub preset: String,
    pub matching: Option<Matching>,
    pub settings: Value,
    pub config: Config,
    pub data: BTreeMap<String, TaskData>,
}

/// A whole sweep: what a worker must know to make any of its runs, and what a report says of all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub(super) schema_version: u32,
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    index: usize,
    id: String,
    arm: Option<String>,
    task: Task,
    method: MethodName,
    seed: u64,
    member: bool,
    needs: Vec<String>,
    steps: usize,
    /// Estimated, at the peak.
    memory_gib: f64,
    folder: PathBuf,
}

impl Plan {
    pub(super) fn write(&self, out: &Path, sizes: &[Sizes]) -> Result<()> {
        let folder = out.join(PLAN_DIR);
        create_dir(&folder.join(CLAIMS_DIR))?;
        write_json(&folder.join(PLAN_FILE), self, JsonLayout::Pretty)?;
        let lines = self.runs.iter().enumerate().map(|(index, run)| {
            let sizes = &sizes[run.experiment];
            let trained = sizes.trained(run.method, None);
            let memory = trained.map_or(0.0, |trained| sizes.memory(trained).total());
            let is_trained = !run.is_combined();
            Line {
                index,
                id: run.id.clone(),
                arm: run.arm.clone(),
                task: run.task,
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
        if !is_file(&folder.join(PLAN_FILE))? {
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
                task: line.task,
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

    pub fn folder(&self, run: &PlannedRun) -> PathBuf {
        let folder = run.folder();
        run.arm.as_ref().map_or_else(|| folder.clone(), |arm| arm_folder(arm).join(&folder))
    }

    pub(super) fn is_finished(&self, out: &Path, run: &PlannedRun) -> bool {
        out.join(self.folder(run)).join(RECORD_FILE).is_file()
    }

    /// The first run that `run` needs and that is not finished.
    pub(super) fn missing(&self, out: &Path, run: &PlannedRun) -> Option<&PlannedRun> {
        let mut needed = run.needs.iter().map(|&place| &self.runs[place]);
        needed.find(|run| !self.is_finished(out, run))
    }

    /// Optimiser steps; 0 for a row that is made from other runs.
    pub(super) fn steps(&self, run: &PlannedRun) -> usize {
        run.steps(&self.experiments[run.experiment].config)
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

/// The options of every arm, or the only ones, resolved.
pub(super) fn experiments(
    options: &SuiteOptions,
    arms: Option<&Arms>,
) -> Result<Vec<SuiteOptions>> {
    let all = arms.map_or_else(|| Ok(vec![options.clone()]), |arms| arms.experiments(options))?;
    all.into_iter().map(|own| own.clone().resolved().map_err(|e| own.in_arm(e))).collect()
}

/// The runs of the suite, or of its `arms`, without ids: nothing is read.
pub fn planned_runs(options: &SuiteOptions, arms: Option<&Arms>) -> Result<Vec<PlannedRun>> {
    let mut runs = Vec::new();
    for (place, own) in experiments(options, arms)?.iter().enumerate() {
        add_runs(&mut runs, place, own)?;
    }
    Ok(runs)
}

/// Hash of what a run depends on: everything in the settings but the lists that may grow, the files of other tasks, and the
/// places of files, which count by their content.
pub(super) fn id(experiment: &Experiment, run: &PlannedRun) -> String {
    let mut settings = experiment.settings.clone();
    let key = run.task.name();
    if let Some(settings) = settings.as_object_mut() {
        for other in ["tasks", "methods", "seeds", "model", "data_dir"] {
            settings.remove(other);
        }
        settings.insert("data_files".to_owned(), json!(hashes(&experiment.settings, run.task)));
    }
    let text = json!([settings, run.arm, key, run.method, run.seed, run.is_member]).to_string();
    sha256_text(&text)[..ID_DIGITS].to_owned()
}

/// Hashes of the files of `task`, in ascending order.
pub(super) fn hashes(settings: &Value, task: Task) -> Vec<&str> {
    file_hashes(&settings["data_files"][task.name()])
}

pub(super) fn now() -> String {
    let now = OffsetDateTime::now_utc().truncate_to_second();
    // Fails for years beyond 9999 only.
    now.format(&Rfc3339).unwrap_or_default()
}
