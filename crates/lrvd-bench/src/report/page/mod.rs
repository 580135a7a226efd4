//! One `report.html` that opens without a network: a static template around the embedded record.
//!
//! - `template.html`, `style.css`: frame and style.
//! - `data.js`, `charts.js`, `page.js`: reading, figures and text of the page, from two embedded JSON documents: the record
//!   itself, as `results.json` has it, and [`page_data`]. Both contain numbers; `data.js` prints them by the formats of
//!   [`super::metric`], with the digits of the terminal.
//! - `vendor/`: the plot library, written into the page as it was published, with its licences.
//!
//! All text reaches the page as JSON and is placed by the script as text, never as markup. The same record gives the
//! same bytes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use minijinja::context;
use serde::Serialize;
use serde_json::{Value, json};

use super::compare::Comparison;
use super::findings::Findings;
use super::metric::{Better, Metric, Spread};
use super::names::{ModuleName, match_key, standard_title, task_label};
use super::significance::Column;
use super::summary::Summary;
use super::table::render_text;
use crate::error::Result;
use crate::method::{Family, MethodName};
use crate::record::{Results, RunStatus, TaskData};
use crate::settings::CheckpointChoice;
use crate::text::templates;

const TEMPLATE: &str = include_str!("template.html");
/// Description of the tests of differences, a part of `docs/math/statistics.md`, too.
const PROCEDURES: &str = include_str!("../procedures.md");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 3] =
    [include_str!("data.js"), include_str!("charts.js"), include_str!("page.js")];
const PLOT: [&str; 2] = [include_str!("vendor/d3.min.js"), include_str!("vendor/plot.umd.min.js")];
const LICENCES: [&str; 2] =
    [include_str!("vendor/LICENSE-d3"), include_str!("vendor/LICENSE-plot")];

/// The report as one HTML page: no network, no clock, the same bytes for the same record.
pub(crate) struct Page {
    title: String,
    /// The table of a browser without scripts.
    table: String,
    data: Value,
}

impl Page {
    pub(crate) fn new(
        summary: &Summary<'_>,
        findings: &Findings,
        comparison: Option<&Comparison>,
    ) -> Self {
        let results = summary.results;
        Self {
            title: format!("{}, {} profile", results.model.name, results.profile),
            table: render_text(summary),
            data: page_data(summary, findings, comparison),
        }
    }

    /// The page around a record, `results`.
    pub(crate) fn render(&self, results: &Results) -> Result<String> {
        let values = context! {
            title => escape(&self.title),
            style => STYLE,
            table => escape(&self.table),
            results => json(results)?,
            page => json(&self.data)?,
            licences => LICENCES.join("\n"),
            plot => PLOT.join("\n"),
            scripts => SCRIPTS.join("\n"),
        };
        Ok(templates()?.render_str(TEMPLATE, values)?)
    }
}

/// A value as JSON for a script element: no `<` can end it or open a comment.
fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(value)?.replace('<', "\\u003c"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Data of the scripts beside the record. Maps of numbers are by checkpoint, then by metric (`nll_k10`).
fn page_data(summary: &Summary<'_>, findings: &Findings, comparison: Option<&Comparison>) -> Value {
    let Summary { results, methods, tasks, uncertainty, draws, choice, .. } = summary;
    let by_checkpoint = |values: fn(&Summary<'_>) -> Value| {
        let value = |choice: CheckpointChoice| (choice.name().into(), values(&summary.at(choice)));
        map(CheckpointChoice::BOTH.into_iter().map(value))
    };
    let families: BTreeSet<Family> = methods.iter().map(|name| Family::of(name)).collect();
    let modules = modules(results);
    let mut kinds: Vec<&ModuleName> = modules.iter().map(|(name, _)| name).collect();
    kinds.sort_by_cached_key(|name| name.kind_order());
    kinds.dedup_by(|a, b| a.kind == b.kind);
    let sets: BTreeSet<&String> = results.runs.iter().flat_map(|run| run.ood.keys()).collect();
    let full_ranks = |task: &&str| -> Value {
        let rank = |m: &&str| Some(((*m).to_owned(), json!(summary.full_rank(m, task)?)));
        Value::Object(methods.iter().filter_map(rank).collect())
    };
    json!({
        // `true`: the page is about uncertainty and colours families; otherwise about ranks, and it colours methods.
        "uncertainty": uncertainty,
        "reported": choice.name(),
        // Posterior draws of tables and figures, beside the mean.
        "draws": draws,
        // Numbers of evaluations from which the best checkpoints were chosen.
        "candidates": findings.candidates,
        // The sentences of the terminal.
        "findings": findings,
        "procedures": procedures(),
        "methods": methods.iter().map(|name| method_entry(name, *uncertainty)).collect::<Vec<_>>(),
        "families": families.into_iter().map(|family| family.in_print().0).collect::<Vec<_>>(),
        "tasks": tasks.iter().map(|task| task_entry(results, task)).collect::<Vec<_>>(),
        "sets": map(sets.into_iter().map(|set| (set.clone(), json!(task_label(set))))),
        // In the order of the network.
        "modules": modules.iter().map(|(name, path)| json!({
            "path": path, "layer": name.layer, "kind": name.kind, "label": name.label(),
        })).collect::<Vec<_>>(),
        "kinds": kinds.into_iter().map(|name| &name.kind).collect::<Vec<_>>(),
        "metrics": map(summary.on_page().iter().map(|m| (m.base().into_owned(), metric_entry(*m)))),
        "cells": by_checkpoint(cells),
        "marks": by_checkpoint(all_marks),
        "full_ranks": map(tasks.iter().map(|task| ((*task).to_owned(), full_ranks(task)))),
        "total_ranks": total_ranks(results),
        "comparison": comparison,
    })
}

/// The sections of `procedures.md`, each a title with its paragraphs and formulas.
fn procedures() -> Vec<Value> {
    let part = |text: &str| match text.strip_prefix("```text\n") {
        Some(formula) => json!({ "formula": formula.trim_end_matches("\n```") }),
        None => json!({ "words": text.replace('\n', " ") }),
    };
    let section = |text: &str| {
        let (title, text) = text.split_once("\n\n")?;
        let parts: Vec<Value> = text.trim_end().split("\n\n").map(part).collect();
        Some(json!({ "title": title, "parts": parts }))
    };
    let sections = format!("\n{PROCEDURES}");
    sections.split("\n## ").filter_map(section).collect()
}

fn map(entries: impl Iterator<Item = (String, Value)>) -> Value {
    Value::Object(entries.collect())
}

fn method_entry(name: &str, uncertainty: bool) -> Value {
    let key = match_key(name);
    let (family, colour) = Family::of(name).in_print();
    json!({
        "name": name,
        "family": family,
        // Few methods have a colour each, many share that of their family.
        "colour": if key == "adalora" && !uncertainty { 1 } else { colour },
        // One sentence; null for a name that is not known here.
        "about": MethodName::from_name(name).map(|known| known.entry().summary),
        // `true` if crowded figures always name it: the reference and the subject of a page.
        "always": matches!(key.as_str(), "lora" | "bayeslora"),
    })
}

fn task_entry(results: &Results, key: &str) -> Value {
    json!({
        "key": key,
        "label": task_label(key),
        "metric": standard_title(results.standard_metric(key)),
        // Reason why numbers on these data are not comparable with published ones.
        "caveat": results.data.get(key).and_then(TaskData::caveat),
    })
}

fn metric_entry(metric: Metric) -> Value {
    let better = match metric.fact().better {
        Better::Higher => 1,
        Better::Lower => -1,
        Better::Neither => 0,
    };
    json!({
        "title": metric.at(0).title(),
        "drawn": metric.draws.is_some(),
        "better": better,
        "format": metric.number_format(),
    })
}

fn modules(results: &Results) -> Vec<(ModuleName, &str)> {
    let mut paths: BTreeSet<&String> = BTreeSet::new();
    for run in &results.runs {
        paths.extend(run.rank_events.iter().flat_map(|event| event.ranks.keys()));
        for checkpoint in run.checkpoints.iter() {
            paths.extend(checkpoint.ranks.keys());
            if let Some(statistic) = &checkpoint.statistics {
                paths.extend(statistic.present.keys().chain(statistic.removed.keys()));
            }
        }
    }
    let mut modules: Vec<(ModuleName, &str)> =
        paths.into_iter().map(|path| (ModuleName::parse(path), path.as_str())).collect();
    modules.sort_by_cached_key(|(name, path)| (name.order(), *path));
    modules
}

/// The finite numbers of tables by metric, method and task: mean, deviation, values by seed, the number behind the mean.
fn cells(summary: &Summary<'_>) -> Value {
    let mut cells: BTreeMap<String, BTreeMap<&str, BTreeMap<&str, Value>>> = BTreeMap::new();
    for (metric, method, task, spread) in summary.cells(&summary.on_page()) {
        let Spread { by_seed, mean, std } = spread;
        if mean.is_finite() {
            let seeds: Vec<&f64> = by_seed.values().collect();
            // The numbers kept beside parameters have a column.
            let is_own = metric != Metric::PARAMETERS;
            let behind = is_own.then(|| summary.beside(metric, method, task)).flatten();
            let cell = json!({ "mean": mean, "std": std, "seeds": seeds, "behind": behind });
            cells.entry(metric.name()).or_default().entry(method).or_default().insert(task, cell);
        }
    }
    json!(cells)
}

/// Methods that are significantly the best, or not shown to differ from the best mean, by metric and task.
fn all_marks(summary: &Summary<'_>) -> Value {
    let mut found: BTreeMap<String, BTreeMap<&str, Value>> = BTreeMap::new();
    for metric in summary.on_page() {
        for &task in &summary.tasks {
            if let Some(column) = Column::new(summary, metric, task) {
                let marked = column.marks().into_iter();
                let marked = map(marked.map(|(name, mark)| (name.to_owned(), json!(mark))));
                found.entry(metric.name()).or_default().insert(task, marked);
            }
        }
    }
    json!(found)
}

/// The sum of ranks of every run at every step where it changes in some run of its task and method, and at its end: ranks hold
/// until they change.
fn total_ranks(results: &Results) -> Vec<Value> {
    let mut steps: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
    for run in &results.runs {
        let all = steps.entry((&run.task, &run.method)).or_default();
        all.extend(run.rank_events.iter().map(|event| event.step));
        all.extend((run.status == RunStatus::Finished).then_some(run.steps));
    }
    let points = results.runs.iter().flat_map(|run| {
        let task = run.task.as_str();
        let method = run.method.as_str();
        let seed = run.seed;
        let point = move |step: &u64| {
            let event = run.rank_events.iter().rfind(|event| event.step <= *step)?;
            let value = event.total_rank;
            let point = json!({ "task": task, "method": method, "seed": seed, "step": step, "value": value });
            Some(point)
        };
        steps[&(task, method)].iter().filter_map(point)
    });
    points.collect()
}
