//! The runs of an experiment, each with the runs that it needs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::grid::{MEMBER_SEEDS, Matching, Suite, SuiteOptions};
use crate::error::Result;
use crate::memory::Sizes;
use crate::method::{MethodForm, MethodName};
use crate::run::RECORD_FILE;
use crate::settings::Config;
use crate::task::Task;

/// Folder of the files of a plan, below the output folder.
pub(super) const PLAN_DIR: &str = "plan";

/// A run of a plan: a line of its manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRun {
    /// Place in the plan.
    pub index: usize,
    /// Hash of its resolved settings, data, task, arm, method and seed; its folder until data and weights are read.
    pub id: String,
    /// Place of its experiment in the plan.
    #[serde(skip)]
    pub experiment: usize,
    pub arm: Option<String>,
    pub task: Task,
    pub method: MethodName,
    pub seed: u64,
    /// `true` if it is only a part of other rows.
    #[serde(rename = "member")]
    pub is_member: bool,
    /// Ids of the runs that must be finished before it: the members of an ensemble, the runs whose ranks it receives.
    pub needs: Vec<String>,
    /// Optimizer steps, those of a refinement included; 0 for a row that is made from other runs.
    pub steps: usize,
    /// Estimated memory at the peak; 0 for a row that is made from other runs.
    pub memory_gib: f64,
    /// Folder below the output folder.
    pub folder: PathBuf,
}

impl PlannedRun {
    fn new(options: &SuiteOptions, (task, method): (Task, MethodName), seed: u64) -> Self {
        let run = Self {
            index: 0,
            id: String::new(),
            experiment: 0,
            arm: options.arm.clone(),
            task,
            method,
            seed,
            is_member: false,
            needs: Vec::new(),
            steps: 0,
            memory_gib: 0.0,
            folder: PathBuf::new(),
        };
        run.named()
    }

    fn named(self) -> Self {
        let kind = if self.is_member { "members" } else { "runs" };
        let folder = self.arm.as_deref().map(arm_folder).unwrap_or_default();
        let folder = folder.join(kind).join(self.task.name()).join(self.method.key());
        let folder = folder.join(format!("seed-{}", self.seed));
        Self { id: folder.display().to_string(), folder, ..self }
    }

    /// The members that this row is made of; empty for a separate run. Temperature scaling of the row is that of each member.
    fn members(&self) -> Vec<Self> {
        let MethodForm::Ensemble { member, members } = self.method.entry().form else {
            return Vec::new();
        };
        let method = MethodName::from_name(member).unwrap_or(self.method);
        let method = if self.method.is_tempered() { method.tempered() } else { method };
        let member = |i: u64| {
            let seed = MEMBER_SEEDS * self.seed + i;
            Self { method, seed, is_member: true, ..self.clone() }.named()
        };
        (0..members as u64).map(member).collect()
    }

    pub fn label(&self) -> String {
        let arm = self.arm.as_ref().map(|arm| format!("{arm} / ")).unwrap_or_default();
        format!("{arm}{} / {} / seed {}", self.task.display_name(), self.method, self.seed)
    }

    /// `true` if it is made from the answers of the runs that it needs, without training.
    pub(super) fn is_combined(&self) -> bool {
        matches!(self.method.entry().form, MethodForm::Ensemble { .. })
    }

    pub(super) fn is_finished(&self, out: &Path) -> bool {
        out.join(&self.folder).join(RECORD_FILE).is_file()
    }

    /// Folder of its experiment: the output folder `out`, or that of its arm.
    pub(super) fn experiment_folder(&self, out: &Path) -> PathBuf {
        self.arm.as_deref().map_or_else(|| out.to_owned(), |arm| out.join(arm_folder(arm)))
    }

    /// Sets steps and memory, which follow from the settings.
    pub(super) fn measure(&mut self, config: &Config, sizes: &Sizes) -> Result<()> {
        if !self.is_combined() {
            let refinement = self.method.search(config).map_or(0, |search| search.refine_steps);
            self.steps = config.steps + refinement;
            self.memory_gib = sizes.memory(sizes.trained(self.method, None)?).total();
        }
        Ok(())
    }
}

/// Matching of the profile. It belongs to the paper's first table; in other tables all methods have one rank.
pub(super) fn matching(options: &SuiteOptions) -> Result<Option<Matching>> {
    let first_table = |m: &MethodName| MethodName::FIRST_TABLE.contains(m);
    let matching = options.suite.defaults(options.profile)?.matching;
    Ok(matching.filter(|_| options.methods.iter().all(first_table)))
}

/// The runs of an experiment, task by task. With matched sizes, BayesLoRA comes first for every seed. The members of a row
/// come before it, once.
pub(super) fn experiment_runs(options: &SuiteOptions) -> Result<Vec<PlannedRun>> {
    let mut methods = options.methods.clone();
    if options.suite == Suite::Glue {
        let first = MethodName::FIRST_TABLE;
        let place = |m: &MethodName| first.iter().rev().position(|f| f == m);
        methods.sort_by_key(|m| place(m).unwrap_or(first.len()));
    }
    let matching = matching(options)?;
    let mut runs: Vec<PlannedRun> = Vec::new();
    for &task in &options.tasks {
        for &method in &methods {
            let row = |&seed: &u64| PlannedRun::new(options, (task, method), seed);
            let mut rows: Vec<PlannedRun> = options.seeds.iter().map(row).collect();
            for row in &mut rows {
                for member in row.members() {
                    row.needs.push(member.id.clone());
                    if runs.iter().all(|run| run.id != member.id) {
                        runs.push(member);
                    }
                }
                if let Some(matching) = matching {
                    row.needs = matched(&runs, row, matching);
                }
            }
            runs.extend(rows);
        }
    }
    Ok(runs)
}

/// The runs whose learnt ranks `row` receives: that with its seed, or those of all seeds for their median.
fn matched(runs: &[PlannedRun], row: &PlannedRun, matching: Matching) -> Vec<String> {
    let learns_ranks = |method: MethodName| method.can().prunes && !method.can().budget;
    if learns_ranks(row.method) {
        return Vec::new();
    }
    let all_seeds = matching == Matching::MedianRank && !row.method.can().budget;
    let is_source = |run: &&PlannedRun| {
        run.task == row.task && learns_ranks(run.method) && (all_seeds || run.seed == row.seed)
    };
    runs.iter().filter(is_source).map(|run| run.id.clone()).collect()
}

/// The runs that `run` needs.
pub(super) fn needed<'a>(
    runs: &'a [PlannedRun],
    run: &'a PlannedRun,
) -> impl Iterator<Item = &'a PlannedRun> {
    run.needs.iter().filter_map(|id| runs.iter().find(|other| other.id == *id))
}

pub(super) fn number(runs: &mut [PlannedRun]) {
    for (index, run) in runs.iter_mut().enumerate() {
        run.index = index;
    }
}

/// Folder of an arm below the output folder: its name, in which a dash replaces all but letters, digits and points.
pub(super) fn arm_folder(name: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = name.to_lowercase().chars().map(plain).collect();
    Path::new("arms").join(name)
}

#[cfg(test)]
mod tests {
    use super::super::grid::Profile;
    use super::*;

    #[test]
    fn sizes_come_from_the_run_with_the_same_seed_and_the_papers_rank_from_all() {
        let all = MethodName::FIRST_TABLE;
        let mixed = [MethodName::LORA, MethodName::BAYES_LORA, MethodName::LORA.tempered()];
        // BayesLoRA, AdaLoRA and LoRA, with two seeds each.
        let cases = [
            (Profile::Quick, all, "[[], [], [0], [1], [0], [1]]"),
            (Profile::Paper, all, "[[], [], [0], [1], [0, 1], [0, 1]]"),
            (Profile::Quick, mixed, "[[], [], [], [], [], []]"),
        ];
        for (profile, methods, expected) in cases {
            let options = SuiteOptions {
                tasks: vec![Task::named_glue("sst2").unwrap()],
                methods: methods.to_vec(),
                seeds: vec![1, 2],
                ..SuiteOptions::new(Suite::Glue, profile, "unused".into())
            };
            let mut runs = experiment_runs(&options).unwrap();
            number(&mut runs);
            let needs = |run| needed(&runs, run).map(|run| run.index).collect::<Vec<_>>();
            let found: Vec<Vec<usize>> = runs.iter().map(needs).collect();
            assert_eq!(format!("{found:?}"), expected, "{profile:?}");
        }
    }
}
