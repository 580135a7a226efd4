//! What was run and what it showed, in a few sentences: the terminal, `table.md` and the page say the same.
//!
//! [`super::significance`] decides which differences are significant.

use std::collections::BTreeMap;

use serde::Serialize;

use super::metric::Metric;
use super::names::task_label;
use super::needed::ranks;
use super::ran::{ran, rule};
use super::rows::RowScores;
use super::significance::{Rival, Standing};
use super::summary::{Summary, is_about_uncertainty, table_draws};
use crate::record::Results;
use crate::text::listed;

/// Up to so many methods a sentence names.
pub(super) const NAMED: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Said {
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
    pub(crate) fn new(results: &Results, summary: &Summary, rows: &RowScores) -> Self {
        Self {
            ran: ran(results, summary),
            rule: rule(results, summary),
            scores: scores(results, summary, rows),
            ranks: ranks(results, summary),
            budgets: budgets(results, summary),
        }
    }

    pub(crate) fn lead(&self) -> String {
        format!("{}\n\n{}", self.ran, self.rule)
    }

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

fn scores(results: &Results, summary: &Summary, rows: &RowScores) -> Vec<String> {
    let of_task = |task: &String| {
        let clauses: Vec<String> = judged(results, task)
            .into_iter()
            .filter_map(|(metric, title)| {
                let standing = Standing::new(results, summary, rows, metric, task)?;
                let clause = clause(&standing, metric);
                Some(format!("{}{}: {clause}", title[..1].to_uppercase(), &title[1..]))
            })
            .collect();
        (!clauses.is_empty()).then(|| format!("{}. {}.", task_label(task), clauses.join(". ")))
    };
    summary.tasks.iter().filter_map(of_task).collect()
}

/// `LoRA is best at 0.865; significantly behind: AdaLoRA (-0.021, 95 % interval -0.034 to -0.008)`.
fn clause(standing: &Standing<'_>, metric: Metric) -> String {
    let n = standing.ranked.len();
    let (best, last) = (&standing.ranked[0], &standing.ranked[n - 1]);
    if standing.is_level() {
        let all = if n == 2 { "the two methods".to_owned() } else { format!("the {n} methods") };
        let (low, high) = (best.mean.min(last.mean), best.mean.max(last.mean));
        return format!(
            "no significant difference between {all}, {} to {}: {}",
            metric.format(low),
            metric.format(high),
            named(last, metric),
        );
    }
    let those = |near: bool| {
        let found = standing.ranked[1..].iter().filter(|rival| rival.near == near);
        let names: Vec<String> = found.map(|rival| named(rival, metric)).collect();
        if names.len() > NAMED { format!("{} methods", names.len()) } else { names.join(", ") }
    };
    let (near, behind) = (those(true), those(false));
    let near =
        if near.is_empty() { near } else { format!("; not significantly different: {near}") };
    let mean = metric.format(best.mean);
    format!("{} is best at {mean}; significantly behind: {behind}{near}", best.method)
}

/// `AdaLoRA (-0.021, 95 % interval -0.034 to -0.008)`: the difference from the best method.
fn named(rival: &Rival<'_>, metric: Metric) -> String {
    match rival.difference {
        None => rival.method.to_owned(),
        Some(difference) => {
            let (low, high) = difference.interval();
            let [mean, low, high] = [difference.mean, low, high].map(|x| metric.format(x));
            format!("{} ({mean}, 95 % interval {low} to {high})", rival.method)
        }
    }
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
        let summary = Summary::new(results, CheckpointChoice::Last, &metrics);
        Said::new(results, &summary, &RowScores::default())
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
    fn a_verdict_has_its_interval() {
        let near = said(&two(
            &[(0.80, 0.5), (0.82, 0.5), (0.84, 0.5)],
            &[(0.82, 0.5), (0.83, 0.5), (0.84, 0.5)],
        ));
        let [score] = &near.scores[..] else { panic!("{near:?}") };
        // Differences of .02, .01 and 0: the mean is .01, its standard error .00577, and 4.303 of them .0248.
        let expected = "RTE. Accuracy: no significant difference between the two methods, 0.820 to 0.830: LoRA \
                        (-0.010, 95 % interval -0.035 to 0.015).";
        assert_eq!(score, expected);
        let far = said(&two(
            &[(0.50, 0.5), (0.52, 0.5), (0.51, 0.5)],
            &[(0.90, 0.5), (0.90, 0.5), (0.90, 0.5)],
        ));
        // .39 ± 4.303 · .00577
        let expected = "BayesLoRA is best at 0.900; significantly behind: LoRA (-0.390, 95 % interval -0.415 to -0.365).";
        assert!(far.scores[0].ends_with(expected), "{far:?}");
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
