//! Which runs there are, and what each needs.

use std::path::PathBuf;

use super::kind::{Matching, Suite};
use super::options::{MEMBER_SEEDS, SuiteOptions};
use crate::error::Result;
use crate::method::{MethodForm, MethodName};
use crate::settings::Config;
use crate::task::Task;

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    /// Hash of its resolved settings, task, arm, method and seed; empty until data and weights are known.
    pub id: String,
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

    /// Optimiser steps, those of a refinement included; 0 for a row that is made from other runs.
    pub(super) fn steps(&self, config: &Config) -> usize {
        let refinement = self.method.search(config).map_or(0, |search| search.refine_steps);
        if self.is_combined() { 0 } else { config.steps + refinement }
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

    fn is(&self, other: &Self) -> bool {
        let key = |run: &Self| (run.experiment, run.task, run.method, run.seed, run.is_member);
        key(self) == key(other)
    }
}

/// Matching of the profile. It belongs to the paper's first table; beside other methods everything has one rank.
pub(super) fn matching(options: &SuiteOptions) -> Result<Option<Matching>> {
    let first_table = |m: &MethodName| MethodName::FIRST_TABLE.contains(m);
    let matching = options.suite.defaults(options.profile)?.matching;
    Ok(matching.filter(|_| options.methods.iter().all(first_table)))
}

/// Adds the runs of an experiment, task by task. Where sizes are matched, BayesLoRA comes first for every seed. The members
/// of a row come before it, once.
pub(super) fn add_runs(
    runs: &mut Vec<PlannedRun>,
    experiment: usize,
    options: &SuiteOptions,
) -> Result<()> {
    let mut methods = options.methods.clone();
    if options.suite == Suite::Glue {
        let first = MethodName::FIRST_TABLE;
        let place = |m: &MethodName| first.iter().rev().position(|f| f == m);
        methods.sort_by_key(|m| place(m).unwrap_or(first.len()));
    }
    let matching = matching(options)?;
    for &task in &options.tasks {
        for &method in &methods {
            let row = |&seed: &u64| PlannedRun {
                id: String::new(),
                experiment,
                arm: options.arm.clone(),
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
                if let Some(matching) = matching {
                    row.needs = matched(runs, row, matching);
                }
            }
            runs.extend(rows);
        }
    }
    Ok(())
}

/// The runs whose learnt ranks `row` is given: that with its seed, or those of all seeds for their median.
fn matched(runs: &[PlannedRun], row: &PlannedRun, matching: Matching) -> Vec<usize> {
    let can = row.method.can();
    if can.prunes && !can.budget {
        return Vec::new();
    }
    let learns = |run: &PlannedRun| {
        let theirs = run.method.can();
        (run.experiment, run.task) == (row.experiment, row.task)
            && theirs.prunes
            && !theirs.budget
            && (run.seed == row.seed || (matching == Matching::MedianRank && !can.budget))
    };
    (0..runs.len()).filter(|&place| learns(&runs[place])).collect()
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

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    #[test]
    fn sizes_come_from_the_run_with_the_same_seed_and_the_papers_rank_from_all() {
        let needs = |profile, methods: &[MethodName]| {
            let options = SuiteOptions {
                tasks: vec![Task::named_glue("sst2").unwrap()],
                methods: methods.to_vec(),
                seeds: vec![1, 2],
                ..SuiteOptions::new(Suite::Glue, profile, "unused".into())
            };
            let mut runs = Vec::new();
            add_runs(&mut runs, 0, &options).unwrap();
            runs.into_iter().map(|run| run.needs).collect::<Vec<_>>()
        };
        let all = MethodName::FIRST_TABLE;
        // BayesLoRA, AdaLoRA and LoRA, with two seeds each.
        let expected: [&[usize]; 6] = [&[], &[], &[0], &[1], &[0], &[1]];
        assert_eq!(needs(Profile::Quick, &all), expected);
        let expected: [&[usize]; 6] = [&[], &[], &[0], &[1], &[0, 1], &[0, 1]];
        assert_eq!(needs(Profile::Paper, &all), expected);
        let mixed = [MethodName::LORA, MethodName::BAYES_LORA, MethodName::LORA.tempered()];
        assert!(needs(Profile::Quick, &mixed).iter().all(Vec::is_empty));
    }
}
