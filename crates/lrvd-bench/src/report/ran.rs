//! What was run, and what the numbers of its tables are.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::metric::grouped;
use super::names::task_label;
use super::summary::Summary;
use super::verdict::NAMED;
use crate::record::{DataOrigin, Results, RunStatus, SplitRecord};
use crate::settings::CheckpointChoice;
use crate::text::listed;

fn seeds(results: &Results) -> usize {
    let finished = results.runs.iter().filter(|run| run.status == RunStatus::Finished);
    finished.map(|run| run.seed).collect::<BTreeSet<_>>().len()
}

/// Methods, model, steps, seeds and data, and what generated data cannot say.
pub(super) fn ran(results: &Results, summary: &Summary) -> String {
    if results.runs.is_empty() {
        return "No run has been recorded.".into();
    }
    let methods = match summary.methods.len() {
        n if n > NAMED => format!("{n} methods"),
        _ => listed(&summary.methods),
    };
    let steps: BTreeSet<u64> = results.runs.iter().map(|run| run.steps).collect();
    let steps = match (steps.first(), steps.last()) {
        (Some(low), Some(high)) if low < high => format!("{} to {}", grouped(*low), grouped(*high)),
        (only, _) => grouped(only.copied().unwrap_or(0)),
    };
    let (n, planned) = (seeds(results), results.runs.len());
    let generated = |split: &SplitRecord| split.origin == DataOrigin::Generated;
    let data = || summary.tasks.iter().filter_map(|task| results.data.get(task));
    let all = data().all(|data| generated(&data.train) && generated(&data.validation));
    let kind = if all { "generated data: " } else { "" };
    let tasks: Vec<String> =
        summary.tasks.iter().map(|task| data_of(results, task, !all)).collect();
    let mut text = format!(
        "{methods} fine-tuned {}, {} parameters, for {steps} steps with {n} {} on {kind}{}.",
        results.model.name,
        grouped(results.model.parameters),
        if n == 1 { "seed" } else { "seeds" },
        listed(&tasks),
    );
    let finished = results.runs.iter().filter(|run| run.status == RunStatus::Finished).count();
    if finished < planned {
        let _ = write!(text, " Only {finished} of {planned} runs finished.");
    }
    if data().any(|data| generated(&data.train)) {
        text.push_str(" Generated data show that methods run, not which is better on real text.");
    }
    text
}

/// `CoLA (2 000 training and 500 validation rows, official)`; `origins` says whether their origin is included.
fn data_of(results: &Results, task: &str, origins: bool) -> String {
    let label = task_label(task);
    let Some(data) = results.data.get(task) else { return label };
    let origin = |origin: DataOrigin| match origin {
        DataOrigin::Official => "official",
        DataOrigin::Subset => "a part of the official ones",
        DataOrigin::LocalDev => "split off here",
        DataOrigin::Generated => "generated",
    };
    let (train, validation) = (origin(data.train.origin), origin(data.validation.origin));
    let rows = [grouped(data.train.rows), grouped(data.validation.rows)];
    let [before, after] = rows;
    if !origins {
        format!("{label} ({before} training and {after} validation rows)")
    } else if train == validation {
        format!("{label} ({before} training and {after} validation rows, {train})")
    } else {
        format!("{label} ({before} training rows, {train}; {after} validation rows, {validation})")
    }
}

/// What a number of the tables is, and when a difference counts.
pub(super) fn rule(results: &Results, summary: &Summary) -> String {
    let checkpoint = match summary.choice {
        CheckpointChoice::Last => "Last checkpoint",
        CheckpointChoice::Best => {
            "Best checkpoint, chosen on the data it is reported on, so optimistic (ensembles and methods that are \
             fitted after training have none: table-last.csv has their numbers)"
        }
    };
    match seeds(results) {
        0 => format!("{checkpoint}."),
        1 => format!(
            "{checkpoint}. One seed: no difference between methods can be tested, and nothing is marked."
        ),
        n => format!(
            "{checkpoint}; mean ± sample standard deviation over {n} seeds. Differences are paired by seed, and for \
             accuracy, NLL and Brier score by validation row; one is significant if its 95 % interval by Student's \
             distribution leaves out 0, by Holm's method for all rivals of the best."
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::verdict::tests::{said, two};
    use super::*;

    #[test]
    fn the_first_sentence_says_what_was_run() {
        let mut results = two(&[(0.5, 0.5); 3], &[(0.9, 0.5); 3]);
        let text = said(&results).ran;
        let wanted = "LoRA and BayesLoRA fine-tuned nano, 3\u{202f}400\u{202f}000 parameters, for 800 steps with 3 seeds on \
                      RTE (";
        assert!(text.starts_with(wanted), "{text}");
        assert!(
            text.contains(" training rows, generated; 400 validation rows, split off here)"),
            "{text}"
        );
        assert!(text.ends_with("not which is better on real text."), "{text}");
        results.data.get_mut("rte").unwrap().validation.origin = DataOrigin::Generated;
        let text = said(&results).ran;
        assert!(
            text.contains(" on generated data: RTE (") && text.contains("400 validation rows).")
        );
        results.runs.retain(|run| run.seed == 1);
        let one = said(&results);
        assert!(one.ran.contains("with 1 seed ") && one.rule.contains("tested"), "{one:?}");
        assert!(one.scores.is_empty(), "{one:?}");
        results.runs.clear();
        assert_eq!(said(&results).ran, "No run has been recorded.");
    }
}
