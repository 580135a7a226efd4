//! The plan of a sweep, and the files in which it is kept.
//!
//! | file below `plan/` | content |
//! |---|---|
//! | `plan.json` | the [`Plan`]: experiments with their resolved settings, model, data |
//! | `runs.jsonl` | one [`PlannedRun`] on each line, in the order of a single process |
//! | `claims/` | claims of workers on runs, see `worker::claim` |
//! | `failed/` | errors of runs, one file each |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use lrvd_burn::files::is_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arms::Arms;
use super::grid::{Matching, Profile, Suite, SuiteOptions};
use super::runs::{PLAN_DIR, PlannedRun, experiment_runs, needed, number};
use crate::error::Result;
use crate::io::{
    JsonLayout, create_dir, read_lines, read_versioned, sha256_text, write_json, write_json_lines,
};
use crate::memory::Sizes;
use crate::record::{ModelRecord, TaskData};
use crate::run::{CLAIMS_DIR, file_hashes};
use crate::settings::Config;
use crate::task::Task;

pub(super) const SCHEMA: u32 = 3;
const PLAN_FILE: &str = "plan.json";
const RUNS_FILE: &str = "runs.jsonl";
const ID_DIGITS: usize = 16;

/// The options of every arm, or the only ones, resolved.
pub(super) fn experiments(
    options: &SuiteOptions,
    arms: Option<&Arms>,
) -> Result<Vec<SuiteOptions>> {
    let all = arms.map_or_else(|| Ok(vec![options.clone()]), |arms| arms.experiments(options))?;
    all.into_iter().map(|own| own.clone().resolved().map_err(|e| own.in_arm(e))).collect()
}

/// The runs of the suite, or of its `arms`, before data and weights are read.
pub fn planned_runs(options: &SuiteOptions, arms: Option<&Arms>) -> Result<Vec<PlannedRun>> {
    let mut runs = Vec::new();
    for own in &experiments(options, arms)? {
        runs.extend(experiment_runs(own)?);
    }
    number(&mut runs);
    Ok(runs)
}

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

impl Experiment {
    /// Sets place, steps, memory and ids of its `runs`.
    pub(super) fn complete(
        &self,
        runs: &mut [PlannedRun],
        place: usize,
        sizes: &Sizes,
    ) -> Result<()> {
        for run in &mut *runs {
            run.experiment = place;
            run.measure(&self.config, sizes)?;
        }
        self.identify(runs);
        Ok(())
    }

    /// Replaces the provisional ids of its `runs` by hashes of everything that they depend on: the settings but the lists that may
    /// grow, the files of their task, and not the places of files, which count by their content.
    fn identify(&self, runs: &mut [PlannedRun]) {
        let hash = |run: &PlannedRun| {
            let mut settings = self.settings.clone();
            if let Some(settings) = settings.as_object_mut() {
                for other in ["tasks", "methods", "seeds", "model", "data_dir"] {
                    settings.remove(other);
                }
                let files = json!(hashes(&self.settings, run.task));
                settings.insert("data_files".to_owned(), files);
            }
            let PlannedRun { arm, task, method, seed, is_member, .. } = run;
            let text = json!([settings, arm, task.name(), method, seed, is_member]).to_string();
            sha256_text(&text)[..ID_DIGITS].to_owned()
        };
        let ids: BTreeMap<String, String> =
            runs.iter().map(|run| (run.id.clone(), hash(run))).collect();
        for run in runs {
            for id in std::iter::once(&mut run.id).chain(&mut run.needs) {
                if let Some(hash) = ids.get(id) {
                    id.clone_from(hash);
                }
            }
        }
    }
}

/// Hashes of the files of `task`, in ascending order.
pub(super) fn hashes(settings: &Value, task: Task) -> Vec<&str> {
    file_hashes(&settings["data_files"][task.name()])
}

/// A whole sweep: everything that a worker needs to make any of its runs, and a report to describe them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub(super) schema_version: u32,
    pub(super) suite: Suite,
    pub(super) profile: Profile,
    pub(super) device: String,
    /// Folder or repository; `None` for that of the profile.
    pub(super) model: Option<String>,
    /// `None` for the generated data in the output folder.
    pub(super) data_dir: Option<PathBuf>,
    pub(super) keep: bool,
    pub(super) compare: Option<PathBuf>,
    pub(super) command: String,
    pub(super) git_revision: Option<String>,
    pub(super) started_at: String,
    pub(super) backbone: ModelRecord,
    pub(super) arms: Option<Arms>,
    pub(super) experiments: Vec<Experiment>,
    #[serde(skip)]
    pub runs: Vec<PlannedRun>,
}

impl Plan {
    pub(super) fn write(&self, out: &Path) -> Result<()> {
        let folder = out.join(PLAN_DIR);
        create_dir(&folder.join(CLAIMS_DIR))?;
        write_json(&folder.join(PLAN_FILE), self, JsonLayout::Pretty)?;
        write_json_lines(&folder.join(RUNS_FILE), self.runs.iter())
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
        for (place, run) in read_lines::<PlannedRun>(&path)?.into_iter().enumerate() {
            let in_line =
                |text: String| anyhow!("`{}`, line {}: {text}", path.display(), place + 1);
            if run.index != place {
                return Err(in_line(format!("expected index {place}, found {}", run.index)));
            }
            let is_own = |experiment: &Experiment| experiment.arm == run.arm;
            let experiment = plan.experiments.iter().position(is_own);
            let experiment = experiment.ok_or_else(|| in_line(format!("no arm {:?}", run.arm)))?;
            let is_missing = |id: &&String| plan.runs.iter().all(|other| other.id != **id);
            if let Some(id) = run.needs.iter().find(is_missing) {
                return Err(in_line(format!("no run `{id}` before this one")));
            }
            plan.runs.push(PlannedRun { experiment, ..run });
        }
        Ok(plan)
    }

    /// The first run that `run` needs and that is not finished.
    pub(super) fn missing<'a>(&'a self, out: &Path, run: &'a PlannedRun) -> Option<&'a PlannedRun> {
        needed(&self.runs, run).find(|run| !run.is_finished(out))
    }

    /// Folder of the run that events call `label`, below the output folder.
    pub fn folder_of(&self, label: &str) -> PathBuf {
        let run = self.runs.iter().find(|run| run.label() == label);
        run.map(|run| run.folder.clone()).unwrap_or_default()
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
