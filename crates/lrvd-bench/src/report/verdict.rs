//! What a run showed, in a few sentences.
//!
//! A difference is one only beyond two standard errors: those of the seeds, and of the validation rows for an accuracy
//! (`√(p(1 − p)/n)`). The rows are the same for all methods, so that the second part is on the safe side.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::metric::Metric;
use super::names::task_label;
use super::spread::Spread;
use super::summary::Summary;
use crate::record::{DataOrigin, Results, RunStatus, TaskData};
use crate::settings::CheckpointChoice;

/// Standard errors beyond which a difference is no noise.
const BEYOND: f64 = 2.0;

/// A mean with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Estimate {
    mean: f64,
    error: f64,
}

impl Estimate {
    /// `rows` are the validation examples of a share of them.
    fn of(spread: &Spread, rows: Option<u64>) -> Self {
        let seeds = spread.standard_error().unwrap_or(0.0);
        let drawn = rows.map_or(0.0, |n| spread.mean * (1.0 - spread.mean) / n.max(1) as f64);
        Self { mean: spread.mean, error: (seeds * seeds + drawn).sqrt() }
    }

    /// Whether the two differ beyond the noise of both.
    fn differs(self, other: Self) -> bool {
        (self.mean - other.mean).abs() > BEYOND * self.error.hypot(other.error)
    }
}

/// What stands above a table: which checkpoint it speaks of, how many seeds, which tasks are generated, and what a `±` is.
pub(crate) fn lead(results: &Results, summary: &Summary) -> String {
    let checkpoint = match summary.choice {
        CheckpointChoice::Last => "Last checkpoint",
        CheckpointChoice::Best => {
            "Best checkpoint, chosen on the data it is reported on (ensembles and methods that are fitted after training \
             have none: table-last.csv has their numbers)"
        }
    };
    let finished = results.runs.iter().filter(|run| run.status == RunStatus::Finished);
    let seeds = finished.map(|run| run.seed).collect::<BTreeSet<_>>().len();
    let noun = if seeds == 1 { "seed" } else { "seeds" };
    let mut text = format!("{checkpoint}, {seeds} {noun}.");
    let generated: Vec<String> = summary
        .tasks
        .iter()
        .filter(|task| {
            results.data.get(*task).is_some_and(|d| d.train.origin == DataOrigin::Generated)
        })
        .map(|task| task_label(task))
        .collect();
    if !generated.is_empty() {
        let _ = write!(text, " Generated data: {}.", generated.join(", "));
    }
    if seeds > 1 {
        let _ = write!(
            text,
            " ± is the sample standard deviation over the seeds; the standard error of a mean is {:.2} of it.",
            1.0 / (seeds as f64).sqrt()
        );
    }
    let rows =
        summary.tasks.iter().filter_map(|task| results.data.get(task)).map(|d| d.validation.rows);
    if let Some(rows) = rows.filter(|rows| *rows > 0).min() {
        let _ = write!(
            text,
            " An accuracy on {rows} validation rows has a standard error of up to {:.3} beside it.",
            0.5 / (rows as f64).sqrt()
        );
    }
    text
}

/// A sentence or two for every task of `summary` with an accuracy, best method first; nothing for fewer than two methods.
pub(crate) fn verdict(results: &Results, summary: &Summary) -> Vec<String> {
    summary.tasks.iter().filter_map(|task| of_task(results, summary, task)).collect()
}

fn of_task(results: &Results, summary: &Summary, task: &str) -> Option<String> {
    let data = results.data.get(task);
    let rows = data.map(|data| data.validation.rows);
    let mut found: Vec<(&str, Estimate)> = Vec::new();
    for method in &summary.methods {
        if let Some(spread) = summary.cell(Metric::Accuracy(0), method, task) {
            found.push((method, Estimate::of(spread, rows)));
        }
    }
    found.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    let ((best, top), (_, last)) = (*found.first()?, *found.last()?);
    if found.len() < 2 {
        return None;
    }
    let behind: Vec<&str> =
        found.iter().filter(|(_, other)| top.differs(*other)).map(|(name, _)| *name).collect();
    let ranked = if behind.is_empty() {
        format!(
            "all {} methods are within noise of each other, accuracy {:.3} to {:.3} (standard error {:.3})",
            found.len(),
            last.mean,
            top.mean,
            top.error.max(last.error),
        )
    } else {
        format!(
            "{best} is the most accurate at {:.3} (standard error {:.3}); beyond noise behind it: {}",
            top.mean,
            top.error,
            behind.join(", "),
        )
    };
    let mut text = format!("{}: {ranked}.", task_label(task));
    for kept in ranks(results, summary, task) {
        text.push(' ');
        text.push_str(&kept);
    }
    if let Some(caveat) = data.and_then(TaskData::caveat) {
        let _ = write!(text, " ({caveat}.)");
    }
    Some(text)
}

/// What was kept of the ranks by methods that choose them.
fn ranks(results: &Results, summary: &Summary, task: &str) -> Vec<String> {
    let learnt = |method: &str| {
        let mut runs = results.runs.iter().filter(|run| run.task == task && run.method == method);
        runs.any(|run| run.rank_budget.requested.is_none() && run.rank_events.len() > 1)
    };
    let sentence = |method: &String| {
        let (mean, full) =
            (summary.cell(Metric::Rank, method, task)?.mean, summary.full_rank(method, task)?);
        Some(format!("{method} kept {mean:.2} of {full} ranks a module."))
    };
    summary.methods.iter().filter(|method| learnt(method)).filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::summary::headline_metrics;
    use super::*;
    use crate::record::sample::{sample_results, set_accuracy};

    fn said(lora: &[(f64, f64)], bayes: &[(f64, f64)]) -> (String, String) {
        let mut results = sample_results();
        results.runs.retain(|run| run.method != "AdaLoRA" && run.task == "rte");
        set_accuracy(&mut results, "rte", "LoRA", lora);
        set_accuracy(&mut results, "rte", "BayesLoRA", bayes);
        let data = results.data.get_mut("rte").unwrap();
        data.train.origin = DataOrigin::Generated;
        data.validation.rows = 400;
        let metrics = headline_metrics(&results);
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        let verdict = verdict(&results, &summary);
        assert_eq!(verdict.len(), 1, "{verdict:?}");
        (lead(&results, &summary), verdict[0].clone())
    }

    #[test]
    fn a_difference_within_two_standard_errors_is_said_to_be_noise() {
        let (lead, near) = said(
            &[(0.80, 0.5), (0.82, 0.5), (0.84, 0.5)],
            &[(0.82, 0.5), (0.83, 0.5), (0.84, 0.5)],
        );
        assert!(near.contains("RTE: all 2 methods are within noise"), "{near}");
        assert!(near.contains("accuracy 0.820 to 0.830"), "{near}");
        assert!(near.contains("BayesLoRA kept") && near.contains("generated"), "{near}");
        assert!(lead.starts_with("Last checkpoint, 3 seeds. Generated data: RTE."), "{lead}");
        // 1/√3, and ½/√400.
        assert!(lead.contains("0.58 of it") && lead.contains("400 validation rows"), "{lead}");
        assert!(lead.contains("up to 0.025"), "{lead}");
        let (_, far) = said(&[(0.5, 0.5); 3], &[(0.9, 0.5); 3]);
        assert!(far.contains("BayesLoRA is the most accurate at 0.900"), "{far}");
        assert!(far.contains("beyond noise behind it: LoRA"), "{far}");
    }
}
