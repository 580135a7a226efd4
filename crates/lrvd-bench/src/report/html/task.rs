//! The section of one task: training, rank dynamics, final ranks, calibration, relevance, energy.

use std::fmt::Write as _;

use super::heatmap::{Rows, Tips, heatmap, key};
use super::line_chart::{Axes, Series, line_chart};
use super::rank_grid::{Size, rank_grid};
use super::scale::grouped;
use super::svg::escape;
use super::table::method_name;
use super::{energy, reliability, statistic, view};
use crate::report::checkpoint::{CheckpointRecord, Reliability};
use crate::report::names::task_label;
use crate::report::record::{EvalPoint, Results, RunRecord};
use crate::report::summary::CheckpointChoice;

/// Figures speak of the last checkpoint, as the headline table does first.
const CHOICE: CheckpointChoice = CheckpointChoice::Last;

/// Runs of one task by method.
struct Group<'a> {
    method: String,
    colour: usize,
    runs: Vec<&'a RunRecord>,
    last: Vec<(u64, &'a CheckpointRecord)>,
}

impl Group<'_> {
    fn records(&self) -> Vec<&CheckpointRecord> {
        self.last.iter().map(|(_, record)| *record).collect()
    }
}

/// The whole section; `anchor` is the target of the page's links.
pub(crate) fn section(results: &Results, task: &str, anchor: &str) -> String {
    let methods = view::methods(results);
    let groups: Vec<Group<'_>> = methods
        .iter()
        .map(|method| {
            let runs = view::runs(results, task, method);
            let last = view::checkpoints(&runs, CHOICE);
            Group { method: method.clone(), colour: view::colour(&methods, method), runs, last }
        })
        .filter(|group| !group.runs.is_empty())
        .collect();
    let name = escape(&task_label(task));
    let mut html = format!("<section class=\"task\" id=\"{anchor}\"><h2>{name}</h2>");
    html.push_str(&lead(results, task));
    html.push_str(&curves(results, task, &groups));
    let most = groups
        .iter()
        .flat_map(|g| &g.runs)
        .flat_map(|run| {
            let events = run.rank_events.iter().flat_map(|e| e.ranks.values());
            let ends = CHOICE.of(run).into_iter().flat_map(|c| c.ranks.values());
            events.chain(ends).copied().chain([run.rank_budget.initial_rank])
        })
        .max()
        .map_or(0.0, f64::from);
    html.push_str(&dynamics(&methods, &groups, most));
    html.push_str(&patterns(&methods, &groups, most));
    html.push_str(&calibration(&methods, &groups));
    html.push_str(&relevance(&methods, &groups));
    html.push_str(&captured(&methods, &groups));
    html.push_str("</section>");
    html
}

fn lead(results: &Results, task: &str) -> String {
    let Some(data) = results.data.get(task) else { return String::new() };
    let mut html = format!(
        "<p class=\"lead\">{} training and {} validation examples; standard metric: {}.</p>",
        grouped(data.train.rows),
        grouped(data.validation.rows),
        escape(&data.standard_metric)
    );
    if let Some(caveat) = data.caveat() {
        let _ = write!(
            html,
            "<p class=\"warn\"><b>Not comparable with published numbers:</b> {}.</p>",
            escape(&caveat)
        );
    }
    html
}

/// A figure under its title; `note` may be empty.
fn figure(title: &str, note: &str, svg: &str) -> String {
    let note = if note.is_empty() { String::new() } else { format!(" <span>{note}</span>") };
    format!("<figure><figcaption><b>{title}</b>{note}</figcaption>{svg}</figure>")
}

fn curves(results: &Results, task: &str, groups: &[Group<'_>]) -> String {
    let gather = |decimals: usize, value: fn(&EvalPoint) -> Option<f64>| -> Vec<Series> {
        groups.iter().filter_map(|g| view::series(&g.runs, g.colour, decimals, value)).collect()
    };
    let metric = results.data.get(task).map_or("accuracy", |d| d.standard_metric.as_str());
    let label = task_label(task);
    let chart = |y: &str, stairs: bool, include: &[f64], series: &[Series]| {
        let text = format!("{label}: {y} over steps");
        line_chart(&Axes { label: &text, x: "step", y, stairs, include }, series)
    };
    let mut figures = String::new();
    let mut add = |title: &str, svg: Option<String>| {
        figures.push_str(&svg.map(|svg| figure(title, "", &svg)).unwrap_or_default());
    };
    add("Validation accuracy", chart("accuracy", false, &[], &gather(3, |p| p.accuracy)));
    if metric != "accuracy" {
        let title = format!("Validation {}", escape(metric));
        add(&title, chart(metric, false, &[], &gather(3, |p| p.standard)));
    }
    let ranks = gather(1, |p| Some(p.total_rank as f64));
    add("Total rank", chart("sum of ranks", true, &[0.0], &ranks));
    add("Validation NLL", chart("NLL (nats per example)", false, &[], &gather(3, |p| p.nll_val)));
    add("Training NLL", chart("NLL (nats per example)", false, &[], &gather(3, |p| p.nll)));
    add(
        "KL of the posterior from its prior",
        chart("KL (nats)", false, &[0.0], &gather(1, |p| p.kl)),
    );
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Training</h3><p class=\"how\">Thin lines are seeds, bold lines their mean at the posterior mean (no \
draws).</p><div class=\"grid two\">{figures}</div>"
    )
}

fn dynamics(methods: &[String], groups: &[Group<'_>], most: f64) -> String {
    let moving: Vec<&Group<'_>> =
        groups.iter().filter(|g| g.runs.iter().any(|run| run.rank_events.len() > 1)).collect();
    let mut html = String::new();
    for rows in [Rows::Layer, Rows::Kind, Rows::Module] {
        let title = match rows {
            Rows::Layer => "by layer",
            Rows::Kind => "by module type",
            Rows::Module => "by module",
        };
        for group in &moving {
            let label = format!("{}: rank over steps {title}", group.method);
            if let Some(svg) = heatmap(&group.runs, rows, most, Tips::Shown, &label) {
                html.push_str(&figure(&method_name(methods, &group.method), title, &svg));
            }
        }
    }
    let mut seeds = String::new();
    for group in moving.iter().filter(|g| g.runs.len() > 1) {
        for run in &group.runs {
            let label = format!("{}, seed {}: rank over steps by module", group.method, run.seed);
            if let Some(svg) = heatmap(&[*run], Rows::Module, most, Tips::Omitted, &label) {
                let note = format!("seed {}", run.seed);
                seeds.push_str(&figure(&method_name(methods, &group.method), &note, &svg));
            }
        }
    }
    if html.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Rank dynamics</h3><p class=\"how\">Mean over seeds; hatched cells have rank 0: the adapter is gone.</p>\
<div class=\"colour-key\">{}</div><div class=\"grid two\">{html}</div>{}",
        key(most),
        fold("Every seed by module", &format!("<div class=\"grid two\">{seeds}</div>"), &seeds)
    )
}

/// A folded part; nothing if it has no content.
fn fold(title: &str, body: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<details><summary>{title}</summary>{body}</details>")
}

fn patterns(methods: &[String], groups: &[Group<'_>], most: f64) -> String {
    let mut means = String::new();
    let mut seeds = String::new();
    for group in groups {
        let records = group.records();
        let label = format!("{}: final rank of every module", group.method);
        let name = method_name(methods, &group.method);
        let totals: Vec<f64> = records.iter().map(|r| r.total_rank as f64).collect();
        let Some(total) = view::mean(&totals) else { continue };
        if let Some(svg) = rank_grid(&records, most, Size::Large, &label) {
            let note = format!("mean over {} seeds, total {total:.1}", records.len());
            means.push_str(&figure(&name, &note, &svg));
        }
        for (seed, record) in group.last.iter().filter(|_| group.last.len() > 1) {
            let label = format!("{}, seed {seed}: final rank of every module", group.method);
            if let Some(svg) = rank_grid(&[*record], most, Size::Small, &label) {
                let note = format!("seed {seed}, total {}", record.total_rank);
                seeds.push_str(&figure(&name, &note, &svg));
            }
        }
    }
    if means.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Final rank patterns</h3><p class=\"how\">Last checkpoint: layers down, module types across.</p>\
<div class=\"grid three\">{means}</div>{}",
        fold("Every seed", &format!("<div class=\"grid three\">{seeds}</div>"), &seeds)
    )
}

fn calibration(methods: &[String], groups: &[Group<'_>]) -> String {
    let mut html = String::new();
    let mut convention = None;
    for group in groups {
        let records = group.records();
        let mut draws: Vec<u32> =
            records.iter().flat_map(|r| r.reliability.keys().copied()).collect();
        draws.sort_unstable();
        draws.dedup();
        for k in draws {
            let seeds: Vec<&Reliability> =
                records.iter().filter_map(|r| r.reliability.get(&k)).collect();
            let ece =
                view::mean(&seeds.iter().map(|r| r.ece).collect::<Vec<_>>()).unwrap_or(f64::NAN);
            convention = convention.or_else(|| seeds.first().map(|r| r.convention.clone()));
            let note = if k == 0 { "posterior mean".to_owned() } else { format!("{k} draws") };
            let label = format!("{}, {note}: reliability diagram", group.method);
            if let Some(svg) =
                reliability::diagram(&reliability::pool(&seeds), ece, group.colour, &label)
            {
                html.push_str(&figure(&method_name(methods, &group.method), &note, &svg));
            }
        }
    }
    let Some(convention) = convention else { return String::new() };
    format!(
        "<h3>Calibration</h3><p class=\"how\">Bars: accuracy; tick: mean confidence; hatched: the gap between them; \
below: examples per bin. Bins pooled over seeds, ECE is the mean of the seeds' values, binning <code>{}</code>.</p>\
<div class=\"grid four\">{html}</div>",
        escape(&convention)
    )
}

fn relevance(methods: &[String], groups: &[Group<'_>]) -> String {
    let mut html = String::new();
    for group in groups {
        let found = group.last.iter().filter_map(|(seed, c)| Some((*seed, c.statistics.as_ref()?)));
        let mut more = String::new();
        for (i, (seed, record)) in found.enumerate() {
            let label =
                format!("{}, seed {seed}: {} of every component", group.method, record.name);
            let Some(svg) = statistic::trellis(record, group.colour, &label) else { continue };
            let note = record.threshold.map_or_else(
                || {
                    format!(
                        "{}, seed {seed}, no threshold: ranked by a budget",
                        escape(&record.name)
                    )
                },
                |t| format!("{}, seed {seed}, threshold {t}", escape(&record.name)),
            );
            let drawn = figure(&method_name(methods, &group.method), &note, &svg);
            if i == 0 { html.push_str(&drawn) } else { more.push_str(&drawn) }
        }
        let title = format!("{}: the other seeds", escape(&group.method));
        html.push_str(&fold(&title, &more, &more));
    }
    if html.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Relevance of every component</h3><p class=\"how\">Filled: present at the last checkpoint; hollow: its \
value when it was removed. Band: the largest gap between neighbours; dashed: the threshold.</p>{html}"
    )
}

fn captured(methods: &[String], groups: &[Group<'_>]) -> String {
    let mut html = String::new();
    for group in groups {
        let records = group.records();
        let label = format!("{}: energy captured by the first components", group.method);
        let Some((n, auc)) = energy::mean_auc(&records) else { continue };
        if let Some(svg) = energy::chart(&records, group.colour, &label) {
            let gap =
                auc.normalised_gap.map_or_else(String::new, |g| format!(", normalised gap {g:.3}"));
            let note = format!("{n} modules over all seeds{gap}");
            html.push_str(&figure(&method_name(methods, &group.method), &note, &svg));
        }
    }
    if html.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Energy captured</h3><p class=\"how\">Share of the mean update carried by its first components: in the \
learned order, by factor norms (a control that knows no posterior), in random order, and the bound by singular values. \
Thin lines are modules.</p><div class=\"grid two\">{html}</div>"
    )
}
