//! What was run and what it showed, in a few sentences: the terminal, `table.md` and the page say the same.
//!
//! A difference is one only beyond the noise that [`super::noise`] defines.

use std::collections::BTreeMap;

use serde::Serialize;

use super::metric::Metric;
use super::names::task_label;
use super::needed::ranks;
use super::noise::Standing;
use super::ran::{ran, rule};
use super::summary::{Summary, is_about_uncertainty, table_draws};
use crate::record::Results;
use crate::text::listed;

/// Up to so many methods a sentence names.
pub(super) const NAMED: usize = 4;

/// The sentences of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Said {
    /// What was run: methods, model, steps, seeds, data.
    pub(crate) ran: String,
    /// What numbers of tables mean, and when a difference counts.
    pub(crate) rule: String,
    /// Who is best at every task, as far as that can be said.
    pub(crate) scores: Vec<String>,
    /// How much rank the layers needed, by each method that finds that out.
    pub(crate) ranks: Vec<String>,
    /// How the other methods were given theirs; empty where all had that of the settings.
    pub(crate) budgets: Vec<String>,
}

impl Said {
    /// Of the metrics in `summary`, at its checkpoint.
    pub(crate) fn new(results: &Results, summary: &Summary) -> Self {
        Self {
            ran: ran(results, summary),
            rule: rule(results, summary),
            scores: scores(results, summary),
            ranks: ranks(results, summary),
            budgets: budgets(results, summary),
        }
    }

    /// What stands above a table.
    pub(crate) fn lead(&self) -> String {
        format!("{}\n\n{}", self.ran, self.rule)
    }

    /// What stands below a table.
    pub(crate) fn verdict(&self) -> Vec<String> {
        [&self.budgets, &self.scores, &self.ranks].into_iter().flatten().cloned().collect()
    }
}

/// What a task is judged by: its own metric, and about uncertainty calibration and likelihood as well, each at the
/// draws of the tables.
fn judged(results: &Results, task: &str) -> Vec<(Metric, String)> {
    let name = results.data.get(task).map_or("accuracy", |data| &data.standard_metric);
    let score = if name == "accuracy" { Metric::Accuracy(0) } else { Metric::Standard(0) };
    let mut metrics = vec![(score, standard_title(name).to_owned())];
    if is_about_uncertainty(results) {
        metrics.extend([Metric::Ece(0), Metric::Nll(0)].map(|metric| (metric, metric.title())));
        let draws = table_draws(results).unwrap_or(0);
        for (metric, _) in &mut metrics {
            *metric = metric.at_draws(draws);
        }
    }
    metrics
}

/// The name of a task's own metric in print.
pub(crate) fn standard_title(name: &str) -> &str {
    match name {
        "matthews" => "Matthews correlation",
        "pearson" => "Pearson correlation",
        "spearman" => "Spearman correlation",
        "f1" => "F1",
        other => other,
    }
}

fn scores(results: &Results, summary: &Summary) -> Vec<String> {
    let of_task = |task: &String| {
        let clauses: Vec<String> = judged(results, task)
            .into_iter()
            .filter_map(|(metric, title)| {
                let standing = Standing::new(results, summary, metric, task)?;
                let clause = clause(&standing, metric);
                Some(format!("{}{}: {clause}", title[..1].to_uppercase(), &title[1..]))
            })
            .collect();
        (!clauses.is_empty()).then(|| format!("{}. {}.", task_label(task), clauses.join(". ")))
    };
    summary.tasks.iter().filter_map(of_task).collect()
}

/// `LoRA is best at 0.865 (standard error 0.012); beyond noise behind it: AdaLoRA`.
fn clause(standing: &Standing<'_>, metric: Metric) -> String {
    let n = standing.ranked.len();
    let ((first, best), (_, last)) = (standing.ranked[0], standing.ranked[n - 1]);
    if standing.is_level() {
        let all = if n == 2 { "both".to_owned() } else { format!("all {n}") };
        return format!(
            "{all} methods are within noise of each other, {} to {} (standard error {})",
            metric.format(best.mean.min(last.mean)),
            metric.format(best.mean.max(last.mean)),
            metric.format(best.error().max(last.error())),
        );
    }
    let those = |wanted: bool| {
        let found = standing.ranked.iter().zip(&standing.near).skip(1);
        let names: Vec<&str> =
            found.filter(|(_, near)| **near == wanted).map(|((name, _), _)| *name).collect();
        match names.len() {
            m if m > NAMED => format!("{m} methods"),
            _ => listed(&names),
        }
    };
    let (near, behind) = (those(true), those(false));
    let near = if near.is_empty() { near } else { format!("not to be told from {near}; ") };
    let (mean, error) = (metric.format(best.mean), metric.format(best.error()));
    format!(
        "{first} is best at {mean} (standard error {error}); {near}beyond noise behind: {behind}"
    )
}

/// How ranks were given to methods that do not find their own.
fn budgets(results: &Results, summary: &Summary) -> Vec<String> {
    let mut notes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for method in &summary.methods {
        let mut runs = results.runs.iter().filter(|run| run.method == *method);
        let asked = runs.find(|run| run.rank_budget.requested.is_some());
        if let Some(run) = asked {
            notes.entry(&run.rank_budget.note).or_default().push(method);
        }
    }
    let say = |(note, methods): (&str, Vec<&str>)| match note.strip_prefix("matched to ") {
        Some(other) => format!(
            "Matched rank: {} got the rank that {other} ended with on the task, rounded and at least 1, so that \
             sizes are alike; the scaling stays that of the full rank.",
            listed(&methods)
        ),
        None => format!("Rank of {}: {note}.", listed(&methods)),
    };
    notes.into_iter().map(say).collect()
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::summary::headline_metrics;
    use super::*;
    use crate::record::DataOrigin;
    use crate::record::sample::{sample_reasoning, sample_results, set_accuracy};
    use crate::settings::CheckpointChoice;

    pub(in super::super) fn said(results: &Results) -> Said {
        let metrics = headline_metrics(results);
        Said::new(results, &Summary::new(results, CheckpointChoice::Last, &metrics))
    }

    pub(in super::super) fn two(lora: &[(f64, f64)], bayes: &[(f64, f64)]) -> Results {
        let mut results = sample_results();
        results.runs.retain(|run| run.method != "AdaLoRA" && run.task == "rte");
        set_accuracy(&mut results, "rte", "LoRA", lora);
        set_accuracy(&mut results, "rte", "BayesLoRA", bayes);
        let data = results.data.get_mut("rte").unwrap();
        data.train.origin = DataOrigin::Generated;
        data.validation.rows = 400;
        results
    }

    #[test]
    fn a_difference_within_noise_is_said_to_be_noise() {
        let near = said(&two(
            &[(0.80, 0.5), (0.82, 0.5), (0.84, 0.5)],
            &[(0.82, 0.5), (0.83, 0.5), (0.84, 0.5)],
        ));
        let [score] = &near.scores[..] else { panic!("{near:?}") };
        assert!(score.starts_with("RTE. Accuracy: both methods are within noise"), "{score}");
        assert!(score.contains("0.820 to 0.830"), "{score}");
        let far = said(&two(&[(0.5, 0.5); 3], &[(0.9, 0.5); 3]));
        // √(0.9 · 0.1 / 400)
        let wanted =
            "BayesLoRA is best at 0.900 (standard error 0.015); beyond noise behind: LoRA.";
        assert!(far.scores[0].ends_with(wanted), "{far:?}");
    }

    #[test]
    fn a_task_is_judged_by_its_own_metric() {
        let first = said(&sample_results());
        for (text, wanted) in first.scores.iter().zip(["CoLA. Matthews", "RTE. Acc", "STS-B. Pear"])
        {
            assert!(text.starts_with(wanted), "{text}");
        }
        let many = said(&sample_reasoning());
        assert!(many.ran.starts_with("20 methods"), "{}", many.ran);
        for name in ["ARC-E. Accuracy: ", ". ECE: ", ". NLL (nats): "] {
            assert!(many.scores[0].contains(name), "{name}: {}", many.scores[0]);
        }
    }

    #[test]
    fn a_matched_rank_is_explained() {
        let mut results = sample_results();
        for run in results.runs.iter_mut().filter(|run| run.method != "BayesLoRA") {
            run.rank_budget.requested = Some(2.0);
            run.rank_budget.note = "matched to BayesLoRA".into();
        }
        let text = said(&results).budgets;
        assert_eq!(text.len(), 1);
        assert!(text[0].starts_with("Matched rank: LoRA and AdaLoRA got the rank that BayesLoRA"));
        assert!(said(&sample_results()).budgets[0].starts_with("Rank of AdaLoRA: "));
    }
}
