//! What the figures draw: runs of one task and method, gathered and averaged over seeds.

use super::line_chart::{Line, Series};
use crate::report::checkpoint::CheckpointRecord;
use crate::report::family::Family;
use crate::report::names::{ModuleName, match_key, method_order, task_order};
use crate::report::record::{EvalPoint, Results, RunRecord, RunStatus};
use crate::report::summary::{CheckpointChoice, is_about_uncertainty};

/// The methods of a page, each with the look that it has in all tables and figures.
///
/// The three methods of the paper's first table have a colour each. Where more methods ran, colour and shape tell the
/// family, and names stand beside the marks.
pub(crate) struct Cast {
    members: Vec<Member>,
    uncertainty: bool,
}

/// One method.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) family: Family,
    /// Colour of the style sheet.
    pub(crate) colour: usize,
    /// Shape of a marker.
    pub(crate) shape: usize,
}

impl Cast {
    /// The methods of the results in print order.
    pub(crate) fn of(results: &Results) -> Self {
        let uncertainty = is_about_uncertainty(results);
        let mut names: Vec<&str> = results.runs.iter().map(|run| run.method.as_str()).collect();
        names.sort_by(|a, b| method_order(a, b));
        names.dedup();
        let member = |name: &str| {
            let family = Family::of(name);
            let colour = match match_key(name).as_str() {
                "adalora" if !uncertainty => 1,
                _ => family.colour(),
            };
            Member { name: name.to_owned(), family, colour, shape: colour }
        };
        Self { members: names.into_iter().map(member).collect(), uncertainty }
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the page asks about uncertainty, and colours families.
    pub(crate) fn is_about_uncertainty(&self) -> bool {
        self.uncertainty
    }

    /// Colour of a method; that of a point estimate for one that did not run.
    pub(crate) fn colour(&self, name: &str) -> usize {
        self.members.iter().find(|m| m.name == name).map_or(0, |m| m.colour)
    }

    /// Whether the method ran.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|m| m.name == name)
    }

    /// The families that ran, in their fixed order, each with its methods in print order.
    pub(crate) fn families(&self) -> Vec<(Family, Vec<&Member>)> {
        let mut families: Vec<(Family, Vec<&Member>)> = Vec::new();
        for member in &self.members {
            match families.iter_mut().find(|(family, _)| *family == member.family) {
                Some((_, members)) => members.push(member),
                None => families.push((member.family, vec![member])),
            }
        }
        families.sort_by_key(|(family, _)| *family);
        families
    }

    /// Methods that a crowded figure brings out: the reference and the subject of the page, and the best of each
    /// family by `value`, of which the smallest is the best.
    pub(crate) fn highlights(&self, value: impl Fn(&Member) -> Option<f64>) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for (_, members) in self.families() {
            let scored = members.iter().filter_map(|m| Some((value(m)?, m.name.as_str())));
            let best = scored.filter(|(x, _)| x.is_finite()).min_by(|a, b| a.0.total_cmp(&b.0));
            found.extend(best.map(|(_, name)| name));
        }
        let always = |m: &&Member| ALWAYS.contains(&match_key(&m.name).as_str());
        found.extend(self.members.iter().filter(always).map(|m| m.name.as_str()));
        found.sort_by(|a, b| method_order(a, b));
        found.dedup();
        found
    }
}

/// The reference and the subject of every page.
const ALWAYS: [&str; 2] = ["lora", "bayeslora"];

/// All runs of one task and method, by seed, unfinished ones included.
pub(crate) fn runs<'a>(results: &'a Results, task: &str, method: &str) -> Vec<&'a RunRecord> {
    let mut runs: Vec<&RunRecord> =
        results.runs.iter().filter(|run| run.task == task && run.method == method).collect();
    runs.sort_by_key(|run| run.seed);
    runs
}

/// Task keys of the results in print order.
pub(crate) fn tasks(results: &Results) -> Vec<String> {
    let mut tasks: Vec<String> = results.runs.iter().map(|run| run.task.clone()).collect();
    tasks.sort_by(|a, b| task_order(a, b));
    tasks.dedup();
    tasks
}

/// Tasks with classes, over which accuracy and calibration can be averaged.
pub(crate) fn class_tasks(results: &Results) -> Vec<String> {
    let has_classes = |task: &String| {
        let runs = results.runs.iter().filter(|run| run.task == *task);
        let last = runs.filter_map(|run| run.checkpoints.last.as_ref());
        last.flat_map(|checkpoint| checkpoint.metrics.values()).any(|m| m.accuracy.is_some())
    };
    tasks(results).into_iter().filter(has_classes).collect()
}

/// One series over evaluation steps: a line per seed, and their mean where every seed has a value.
pub(crate) fn series(
    runs: &[&RunRecord],
    colour: usize,
    decimals: usize,
    value: impl Fn(&EvalPoint) -> Option<f64>,
) -> Option<Series> {
    let seeds: Vec<Line> = runs
        .iter()
        .map(|run| {
            run.history.iter().filter_map(|p| Some((p.step as f64, value(p)?))).collect::<Line>()
        })
        .filter(|line| !line.is_empty())
        .collect();
    let name = runs.first()?.method.clone();
    let first = seeds.first()?;
    let mean = first
        .iter()
        .filter_map(|(step, _)| {
            let at = |line: &Line| line.iter().find(|p| p.0 == *step).map(|p| p.1);
            let values: Option<Vec<f64>> = seeds.iter().map(at).collect();
            values.map(|v| (*step, v.iter().sum::<f64>() / v.len() as f64))
        })
        .collect();
    Some(Series { colour, name, named: true, seeds, mean, decimals })
}

/// Last checkpoints of the finished runs of one task and method, by seed.
pub(crate) fn finished<'a>(
    results: &'a Results,
    task: &str,
    method: &str,
) -> Vec<&'a CheckpointRecord> {
    runs(results, task, method)
        .into_iter()
        .filter(|run| run.status == RunStatus::Finished)
        .filter_map(|run| run.checkpoints.last.as_ref())
        .collect()
}

/// The largest number of draws, up to that of the tables, at which a method answered; 0 where it has no draws.
pub(crate) fn full_draws(records: &[&CheckpointRecord], shown: Option<u32>) -> u32 {
    let draws = records.iter().flat_map(|record| record.metrics.keys().copied());
    draws.filter(|k| shown.is_some_and(|most| *k <= most)).max().unwrap_or(0)
}

/// The checkpoints of one kind that the runs have, with their seeds.
pub(crate) fn checkpoints<'a>(
    runs: &[&'a RunRecord],
    choice: CheckpointChoice,
) -> Vec<(u64, &'a CheckpointRecord)> {
    runs.iter().filter_map(|run| Some((run.seed, choice.of(run)?))).collect()
}

/// All module paths of the runs in the order of the network.
pub(crate) fn module_paths(runs: &[&RunRecord]) -> Vec<String> {
    let at_checkpoints = runs
        .iter()
        .flat_map(|run| [&run.checkpoints.last, &run.checkpoints.best])
        .flatten()
        .flat_map(|checkpoint| checkpoint.ranks.keys());
    let at_events = runs.iter().flat_map(|run| &run.rank_events).flat_map(|e| e.ranks.keys());
    let mut paths: Vec<String> = at_checkpoints.chain(at_events).cloned().collect();
    paths.sort_by(|a, b| ModuleName::parse(a).order(&ModuleName::parse(b)).then_with(|| a.cmp(b)));
    paths.dedup();
    paths
}

/// The steps at which some run's ranks changed, in order.
pub(crate) fn rank_steps(runs: &[&RunRecord]) -> Vec<u64> {
    let mut steps: Vec<u64> =
        runs.iter().flat_map(|run| &run.rank_events).map(|event| event.step).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// The rank of a module at a step, averaged over the runs that have an entry by then; ranks hold until they change.
pub(crate) fn rank_at(runs: &[&RunRecord], path: &str, step: u64) -> Option<f64> {
    let of = |run: &&RunRecord| {
        let event = run.rank_events.iter().rev().find(|event| event.step <= step)?;
        event.ranks.get(path).copied().map(f64::from)
    };
    mean(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

/// Arithmetic mean; none of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample::sample_results;
    use crate::report::sample_reasoning::sample_reasoning;

    #[test]
    fn ranks_hold_until_they_change() {
        let results = sample_results();
        let runs = runs(&results, "rte", "BayesLoRA");
        let path = &module_paths(&runs)[0];
        assert_eq!(rank_at(&runs, path, 0), Some(8.0));
        let (first, second) = (runs[0].rank_events[0].step, runs[0].rank_events[1].step);
        assert_eq!(rank_at(&runs[..1], path, second - 1), rank_at(&runs[..1], path, first));
        assert_eq!(rank_at(&runs, "no.such.module", 10), None);
    }

    #[test]
    fn means_need_every_seed() {
        let mut results = sample_results();
        results
            .runs
            .iter_mut()
            .find(|r| r.task == "rte" && r.method == "LoRA")
            .unwrap()
            .history
            .truncate(5);
        let runs = runs(&results, "rte", "LoRA");
        let series = series(&runs, 0, 3, |p| p.accuracy).unwrap();
        assert_eq!(series.seeds.iter().map(Vec::len).collect::<Vec<_>>(), [5, 21, 21]);
        assert_eq!(series.mean.len(), 5);
    }

    #[test]
    fn colours_are_fixed_for_the_first_table_and_tell_families_elsewhere() {
        let colours = |results: &Results, names: &[&str]| -> Vec<usize> {
            let cast = Cast::of(results);
            names.iter().map(|name| cast.colour(name)).collect()
        };
        let first = ["LoRA", "AdaLoRA", "BayesLoRA"];
        assert_eq!(colours(&sample_results(), &first), [0, 1, 2]);
        let many = ["LoRA", "ENS-3", "ENS-10", "BLoB", "LAP", "BayesLoRA", "LRVD-NTS"];
        assert_eq!(colours(&sample_reasoning(), &many), [0, 3, 3, 1, 4, 2, 2]);
    }

    #[test]
    fn every_family_has_its_best_brought_out() {
        let results = sample_reasoning();
        let cast = Cast::of(&results);
        // The shortest name is the best.
        let found = cast.highlights(|m| Some(m.name.len() as f64));
        for name in ["LoRA", "MCD", "BBB", "LAP", "BayesLoRA", "LRVD-NTS"] {
            assert!(found.contains(&name), "{name} in {found:?}");
        }
        assert!(found.len() <= 8);
    }
}
