//! What was run and what it showed, in a few sentences: the terminal, `table.md` and the page have the same ones.
//!
//! [`super::significance`] decides which differences are significant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::metric::{Metric, Spread, grouped};
use super::names::{ModuleName, standard_title, task_label};
use super::significance::{Difference, LEVEL, Rival, standing};
use super::summary::Summary;
use crate::record::{DataOrigin, RunRecord, SplitRecord};
use crate::settings::CheckpointChoice;
use crate::text::listed;

/// Up to so many methods a sentence names.
const NAMED: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Findings {
    pub(crate) ran: String,
    /// What numbers of tables mean, and when a difference counts.
    pub(crate) rule: String,
    /// Who is best at every task, as far as that can be known.
    pub(crate) scores: Vec<String>,
    /// How much rank the layers needed, by each method that finds that out.
    pub(crate) ranks: Vec<String>,
    /// How the other methods were given theirs; empty where all had that of the settings.
    pub(crate) budgets: Vec<String>,
}

impl Findings {
    pub(crate) fn new(summary: &Summary<'_>) -> Self {
        Self {
            ran: ran(summary),
            rule: rule(summary),
            scores: summary.tasks.iter().filter_map(|task| score(summary, task)).collect(),
            ranks: summary.methods.iter().filter_map(|method| ranks(summary, method)).collect(),
            budgets: budgets(summary),
        }
    }

    pub(crate) fn lead(&self) -> String {
        format!("{}\n\n{}", self.ran, self.rule)
    }

    pub(crate) fn verdict(&self) -> Vec<String> {
        [&self.budgets, &self.scores, &self.ranks].into_iter().flatten().cloned().collect()
    }
}

fn seeds(summary: &Summary<'_>) -> usize {
    summary.results.finished().map(|run| run.seed).collect::<BTreeSet<_>>().len()
}

/// Methods, model, steps, seeds and data, and what generated data cannot show.
fn ran(summary: &Summary<'_>) -> String {
    let results = summary.results;
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
    let (n, planned) = (seeds(summary), results.runs.len());
    let generated = |split: &SplitRecord| split.origin == DataOrigin::Generated;
    let data = || summary.tasks.iter().filter_map(|task| results.data.get(*task));
    let all = data().all(|data| generated(&data.train) && generated(&data.validation));
    let tasks: Vec<String> =
        summary.tasks.iter().map(|task| data_of(summary, task, !all)).collect();
    let mut text = format!(
        "{methods} fine-tuned {}, {} parameters, for {steps} steps with {n} {} on {}{}.",
        results.model.name,
        grouped(results.model.parameters),
        if n == 1 { "seed" } else { "seeds" },
        if all { "generated data: " } else { "" },
        listed(&tasks),
    );
    let finished = results.finished().count();
    if finished < planned {
        let _ = write!(text, " Only {finished} of {planned} runs finished.");
    }
    if data().any(|data| generated(&data.train)) {
        text.push_str(" Generated data show that methods run, not which is better on real text.");
    }
    text
}

/// `CoLA (2 000 training and 500 validation rows, official)`; `origins` includes their origin.
fn data_of(summary: &Summary<'_>, task: &str, origins: bool) -> String {
    let label = task_label(task);
    let Some(data) = summary.results.data.get(task) else { return label };
    let origin = |split: &SplitRecord| match split.origin {
        DataOrigin::Official => "official",
        DataOrigin::Subset => "a part of the official ones",
        DataOrigin::LocalDev => "split off here",
        DataOrigin::Generated => "generated",
    };
    let [train, validation] = [&data.train, &data.validation].map(origin);
    let [before, after] = [&data.train, &data.validation].map(|split| grouped(split.rows));
    if !origins {
        format!("{label} ({before} training and {after} validation rows)")
    } else if train == validation {
        format!("{label} ({before} training and {after} validation rows, {train})")
    } else {
        format!("{label} ({before} training rows, {train}; {after} validation rows, {validation})")
    }
}

/// What a number of the tables is, and when a difference counts.
fn rule(summary: &Summary<'_>) -> String {
    let checkpoint = match summary.choice {
        CheckpointChoice::Last => "Last checkpoint",
        CheckpointChoice::Best => {
            "Best checkpoint, chosen on the data it is reported on, so optimistic (ensembles and methods that are \
             fitted after training have none: table-last.csv has their numbers)"
        }
    };
    match seeds(summary) {
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

/// `RTE. Accuracy: LoRA is best at ...`: a task by its own metric, and results about uncertainty by calibration and
/// likelihood as well, each at the draws of the tables.
fn score(summary: &Summary<'_>, task: &str) -> Option<String> {
    let own = summary.results.standard_metric(task);
    let score = if own == "accuracy" { Metric::ACCURACY } else { Metric::STANDARD };
    let mut metrics = vec![(score, standard_title(own).to_owned())];
    if summary.uncertainty {
        metrics.extend([Metric::ECE, Metric::NLL].map(|metric| (metric, metric.title())));
    }
    let draws = summary.draws.filter(|_| summary.uncertainty).unwrap_or(0);
    let clause = |(metric, title): (Metric, String)| {
        let clause = clause(&standing(summary, metric.at(draws), task)?, metric);
        Some(format!("{}{}: {clause}", title[..1].to_uppercase(), &title[1..]))
    };
    let clauses: Vec<String> = metrics.into_iter().filter_map(clause).collect();
    (!clauses.is_empty()).then(|| format!("{}. {}.", task_label(task), clauses.join(". ")))
}

/// `LoRA is best at 0.865; significantly behind: AdaLoRA (-0.021, 95 % interval -0.034 to -0.008)`.
fn clause(ranked: &[Rival<'_>], metric: Metric) -> String {
    let n = ranked.len();
    let (best, last) = (&ranked[0], &ranked[n - 1]);
    // With the difference from the best method.
    let named = |rival: &Rival<'_>| match rival.difference {
        None => rival.method.to_owned(),
        Some(difference) => {
            let (low, high) = difference.interval();
            let [mean, low, high] = [difference.mean, low, high].map(|x| metric.format(x));
            format!("{} ({mean}, 95 % interval {low} to {high})", rival.method)
        }
    };
    if ranked.iter().all(|rival| rival.near) {
        let all = if n == 2 { "the two methods".to_owned() } else { format!("the {n} methods") };
        return format!(
            "no significant difference between {all}, {} to {}: {}",
            metric.format(best.mean.min(last.mean)),
            metric.format(best.mean.max(last.mean)),
            named(last),
        );
    }
    let those = |near: bool| {
        let found = ranked[1..].iter().filter(|rival| rival.near == near);
        let names: Vec<String> = found.map(named).collect();
        if names.len() > NAMED { format!("{} methods", names.len()) } else { names.join(", ") }
    };
    let (mut near, behind, mean) = (those(true), those(false), metric.format(best.mean));
    if !near.is_empty() {
        near.insert_str(0, "; not significantly different: ");
    }
    format!("{} is best at {mean}; significantly behind: {behind}{near}", best.method)
}

/// How ranks were given to methods that do not find their own.
fn budgets(summary: &Summary<'_>) -> Vec<String> {
    let mut notes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for method in &summary.methods {
        let mut runs = summary.results.runs.iter().filter(|run| run.method == *method);
        if let Some(run) = runs.find(|run| run.rank_budget.requested.is_some()) {
            notes.entry(&run.rank_budget.note).or_default().push(method);
        }
    }
    let sentence = |(note, methods): (&str, Vec<&str>)| match note.strip_prefix("matched to ") {
        Some(other) => format!(
            "Matched rank: {} got the rank that {other} ended with on the task, rounded and at least 1, so that \
             sizes are alike; the scaling stays that of the full rank.",
            listed(&methods)
        ),
        None => format!("Rank of {}: {note}.", listed(&methods)),
    };
    notes.into_iter().map(sentence).collect()
}

/// How much rank was kept and where, for a method that learns its ranks; none for others.
fn ranks(summary: &Summary<'_>, method: &str) -> Option<String> {
    let mut tasks: Vec<(String, String)> = Vec::new();
    let mut full = BTreeSet::new();
    for task in &summary.tasks {
        let own = |run: &&RunRecord| run.task == *task && run.method == method;
        let runs: Vec<&RunRecord> = summary.results.finished().filter(own).collect();
        let learnt =
            |run: &&RunRecord| run.rank_budget.requested.is_none() && run.rank_events.len() > 1;
        let Some(kept) = summary.cell(Metric::RANK, method, task) else { continue };
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
    // What is alike for all tasks is written once.
    let alike = tasks.iter().all(|(_, place)| place == first);
    let kept = |(kept, place): &(String, String)| {
        if alike || place.is_empty() { kept.clone() } else { format!("{kept} ({place})") }
    };
    let kept: Vec<String> = tasks.iter().map(kept).collect();
    let place = if alike && !first.is_empty() { format!(": {first}") } else { String::new() };
    let full = full.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ");
    Some(format!("Of {full} ranks a module {method} kept {}{place}.", listed(&kept)))
}

/// Where the ranks are: `most in layer 3, 3.33, least in layer 0, 0.33; most in value, ...`; nothing where all have the
/// same.
fn most_and_least(runs: &[&RunRecord], choice: CheckpointChoice) -> String {
    let layer = |name: ModuleName| name.layer.map(|layer| format!("layer {layer}"));
    let by = [
        ("layer", extremes(runs, choice, layer)),
        ("kind of module", extremes(runs, choice, |name| Some(name.kind))),
    ];
    let (found, noise): (Vec<_>, Vec<_>) = by
        .into_iter()
        .filter_map(|(of, found)| Some((of, found?)))
        .partition(|(_, (_, is_clear))| *is_clear);
    let mut words: Vec<String> = found.into_iter().map(|(_, (words, _))| words).collect();
    if !noise.is_empty() {
        let noise: Vec<&str> = noise.into_iter().map(|(of, _)| of).collect();
        words.push(format!("no {} stands out significantly", noise.join(" or ")));
    }
    words.join("; ")
}

const ALIKE: f64 = 0.005;

/// The groups of modules with the most and the fewest ranks, `most in value, 1.90, least in query, 0.40`, and whether they
/// differ significantly over the seeds; none if they do not differ.
fn extremes(
    runs: &[&RunRecord],
    choice: CheckpointChoice,
    group: impl Fn(ModuleName) -> Option<String>,
) -> Option<(String, bool)> {
    // A mean for every run, by group.
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
    let ((most, high), (least, low)) = (found.first()?, found.last()?);
    let apart: Vec<f64> =
        high.by_seed.values().zip(low.by_seed.values()).map(|(high, low)| high - low).collect();
    // One seed, or seeds that all agree, are reported as found.
    let is_noise = Difference::of_seeds(&apart).is_some_and(|d| d.p() > LEVEL);
    let words = format!("most in {most}, {:.2}, least in {least}, {:.2}", high.mean, low.mean);
    (high.mean - low.mean >= ALIKE).then_some((words, !is_noise))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::record::Results;
    use crate::record::sample::{sample_results, set_accuracy};

    /// LoRA and BayesLoRA on RTE with these accuracies.
    fn two(lora: [f64; 3], bayes: [f64; 3]) -> Results {
        let mut results = sample_results();
        results.runs.retain(|run| run.method != "AdaLoRA" && run.task == "rte");
        set_accuracy(&mut results, "rte", 0.5, [("LoRA", lora), ("BayesLoRA", bayes)]);
        results
    }

    fn change_ranks(results: &mut Results, change: impl Fn(&ModuleName, u32) -> u32) {
        for last in results.runs.iter_mut().filter_map(|run| run.checkpoints.last.as_mut()) {
            last.ranks
                .iter_mut()
                .for_each(|(path, rank)| *rank = change(&ModuleName::parse(path), *rank));
            let total: u32 = last.ranks.values().sum();
            last.average_rank = f64::from(total) / last.ranks.len() as f64;
        }
    }

    #[test]
    fn sentences_say_what_was_run_and_found() {
        let mut cases = vec![
            // Differences of .02, .01 and 0: the mean is .01, its standard error .00577, and 4.303 of them .0248.
            ("no significant difference", two([0.80, 0.82, 0.84], [0.82, 0.83, 0.84])),
            // .39 ± 4.303 · .00577
            ("a best method", two([0.50, 0.52, 0.51], [0.90; 3])),
        ];
        let mut results = sample_results();
        for run in results.runs.iter_mut().filter(|run| run.method != "BayesLoRA") {
            run.rank_budget.requested = Some(2.0);
            run.rank_budget.note = "matched to BayesLoRA".into();
        }
        cases.push(("a matched rank", results));
        // Layers have 0 + ⅓ to 3 + ⅓; query and ffn out 1.5, value 2.5; all seeds agree.
        let mut results = sample_results();
        results.runs.retain(|run| run.method == "BayesLoRA" && run.task == "rte");
        change_ranks(&mut results, |name, _| {
            name.layer.unwrap_or(0) + u32::from(name.kind == "value")
        });
        cases.push(("ranks by layer and kind", results.clone()));
        for rank in results.runs[0].checkpoints.last.as_mut().unwrap().ranks.values_mut() {
            *rank = 4 - *rank;
        }
        cases.push(("ranks that a seed has the other way round", results.clone()));
        change_ranks(&mut results, |_, _| 0);
        cases.push(("no ranks", results));
        let mut results = two([0.5; 3], [0.9; 3]);
        let data = results.data.get_mut("rte").unwrap();
        data.train.origin = DataOrigin::Generated;
        data.validation.rows = 400;
        cases.push(("generated training data", results.clone()));
        results.data.get_mut("rte").unwrap().validation.origin = DataOrigin::Generated;
        results.runs.retain(|run| run.seed == 1);
        cases.push(("generated data, one seed", results.clone()));
        results.runs.clear();
        cases.push(("no run", results));
        let mut found = String::new();
        for (case, results) in &cases {
            let Findings { ran, rule, budgets, scores, ranks, .. } =
                Findings::new(&Summary::of_last(results));
            writeln!(found, "{case}\n    {ran}\n    {rule}\n    {budgets:?}").unwrap();
            writeln!(found, "    {scores:#?}\n    {ranks:?}").unwrap();
        }
        insta::assert_snapshot!(found);
    }
}
