//! Findings: a few sentences on the runs and their results, for the terminal, `table.md` and the page.
//!
//! A finding is data: the name of a template in `findings.jinja` and the values that fill it. [`super::significance`] compares
//! methods; groups of modules are compared by [`groups_p`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use lrvd_core::metrics::groups_p;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::{Value, json};

use super::metric::{Metric, Spread, grouped};
use super::names::{ModuleName, standard_title, task_label};
use super::significance::{Column, LEVEL, Pair};
use super::summary::Summary;
use crate::error::Result;
use crate::record::{DataOrigin, RunRecord, SplitRecord};
use crate::settings::CheckpointChoice;
use crate::text::{decimals, listed, templates};

const TEMPLATES: &str = include_str!("findings.jinja");
/// Up to so many methods or pairs a sentence names.
const NAMED: usize = 4;
/// Ranks of groups of modules that are nearer than this are equal.
const ALIKE: f64 = 0.005;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Findings {
    pub(crate) ran: String,
    /// Meaning of the numbers of tables, and of a significant difference.
    pub(crate) rule: String,
    /// The best method of every task, as far as tests show it.
    pub(crate) scores: Vec<String>,
    /// Ranks that layers kept, for each method that learns them.
    pub(crate) ranks: Vec<String>,
    /// Sources of the ranks of other methods, empty if all have those of the settings; candidates of the best checkpoint, if it
    /// is reported.
    pub(crate) budgets: Vec<String>,
    /// Evaluations that the best checkpoint is chosen from.
    #[serde(skip)]
    pub(crate) candidates: Option<String>,
}

impl Findings {
    pub(crate) fn new(summary: &Summary<'_>) -> Result<Self> {
        let mut environment = templates()?;
        let named = |names: Vec<String>, text: fn(&[String]) -> String| match names.len() {
            n if n > NAMED => format!("{n} methods"),
            _ => text(&names),
        };
        environment.add_filter("listed", |names: Vec<String>| listed(&names));
        environment.add_filter("counted", move |names| named(names, listed));
        environment.add_filter("few", move |names| named(names, |names| names.join(", ")));
        for (name, text) in TEMPLATES.split("## ").filter_map(|part| part.split_once('\n')) {
            environment.add_template(name, text.trim_end())?;
        }
        let sentence = |template: &str, values: Value| -> Result<String> {
            Ok(environment.get_template(template)?.render(Serde(values))?)
        };
        let sentences = |template: &str, values: Vec<Value>| -> Result<Vec<String>> {
            values.into_iter().map(|values| sentence(template, values)).collect()
        };
        let candidates = candidates(summary).map(|values| sentence("candidates", values));
        let candidates = candidates.transpose()?;
        let is_best = summary.choice == CheckpointChoice::Best;
        let mut budgets = sentences("budgets", budgets(summary))?;
        budgets.extend(candidates.clone().filter(|_| is_best));
        let scores = summary.tasks.iter().filter_map(|task| score(summary, task)).collect();
        let ranks = summary.methods.iter().filter_map(|method| ranks(summary, method)).collect();
        Ok(Self {
            ran: sentence("ran", ran(summary))?,
            rule: sentence("rule", json!({ "best": is_best, "seeds": seeds(summary) }))?,
            scores: sentences("scores", scores)?,
            ranks: sentences("ranks", ranks)?,
            budgets,
            candidates,
        })
    }

    pub(crate) fn lead(&self) -> String {
        format!("{}\n\n{}", self.ran, self.rule)
    }

    pub(crate) fn verdict(&self) -> Vec<String> {
        [&self.budgets, &self.scores, &self.ranks].into_iter().flatten().cloned().collect()
    }
}

/// `520`, or `520 to 572`; 0 without a number.
fn range(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: BTreeSet<u64> = numbers.collect();
    match (numbers.first(), numbers.last()) {
        (Some(low), Some(high)) if low < high => format!("{} to {}", grouped(*low), grouped(*high)),
        (only, _) => grouped(only.copied().unwrap_or(0)),
    }
}

/// Finished seeds of a method on a task.
fn finished(summary: &Summary<'_>, task: &str, method: &str) -> u64 {
    let own = |run: &&RunRecord| run.task == task && run.method == method;
    summary.results.finished().filter(own).count() as u64
}

/// Seeds of the methods on the tasks; a cell without a number has none, and is named elsewhere.
fn seeds(summary: &Summary<'_>) -> String {
    let of_task = |task| summary.methods.iter().map(move |method| finished(summary, task, method));
    range(summary.tasks.iter().copied().flat_map(of_task).filter(|n| *n > 0))
}

/// Methods, model, steps, seeds and data, and the limits of generated data.
fn ran(summary: &Summary<'_>) -> Value {
    let results = summary.results;
    let has_run = |method: &&str| results.runs.iter().any(|run| run.method == *method);
    let methods: Vec<&str> = summary.methods.iter().copied().filter(has_run).collect();
    let is_generated = |split: &SplitRecord| split.origin == DataOrigin::Generated;
    let data = || summary.tasks.iter().filter_map(|task| results.data.get(*task));
    let all = data().all(|data| is_generated(&data.train) && is_generated(&data.validation));
    let split = |split: &SplitRecord| {
        let origin = match split.origin {
            DataOrigin::Official => "official",
            DataOrigin::Subset => "a part of the official ones",
            DataOrigin::LocalDev => "split off here",
            DataOrigin::Generated => "generated",
        };
        json!({ "rows": grouped(split.rows), "origin": origin })
    };
    let of_task = |task: &&str| {
        let Some(data) = results.data.get(*task) else {
            return json!({ "task": task_label(task) });
        };
        let [train, validation] = [&data.train, &data.validation].map(split);
        let differ = !all && train["origin"] != validation["origin"];
        json!({ "task": task_label(task), "train": train, "validation": validation, "split": differ })
    };
    let planned = || {
        let tasks = results.planned.iter();
        tasks.flat_map(|(task, methods)| methods.iter().map(move |(m, n)| (task, m, *n)))
    };
    let missing = planned().filter_map(|(task, method, n)| {
        let done = finished(summary, task, method);
        (done < n).then(|| format!("{method} on {} has {done} of {n} seeds", task_label(task)))
    });
    let missing: Vec<String> = missing.collect();
    json!({
        "runs": results.runs.len(),
        "methods": methods,
        "model": results.model.name,
        "parameters": grouped(results.model.parameters),
        "steps": range(results.runs.iter().map(|run| run.steps)),
        "seeds": seeds(summary),
        "generated": all,
        "data": summary.tasks.iter().map(of_task).collect::<Vec<_>>(),
        "protocols": protocols(summary),
        "done": results.finished().count(),
        "planned": planned().map(|(.., n)| n).sum::<u64>(),
        "missing": if missing.len() > NAMED { Vec::new() } else { missing },
        "trained_on_generated": data().any(|data| is_generated(&data.train)),
    })
}

/// Methods with the same `values`, in the order of tables, without methods that have none; their names are added as `methods`.
fn grouped_by(summary: &Summary<'_>, values: impl Fn(&str) -> Option<Value>) -> Vec<Value> {
    let mut found: Vec<(Value, Vec<&str>)> = Vec::new();
    for &method in &summary.methods {
        let Some(values) = values(method) else { continue };
        match found.iter_mut().find(|(other, _)| *other == values) {
            Some((_, methods)) => methods.push(method),
            None => found.push((values, vec![method])),
        }
    }
    let with_methods = |(mut values, methods): (Value, Vec<&str>)| {
        values["methods"] = json!(methods);
        values
    };
    found.into_iter().map(with_methods).collect()
}

/// Steps and rows of every method, where methods differ.
fn protocols(summary: &Summary<'_>) -> Vec<Value> {
    let found = grouped_by(summary, |method| {
        let own = || summary.results.finished().filter(|run| run.method == method);
        own().next()?;
        let cut = |run: &RunRecord| run.choice.as_ref().map_or(run.steps, |cut| cut.step as u64);
        let of_task = |task: &&str| Some(grouped(own().find(|run| run.task == *task)?.train_rows));
        let mut rows: Vec<String> = summary.tasks.iter().filter_map(of_task).collect();
        rows.dedup();
        let refined = range(own().map(|run| run.steps.saturating_sub(cut(run))));
        Some(json!({ "steps": range(own().map(cut)), "rows": rows, "refined": refined }))
    });
    let differs = found.len() > 1 || summary.results.finished().any(|run| run.held_out_rows > 0);
    if differs { found } else { Vec::new() }
}

/// A task by its own metric, and results about uncertainty by calibration and likelihood as well, each at the draws of the tables.
fn score(summary: &Summary<'_>, task: &str) -> Option<Value> {
    let own = summary.results.standard_metric(task);
    let score = if own == "accuracy" { Metric::ACCURACY } else { Metric::STANDARD };
    let mut metrics = vec![(score, standard_title(own).to_owned())];
    if summary.uncertainty {
        metrics.extend([Metric::ECE, Metric::NLL].map(|metric| (metric, metric.title())));
    }
    let draws = summary.draws.filter(|_| summary.uncertainty).unwrap_or(0);
    let clause = |(metric, title): (Metric, String)| {
        let mut clause = clause(&Column::new(summary, metric.at(draws), task)?, metric);
        clause["title"] = format!("{}{}", title[..1].to_uppercase(), &title[1..]).into();
        Some(clause)
    };
    let clauses: Vec<Value> = metrics.into_iter().filter_map(clause).collect();
    (!clauses.is_empty()).then(|| json!({ "task": task_label(task), "clauses": clauses }))
}

/// Comparison of all pairs of a column: the best method or the range of means, the pairs that differ (or else the one that is
/// nearest to it), and the methods that were not tested, have fewer seeds or no number.
fn clause(column: &Column<'_, '_>, metric: Metric) -> Value {
    let ranked = &column.ranked;
    let mut tested: Vec<Pair<'_>> =
        column.pairs.iter().filter(|pair| pair.tested.is_some()).copied().collect();
    // The clearest first: Holm's probabilities of several pairs may be equal.
    let p = |pair: &Pair<'_>| pair.tested.map_or([1.0; 2], |(own, p)| [p, own.p()]);
    tested.sort_by(|a, b| p(a)[0].total_cmp(&p(b)[0]).then(p(a)[1].total_cmp(&p(b)[1])));
    let best = column.best();
    let is_shown = |pair: &&Pair<'_>| pair.differs() && best.is_none_or(|best| pair.has(best));
    let mut shown: Vec<Pair<'_>> = tested.iter().filter(is_shown).copied().collect();
    let differ = shown.len();
    if shown.is_empty() {
        shown.extend(tested.first());
    }
    let ends = [0, ranked.len() - 1].map(|place| ranked[place].1.mean);
    let is_tested = |method: &str| tested.iter().any(|pair| pair.has(method));
    let most = ranked.iter().map(|(_, spread)| spread.n()).max().unwrap_or(0);
    let seeds = |n: usize| if n == 1 { "one seed".to_owned() } else { format!("{n} seeds") };
    let untested = ranked.iter().filter(|(method, _)| !tested.is_empty() && !is_tested(method));
    let untested = untested.map(|(method, spread)| format!("{method} ({})", seeds(spread.n())));
    let fewer = ranked.iter().filter(|(method, spread)| is_tested(method) && spread.n() < most);
    let fewer = fewer.map(|(method, spread)| format!("{method} ({} of {most})", spread.n()));
    json!({
        "best": best,
        "mean": metric.format(ends[0]),
        "low": metric.format(ends[0].min(ends[1])),
        "high": metric.format(ends[0].max(ends[1])),
        "methods": ranked.iter().filter(|(method, _)| is_tested(method)).count(),
        "tested": tested.len(),
        "differ": differ,
        "pairs": shown.iter().take(NAMED).map(|pair| printed(pair, metric)).collect::<Vec<_>>(),
        "more": shown.len().saturating_sub(NAMED),
        "untested": untested.collect::<Vec<_>>(),
        "fewer": fewer.collect::<Vec<_>>(),
        "absent": column.absent,
    })
}

/// A tested pair, with a decimal more than values have; `rows` is false if seeds alone are compared.
fn printed(pair: &Pair<'_>, metric: Metric) -> Value {
    let Some((difference, p)) = pair.tested else { return Value::Null };
    let places = metric.number_format().digits + 1;
    let (low, high) = difference.interval();
    json!({
        "of": pair.of,
        "from": pair.from,
        "mean": format!("{:+.places$}", difference.mean),
        "low": decimals(low, places),
        "high": decimals(high, places),
        "rows": difference.has_rows(),
        "p": p_in_print(p),
    })
}

/// `p .010`, without the zero before the point.
fn p_in_print(p: f64) -> String {
    if p < 0.0005 {
        return "p < .001".to_owned();
    }
    let text = format!("{p:.3}");
    format!("p {}", text.strip_prefix('0').unwrap_or(&text))
}

fn candidates(summary: &Summary<'_>) -> Option<Value> {
    let found = grouped_by(summary, |method| {
        let runs = summary.results.finished().filter(|run| run.method == method);
        let n = range(runs.map(|run| run.checkpoints.candidates));
        (n != "0").then(|| json!({ "n": n }))
    });
    (!found.is_empty()).then(|| json!({ "found": found }))
}

/// Sources of the ranks of methods that do not learn them, with the largest distance of sizes.
fn budgets(summary: &Summary<'_>) -> Vec<Value> {
    let mut found = grouped_by(summary, |method| {
        let mut runs = summary.results.runs.iter().filter(|run| run.method == method);
        let run = runs.find(|run| run.rank_budget.requested.is_some())?;
        Some(json!({ "note": run.rank_budget.note, "kind": null }))
    });
    for values in &mut found {
        let note = values["note"].as_str().unwrap_or_default().to_owned();
        if let Some((kind @ ("parameters" | "rank"), other)) = note.split_once(" matched to ") {
            let apart = apart(summary, &values["methods"], other);
            values["kind"] = json!(kind);
            values["other"] = json!(other);
            values["apart"] = json!(apart);
        }
    }
    found
}

/// The run of `methods` whose trained parameters are farthest from those of `other`, by task and seed; `None` if all are equal.
fn apart(summary: &Summary<'_>, methods: &Value, other: &str) -> Option<Value> {
    let size = |run: &RunRecord| run.trainable_parameters.trained();
    let is_own = |run: &&RunRecord| {
        methods.as_array().is_some_and(|names| names.iter().any(|name| *name == *run.method))
    };
    let pairs = summary.results.finished().filter(is_own).filter_map(|run| {
        let is_pair =
            |o: &&RunRecord| (&*o.method, &o.task, o.seed) == (other, &run.task, run.seed);
        let theirs = size(summary.results.finished().find(is_pair)?);
        let apart = size(run).abs_diff(theirs);
        // Also of a model without any direction left.
        (apart > 0).then(|| (apart as f64 / theirs as f64, run, theirs))
    });
    let (share, run, theirs) = pairs.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(json!({
        "percent": share.is_finite().then(|| format!("{:.0}", (100.0 * share).ceil())),
        "method": run.method,
        "task": task_label(&run.task),
        "seed": run.seed,
        "size": grouped(size(run)),
        "other": grouped(theirs),
    }))
}

/// Ranks that a method kept, and the layers that have most and least; `None` for a method that learns no ranks.
fn ranks(summary: &Summary<'_>, method: &str) -> Option<Value> {
    let mut tasks: Vec<Value> = Vec::new();
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
            let layer = |name: ModuleName| name.layer.map(|layer| format!("layer {layer}"));
            let groups = [
                extremes(&runs, summary.choice, "layers", layer),
                extremes(&runs, summary.choice, "kinds of module", |name| Some(name.kind)),
            ];
            let groups: Vec<Value> = groups.into_iter().flatten().collect();
            tasks.push(json!({ "kept": kept, "task": task_label(task), "groups": groups }));
        }
    }
    // What is alike for all tasks is written once.
    let first = &tasks.first()?["groups"];
    let alike = tasks.iter().all(|task| task["groups"] == *first);
    let full = full.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ");
    Some(json!({ "full": full, "method": method, "alike": alike, "tasks": tasks }))
}

/// The groups of modules with the most and the fewest ranks, and the test that all `groups` have equal ones; `None` if they have.
fn extremes(
    runs: &[&RunRecord],
    choice: CheckpointChoice,
    groups: &str,
    group: impl Fn(ModuleName) -> Option<String>,
) -> Option<Value> {
    // A mean for every run, by group.
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut seeds = 0;
    for checkpoint in runs.iter().filter_map(|run| choice.of(run)) {
        seeds += 1;
        let mut own: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (path, rank) in &checkpoint.ranks {
            if let Some(name) = group(ModuleName::parse(path)) {
                own.entry(name).or_default().push(f64::from(*rank));
            }
        }
        for (name, ranks) in own {
            let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
            found.entry(name).or_default().push(mean);
        }
    }
    let values: Vec<Vec<f64>> = found.values().cloned().collect();
    let is_whole = values.iter().all(|own| own.len() == seeds);
    let mut means: Vec<(&String, f64)> =
        found.iter().filter_map(|(name, ranks)| Some((name, Spread::of(ranks)?.mean))).collect();
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (most, high) = *means.first()?;
    let (least, low) = *means.last()?;
    if high - low < ALIKE {
        return None;
    }
    let p = groups_p(&values);
    let mut found = json!({ "groups": groups, "p": p.map(p_in_print) });
    if p.is_none_or(|p| p < LEVEL) {
        found["most"] = json!(most);
        found["high"] = format!("{high:.2}").into();
        found["least"] = json!(least);
        found["low"] = format!("{low:.2}").into();
    }
    if p.is_none() {
        found["seeds"] = json!(seeds);
        found["shared"] = json!(seeds > 1 && is_whole);
    }
    Some(found)
}
