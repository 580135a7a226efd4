//! Which runs there will be, before anything is trained.

use super::kind::Suite;
use super::options::SuiteOptions;
use super::task::SuiteTask;
use crate::settings::{MethodForm, MethodName};

/// Members of an ensemble take their seeds from here: `MEMBER_SEEDS · seed + member`.
const MEMBER_SEEDS: u64 = 1000;
/// Largest seed: those of members, and what is mixed into the higher bits, must stay apart.
pub(super) const MAX_SEED: u64 = (1 << 40) / MEMBER_SEEDS - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    pub task: SuiteTask,
    pub method: MethodName,
    pub seed: u64,
    /// Whether it is only a part of other rows.
    pub is_member: bool,
}

impl PlannedRun {
    pub fn label(&self) -> String {
        format!("{} / {} / seed {}", self.task.display_name(), self.method, self.seed)
    }

    /// The runs that this row is made of; empty for a separate run. Temperature scaling on top of
    /// the row is on top of each of them.
    pub fn parts(&self) -> Vec<Self> {
        let member = |key: &str| {
            let found = MethodName::from_name(key).unwrap_or(self.method);
            if self.method.is_tempered() { found.tempered() } else { found }
        };
        match self.method.entry().form {
            MethodForm::Single => Vec::new(),
            MethodForm::Ensemble { member: key, members } => (0..members as u64)
                .map(|i| Self {
                    method: member(key),
                    seed: MEMBER_SEEDS * self.seed + i,
                    is_member: true,
                    ..*self
                })
                .collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub runs: Vec<PlannedRun>,
}

impl Plan {
    /// Task by task. Where ranks are matched, BayesLoRA comes first for every seed, since AdaLoRA is
    /// matched to each of its seeds and LoRA to the median of AdaLoRA's budgets. The parts of a row
    /// come before it, once.
    pub fn new(options: &SuiteOptions) -> Self {
        let mut methods = options.methods.clone();
        if options.suite == Suite::Glue {
            let first = MethodName::FIRST_TABLE;
            let place = |m: &MethodName| first.iter().rev().position(|f| f == m);
            methods.sort_by_key(|m| place(m).unwrap_or(first.len()));
        }
        let mut runs: Vec<PlannedRun> = Vec::new();
        for &task in &options.tasks {
            for &method in &methods {
                let row = |&seed: &u64| PlannedRun { task, method, seed, is_member: false };
                let rows: Vec<PlannedRun> = options.seeds.iter().map(row).collect();
                for part in rows.iter().flat_map(PlannedRun::parts) {
                    if !runs.contains(&part) {
                        runs.push(part);
                    }
                }
                runs.extend(rows);
            }
        }
        Self { runs }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use super::super::profile::Profile;
    use super::*;

    fn planned(methods: &[&str]) -> Vec<PlannedRun> {
        let mut options =
            SuiteOptions::new(Suite::Reasoning, Profile::Quick, PathBuf::from("unused"));
        options.tasks = vec![Suite::Reasoning.task("obqa").unwrap()];
        options.seeds = vec![1, 2];
        options.methods = methods.iter().map(|m| MethodName::from_name(m).unwrap()).collect();
        Plan::new(&options).runs
    }

    #[test]
    fn members_come_first_and_once() {
        let runs = planned(&["ens-3", "lora"]);
        let seeds = |member: bool| -> Vec<u64> {
            runs.iter().filter(|run| run.is_member == member).map(|run| run.seed).collect()
        };
        assert_eq!(seeds(true), [1000, 1001, 1002, 2000, 2001, 2002]);
        assert_eq!(seeds(false), [1, 2, 1, 2]);
        assert!(runs[..6].iter().all(|run| run.is_member));
    }

    #[test]
    fn a_temperature_on_a_row_is_on_its_parts() {
        for run in planned(&["ens-3+ts", "bayeslora+ts"]) {
            assert!(run.method.is_tempered(), "{}", run.label());
        }
    }
}
