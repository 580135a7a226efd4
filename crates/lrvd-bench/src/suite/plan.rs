//! Which runs there will be, before anything is trained.

use super::kind::Suite;
use super::options::SuiteOptions;
use super::task::SuiteTask;
use crate::method::{Build, MethodName};

/// Members of an ensemble take their seeds from here: `MEMBER_SEEDS · seed + member`.
const MEMBER_SEEDS: u64 = 1000;

/// One training run, or a row that is made of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// Task.
    pub task: SuiteTask,
    /// Method.
    pub method: MethodName,
    /// Seed.
    pub seed: u64,
    /// Initial rank, where it is not that of the settings.
    pub rank: Option<usize>,
    /// Whether it is only a part of other rows.
    pub is_member: bool,
}

impl PlannedRun {
    /// `task / method / seed N`.
    pub fn label(&self) -> String {
        let rank = self.rank.map_or_else(String::new, |rank| format!(" / rank {rank}"));
        format!("{} / {}{rank} / seed {}", self.task.display_name(), self.method, self.seed)
    }

    /// The runs that this row is made of; empty for a run of its own.
    pub fn parts(&self) -> Vec<Self> {
        let member = |key: &str| MethodName::from_name(key).unwrap_or(self.method);
        match self.method.entry().build {
            Build::Single(_) => Vec::new(),
            Build::Ensemble { member: key, members, .. } => (0..members as u64)
                .map(|i| Self {
                    method: member(key),
                    seed: MEMBER_SEEDS * self.seed + i,
                    is_member: true,
                    ..*self
                })
                .collect(),
            Build::Matched { member: key, ranks, .. } => ranks
                .iter()
                .map(|&rank| Self {
                    method: member(key),
                    rank: Some(rank),
                    is_member: true,
                    ..*self
                })
                .collect(),
        }
    }
}

/// All runs, in the order in which they are made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<PlannedRun>,
}

impl Plan {
    /// Task by task. Where ranks are matched, BayesLoRA comes first for every seed, since AdaLoRA is
    /// matched to each of its seeds and LoRA to the median of AdaLoRA's budgets. The parts of a row
    /// come before it, once.
    pub fn new(options: &SuiteOptions) -> Self {
        let mut methods = options.methods.clone();
        if options.suite == Suite::Glue {
            let first = [MethodName::BAYES_LORA, MethodName::ADALORA, MethodName::LORA];
            let place = |m: &MethodName| first.iter().position(|f| f == m).unwrap_or(first.len());
            methods.sort_by_key(place);
        }
        let mut runs: Vec<PlannedRun> = Vec::new();
        for &task in &options.tasks {
            for &method in &methods {
                for &seed in &options.seeds {
                    let row = PlannedRun { task, method, seed, rank: None, is_member: false };
                    for part in row.parts() {
                        if !runs.contains(&part) {
                            runs.push(part);
                        }
                    }
                    runs.push(row);
                }
            }
        }
        Self { runs }
    }
}
