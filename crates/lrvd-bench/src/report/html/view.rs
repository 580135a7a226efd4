//! What the figures draw: runs of one task and method, gathered and averaged over seeds.

use super::line_chart::{Line, Series};
use crate::report::checkpoint::CheckpointRecord;
use crate::report::names::{ModuleName, match_key, method_order, task_order};
use crate::report::record::{EvalPoint, Results, RunRecord};
use crate::report::summary::CheckpointChoice;

/// Colours of the style sheet; a tenth method shares the first one's.
const N_COLOURS: usize = 8;

/// All runs of one task and method, by seed, unfinished ones included.
pub(crate) fn runs<'a>(results: &'a Results, task: &str, method: &str) -> Vec<&'a RunRecord> {
    let mut runs: Vec<&RunRecord> =
        results.runs.iter().filter(|run| run.task == task && run.method == method).collect();
    runs.sort_by_key(|run| run.seed);
    runs
}

/// Methods of the results in print order.
pub(crate) fn methods(results: &Results) -> Vec<String> {
    let mut methods: Vec<String> = results.runs.iter().map(|run| run.method.clone()).collect();
    methods.sort_by(|a, b| method_order(a, b));
    methods.dedup();
    methods
}

/// Task keys of the results in print order.
pub(crate) fn tasks(results: &Results) -> Vec<String> {
    let mut tasks: Vec<String> = results.runs.iter().map(|run| run.task.clone()).collect();
    tasks.sort_by(|a, b| task_order(a, b));
    tasks.dedup();
    tasks
}

/// Colour index of a method: fixed for the three of the paper, in order for all others.
pub(crate) fn colour(methods: &[String], method: &str) -> usize {
    match match_key(method).as_str() {
        "lora" => 0,
        "adalora" => 1,
        "bayeslora" => 2,
        _ => {
            let others = methods
                .iter()
                .filter(|m| !matches!(match_key(m).as_str(), "lora" | "adalora" | "bayeslora"));
            3 + others.take_while(|m| *m != method).count() % (N_COLOURS - 3)
        }
    }
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
    Some(Series { colour, name, seeds, mean, decimals })
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
    fn colours_are_fixed_for_the_known_methods() {
        let methods: Vec<String> = ["LoRA", "BayesLoRA", "ENS", "MCD"].map(String::from).to_vec();
        let found: Vec<usize> = methods.iter().map(|m| colour(&methods, m)).collect();
        assert_eq!(found, [0, 2, 3, 4]);
    }
}
