//! What was run and what it showed, in a few sentences: the terminal, `table.md` and the page say the same.
//!
//! [`super::significance`] decides which differences are significant.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::metric::Metric;
use super::pairs::{ran, rule};
use super::rows::{ModuleName, RowScores, task_label};
use super::significance::{Difference, LEVEL, Rival, Spread, Standing};
use super::summary::{Summary, is_about_uncertainty, table_draws};
use crate::record::{Results, RunRecord, RunStatus};
use crate::settings::CheckpointChoice;
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

/// Ranks that print alike are alike.
const ALIKE: f64 = 0.005;

/// One sentence for each method that learns its ranks.
pub(super) fn ranks(results: &Results, summary: &Summary) -> Vec<String> {
    let of = |method: &String| {
        let mut tasks: Vec<(String, String)> = Vec::new();
        let mut full = BTreeSet::new();
        for task in &summary.tasks {
            let runs: Vec<&RunRecord> = results
                .runs
                .iter()
                .filter(|run| run.task == *task && run.method == *method)
                .filter(|run| run.status == RunStatus::Finished)
                .collect();
            let learnt =
                |run: &&RunRecord| run.rank_budget.requested.is_none() && run.rank_events.len() > 1;
            let Some(kept) = summary.cell(Metric::Rank, method, task) else { continue };
            if runs.iter().any(learnt) {
                full.extend(summary.full_rank(method, task));
                let kept = match kept.mean {
                    0.0 => "none".to_owned(),
                    mean => format!("{mean:.2}"),
                };
                let kept = format!("{kept} on {}", task_label(task));
                tasks.push((kept, most_and_least(&runs, summary.choice)));
            }
        }
        let (_, first) = tasks.first()?;
        // What is alike for all tasks is said once.
        let alike = tasks.iter().all(|(_, place)| place == first).then(|| first.clone());
        let said: Vec<String> = tasks
            .into_iter()
            .map(|(kept, place)| {
                let told = alike.is_some() || place.is_empty();
                if told { kept } else { format!("{kept} ({place})") }
            })
            .collect();
        let alike = alike.filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
        let full: Vec<String> = full.iter().map(u32::to_string).collect();
        Some(format!(
            "Of {} ranks a module {method} kept {}{}.",
            full.join(" or "),
            listed(&said),
            alike.unwrap_or_default()
        ))
    };
    summary.methods.iter().filter_map(of).collect()
}

/// Where the ranks are: `most in layer 3, 3.33, least in layer 0, 0.33; most in value, ...`; nothing where all have the
/// same.
fn most_and_least(runs: &[&RunRecord], choice: CheckpointChoice) -> String {
    let layers = extremes(runs, choice, |name| name.layer.map(|layer| format!("layer {layer}")));
    let kinds = extremes(runs, choice, |name| Some(name.kind));
    let told = |found: &Extremes| match found {
        Extremes::Apart(text) => Some(text.clone()),
        Extremes::Alike | Extremes::Noise => None,
    };
    let mut found: Vec<String> = [&layers, &kinds].into_iter().filter_map(told).collect();
    match (layers, kinds) {
        (Extremes::Noise, Extremes::Noise) => {
            found.push("no layer or kind of module stands out significantly".into());
        }
        (Extremes::Noise, _) => found.push("no layer stands out significantly".into()),
        (_, Extremes::Noise) => found.push("no kind of module stands out significantly".into()),
        _ => {}
    }
    found.join("; ")
}

/// The groups of modules with the most and the fewest ranks.
enum Extremes {
    /// They differ: `most in value, 1.90, least in query, 0.40`.
    Apart(String),
    /// They do not differ significantly over the seeds.
    Noise,
    /// They do not differ.
    Alike,
}

fn extremes(
    runs: &[&RunRecord],
    choice: CheckpointChoice,
    group: impl Fn(ModuleName) -> Option<String>,
) -> Extremes {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for checkpoint in runs.iter().filter_map(|run| choice.of(run)) {
        let mut own: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (path, rank) in &checkpoint.ranks {
            if let Some(name) = group(ModuleName::parse(path)) {
                own.entry(name).or_default().push(f64::from(*rank));
            }
        }
        for (name, ranks) in own {
            let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
            groups.entry(name).or_default().push(mean);
        }
    }
    let mut found: Vec<(&String, Spread)> =
        groups.iter().filter_map(|(name, ranks)| Some((name, Spread::of(ranks)?))).collect();
    found.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    let (Some((most, high)), Some((least, low))) = (found.first(), found.last()) else {
        return Extremes::Alike;
    };
    if high.mean - low.mean < ALIKE {
        return Extremes::Alike;
    }
    let by_seed: Vec<f64> = high.values.iter().zip(&low.values).map(|(h, l)| h - l).collect();
    match Difference::of_seeds(&by_seed) {
        Some(difference) if difference.p() > LEVEL => Extremes::Noise,
        // One seed, or seeds that all agree, are reported as found.
        _ => Extremes::Apart(format!(
            "most in {most}, {:.2}, least in {least}, {:.2}",
            high.mean, low.mean
        )),
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::summary::headline_metrics;
    use super::*;
    use crate::record::DataOrigin;
    use crate::record::sample::{sample_reasoning, sample_results, set_accuracy, six_tasks};

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
        for (text, expected) in
            first.scores.iter().zip(["CoLA. Matthews", "RTE. Acc", "STS-B. Pear"])
        {
            assert!(text.starts_with(expected), "{text}");
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

    #[test]
    fn one_sentence_answers_how_much_rank_each_layer_needs() {
        let mut results = sample_results();
        results.runs.retain(|run| run.method == "BayesLoRA" && run.task == "rte");
        for run in &mut results.runs {
            let last = run.checkpoints.last.as_mut().unwrap();
            for (path, rank) in &mut last.ranks {
                let name = ModuleName::parse(path);
                *rank = name.layer.unwrap_or(0) + u32::from(name.kind == "value");
            }
            last.average_rank = 11.0 / 6.0;
        }
        // Layers have 0 + ⅓ to 3 + ⅓; query and ffn out 1.5, value 2.5; all seeds agree.
        assert_eq!(
            said(&results).ranks,
            [
                "Of 8 ranks a module BayesLoRA kept 1.83 on RTE: most in layer 3, 3.33, least in layer 0, 0.33; \
              most in value, 2.50, least in query, 1.50."
            ]
        );
        let mut none = results.clone();
        for run in &mut none.runs {
            let last = run.checkpoints.last.as_mut().unwrap();
            last.ranks.values_mut().for_each(|rank| *rank = 0);
            last.average_rank = 0.0;
        }
        assert_eq!(said(&none).ranks, ["Of 8 ranks a module BayesLoRA kept none on RTE."]);
        // A seed that has it the other way round.
        for rank in results.runs[0].checkpoints.last.as_mut().unwrap().ranks.values_mut() {
            *rank = 4 - *rank;
        }
        assert!(
            said(&results).ranks[0].contains("no layer or kind of module stands out"),
            "{results:?}"
        );
    }

    #[test]
    fn what_is_alike_for_all_tasks_is_said_once() {
        let text = &said(&six_tasks()).ranks[0];
        assert!(text.starts_with("Of 8 ranks a module BayesLoRA kept 4.77 on ARC-C, "), "{text}");
        let expected = " on WG-S: no layer or kind of module stands out significantly.";
        assert!(text.ends_with(expected), "{text}");
    }
}
