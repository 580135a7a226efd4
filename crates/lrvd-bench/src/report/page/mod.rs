//! One `report.html` that opens without a network: a static template around the embedded record.
//!
//! - `template.html`, `style.css`: the frame and its look.
//! - `data.js`, `charts.js`, `page.js`: what the page reads, draws and says, from two embedded JSON documents: the
//!   record itself, as `results.json` holds it, and what `data` computes beside it.
//! - `vendor/`: the plot library, written into the page as it was published, with its licences.
//!
//! All text reaches the page as JSON and is placed by the script as text, never as markup. The same record gives the
//! same bytes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use super::compare::Comparison;
use super::rows::RowScores;
use super::summary::{CheckpointChoice, Summary, headline_metrics};
use super::table::render_text;
use crate::error::Result;
use crate::io::write_text;
use crate::record::{Results, RunStatus, TaskData};
use crate::report::compare::ComparisonRow;
use crate::report::metric::{Better, Metric};
use crate::report::pairs::Family;
use crate::report::rows::{ModuleName, match_key, task_label};
use crate::report::significance::{Mark, Standing};
use crate::report::summary::{csv_metrics, is_about_uncertainty, table_draws};
use crate::report::verdict::{Said, standard_title};
use crate::settings::MethodName;

const TEMPLATE: &str = include_str!("template.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 3] =
    [include_str!("data.js"), include_str!("charts.js"), include_str!("page.js")];
const PLOT: [&str; 2] = [include_str!("vendor/d3.min.js"), include_str!("vendor/plot.umd.min.js")];
const LICENCES: [&str; 2] =
    [include_str!("vendor/LICENSE-d3"), include_str!("vendor/LICENSE-plot")];

/// Writes [`render_html`] to a file, atomically.
pub(crate) fn write_html(
    path: &Path,
    results: &Results,
    rows: &RowScores,
    comparison: Option<&Comparison>,
) -> Result<()> {
    let page = render_html(results, rows, comparison)
        .map_err(|source| anyhow!("`{}`: {source}", path.display()))?;
    write_text(path, &page)
}

/// The whole report as one HTML page: no network, no clock, the same bytes for the same record.
pub(crate) fn render_html(
    results: &Results,
    rows: &RowScores,
    comparison: Option<&Comparison>,
) -> Result<String, serde_json::Error> {
    let title = format!("{}, {} profile", results.model.name, results.profile);
    let table =
        Summary::new(results, CheckpointChoice::reported(results), &headline_metrics(results));
    Ok(fill(
        TEMPLATE,
        &[
            ("title", &escape(&title)),
            ("style", STYLE),
            ("table", &escape(&render_text(&table))),
            ("results", &json(results)?),
            ("page", &json(&PageData::new(results, rows, comparison))?),
            ("licences", &LICENCES.join("\n")),
            ("plot", &PLOT.join("\n")),
            ("scripts", &SCRIPTS.join("\n")),
        ],
    ))
}

/// Puts parts in the places of a template that name them, `{{name}}`. Parts are not searched for places.
fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        let part = parts.iter().find(|(known, _)| *known == name);
        page.push_str(part.map_or("", |(_, text)| text));
        page.push_str(rest);
    }
    page
}

/// A value as JSON for a script element: no `<` can end it or open a comment.
fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(value)?.replace('<', "\\u003c"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[derive(Debug, Serialize)]
struct PageData<'a> {
    /// Whether the page asks about uncertainty and colours families; else it asks about ranks and colours methods.
    uncertainty: bool,
    /// The checkpoint that the settings say to report, `last` or `best`.
    reported: &'static str,
    /// Posterior draws that tables and figures show beside the mean.
    draws: Option<u32>,
    /// What was run and what it showed, in the words of the terminal.
    said: Said,
    methods: Vec<MethodEntry>,
    families: Vec<&'static str>,
    tasks: Vec<TaskEntry>,
    sets: BTreeMap<&'a str, String>,
    /// Modules in the order of the network.
    modules: Vec<ModuleEntry>,
    kinds: Vec<String>,
    /// How values are printed and compared, by name without draws.
    metrics: BTreeMap<String, MetricEntry>,
    /// Values over seeds by checkpoint, metric (`nll_k10`), method and task.
    cells: BTreeMap<&'static str, Cells>,
    /// Methods that are significantly the best or not significantly different from it, by checkpoint, metric and task.
    marks: BTreeMap<&'static str, Marks>,
    /// Ranks that average ranks are a part of, by task and method.
    full_ranks: BTreeMap<String, BTreeMap<String, u32>>,
    /// Sums of ranks over steps, of the events that the heat map is drawn of.
    total_ranks: Vec<RankPoint<'a>>,
    /// Published numbers beside measured ones.
    comparison: Option<ComparisonEntry>,
}

type Cells = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<f64>>>>;
type Marks = BTreeMap<String, BTreeMap<String, BTreeMap<String, Mark>>>;

#[derive(Debug, Serialize)]
struct MethodEntry {
    name: String,
    family: &'static str,
    colour: usize,
    /// One sentence about the method; none for a name that is not known here.
    about: Option<&'static str>,
    /// Whether crowded figures always bring it out: the reference and the subject of a page.
    always: bool,
}

#[derive(Debug, Serialize)]
struct TaskEntry {
    key: String,
    label: String,
    metric: String,
    /// Why numbers on these data are not comparable with published ones.
    caveat: Option<String>,
}

#[derive(Debug, Serialize)]
struct ModuleEntry {
    path: String,
    layer: Option<u32>,
    kind: String,
    label: String,
}

#[derive(Debug, Serialize)]
struct MetricEntry {
    title: String,
    digits: usize,
    count: bool,
    /// Whether the value depends on the number of posterior draws.
    drawn: bool,
    /// 1 where larger is better, -1 where smaller is, 0 for a fact.
    better: i8,
}

#[derive(Debug, Serialize)]
struct RankPoint<'a> {
    task: &'a str,
    method: &'a str,
    seed: u64,
    step: u64,
    value: u64,
}

#[derive(Debug, Serialize)]
struct ComparisonEntry {
    source: String,
    choice: &'static str,
    rows: Vec<PublishedCell>,
    caveats: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PublishedCell {
    metric: String,
    method: String,
    task: String,
    draws: u32,
    measured: Option<String>,
    published: String,
    difference: String,
    standard_errors: Option<String>,
    caveat: Option<String>,
}

impl<'a> PageData<'a> {
    pub(super) fn new(
        results: &'a Results,
        rows: &RowScores,
        comparison: Option<&Comparison>,
    ) -> Self {
        let mut metrics = csv_metrics(results);
        metrics.push(Metric::MemoryMib);
        let summaries =
            CheckpointChoice::BOTH.map(|choice| Summary::new(results, choice, &metrics));
        let uncertainty = is_about_uncertainty(results);
        let reported = CheckpointChoice::reported(results);
        let names = if reported == summaries[0].choice { &summaries[0] } else { &summaries[1] };
        let families: BTreeSet<Family> =
            names.methods.iter().map(|name| Family::of(name)).collect();
        let mut modules = modules(results);
        modules.sort_by(|a, b| a.0.order(&b.0).then_with(|| a.1.cmp(b.1)));
        let mut kinds: Vec<&ModuleName> = modules.iter().map(|(name, _)| name).collect();
        kinds.sort_by(|a, b| a.kind_order(b));
        kinds.dedup_by(|a, b| a.kind == b.kind);
        Self {
            uncertainty,
            reported: reported.name(),
            draws: table_draws(results),
            said: Said::new(results, names, rows),
            methods: names.methods.iter().map(|name| method_entry(name, uncertainty)).collect(),
            families: families.into_iter().map(Family::title).collect(),
            tasks: names.tasks.iter().map(|key| task_entry(results, key)).collect(),
            sets: other_sets(results),
            kinds: kinds.into_iter().map(|name| name.kind.clone()).collect(),
            modules: modules.iter().map(|(name, path)| module_entry(name, path)).collect(),
            metrics: metrics.iter().map(|m| (m.base().into_owned(), metric_entry(*m))).collect(),
            cells: summaries.iter().map(|s| (s.choice.name(), cells(s))).collect(),
            marks: summaries.iter().map(|s| (s.choice.name(), marks(results, rows, s))).collect(),
            full_ranks: full_ranks(names),
            total_ranks: total_ranks(results),
            comparison: comparison.map(comparison_entry),
        }
    }
}

fn method_entry(name: &str, uncertainty: bool) -> MethodEntry {
    let key = match_key(name);
    let family = Family::of(name);
    // Few methods have a colour each, many share that of their family.
    let colour = if key == "adalora" && !uncertainty { 1 } else { family.colour() };
    MethodEntry {
        name: name.to_owned(),
        family: family.title(),
        colour,
        about: MethodName::from_name(name).map(|known| known.entry().summary),
        always: ["lora", "bayeslora"].contains(&key.as_str()),
    }
}

fn task_entry(results: &Results, key: &str) -> TaskEntry {
    let data = results.data.get(key);
    TaskEntry {
        key: key.to_owned(),
        label: task_label(key),
        metric: standard_title(data.map_or("accuracy", |data| &data.standard_metric)).to_owned(),
        caveat: data.and_then(TaskData::caveat),
    }
}

fn other_sets(results: &Results) -> BTreeMap<&str, String> {
    let sets = results.runs.iter().flat_map(|run| run.ood.keys());
    sets.map(|set| (set.as_str(), task_label(set))).collect()
}

fn modules(results: &Results) -> Vec<(ModuleName, &str)> {
    let mut paths: BTreeSet<&String> = BTreeSet::new();
    for run in &results.runs {
        paths.extend(run.rank_events.iter().flat_map(|event| event.ranks.keys()));
        for checkpoint in [&run.checkpoints.last, &run.checkpoints.best].into_iter().flatten() {
            paths.extend(checkpoint.ranks.keys());
            if let Some(statistic) = &checkpoint.statistics {
                paths.extend(statistic.present.keys().chain(statistic.removed.keys()));
            }
        }
    }
    paths.into_iter().map(|path| (ModuleName::parse(path), path.as_str())).collect()
}

fn module_entry(name: &ModuleName, path: &str) -> ModuleEntry {
    let (layer, kind) = (name.layer, name.kind.clone());
    ModuleEntry { path: path.to_owned(), layer, kind, label: name.label() }
}

fn metric_entry(metric: Metric) -> MetricEntry {
    MetricEntry {
        title: metric.at_draws(0).title(),
        digits: metric.decimals().0,
        count: metric.is_count(),
        drawn: metric.draws().is_some(),
        better: match metric.better() {
            Better::Higher => 1,
            Better::Lower => -1,
            Better::Neither => 0,
        },
    }
}

fn cells(summary: &Summary) -> Cells {
    let mut cells = Cells::new();
    for (metric, method, task, spread) in summary.cells() {
        let methods = cells.entry(metric.name()).or_default();
        let tasks = methods.entry(method.to_owned()).or_default();
        tasks.insert(task.to_owned(), spread.values.clone());
    }
    cells
}

fn marks(results: &Results, rows: &RowScores, summary: &Summary) -> Marks {
    let mut marks = Marks::new();
    for metric in &summary.metrics {
        for task in &summary.tasks {
            if let Some(standing) = Standing::new(results, summary, rows, *metric, task) {
                let found =
                    standing.marks().into_iter().map(|(name, mark)| (name.to_owned(), mark));
                marks.entry(metric.name()).or_default().insert(task.clone(), found.collect());
            }
        }
    }
    marks
}

fn full_ranks(summary: &Summary) -> BTreeMap<String, BTreeMap<String, u32>> {
    let of = |task: &String| {
        let rank = |m: &String| summary.full_rank(m, task).map(|rank| (m.clone(), rank));
        (task.clone(), summary.methods.iter().filter_map(rank).collect())
    };
    summary.tasks.iter().map(of).collect()
}

/// The sum of ranks of every run at every step where it changes in some run of its task and method, and at its end: ranks hold
/// until they change.
fn total_ranks(results: &Results) -> Vec<RankPoint<'_>> {
    let mut steps: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
    for run in &results.runs {
        let all = steps.entry((&run.task, &run.method)).or_default();
        all.extend(run.rank_events.iter().map(|event| event.step));
        all.extend((run.status == RunStatus::Finished).then_some(run.steps));
    }
    let points = results.runs.iter().flat_map(|run| {
        let (task, method, seed) = (run.task.as_str(), run.method.as_str(), run.seed);
        let point = move |step: &u64| {
            let event = run.rank_events.iter().rfind(|event| event.step <= *step)?;
            Some(RankPoint { task, method, seed, step: *step, value: event.total_rank })
        };
        steps[&(task, method)].iter().filter_map(point)
    });
    points.collect()
}

fn comparison_entry(comparison: &Comparison) -> ComparisonEntry {
    ComparisonEntry {
        source: comparison.source.clone(),
        choice: comparison.choice.name(),
        rows: comparison.rows.iter().map(published_cell).collect(),
        caveats: comparison.caveats.clone(),
    }
}

fn published_cell(row: &ComparisonRow) -> PublishedCell {
    PublishedCell {
        metric: row.metric.at_draws(0).title(),
        method: row.method.clone(),
        task: task_label(&row.task),
        draws: row.metric.draws().unwrap_or(0),
        measured: row.measured.is_some().then(|| row.measured_text()),
        published: row.published_text(),
        difference: row.difference_text(),
        standard_errors: row.standard_errors.map(|_| row.standard_errors_text()),
        caveat: row.caveat.clone(),
    }
}
