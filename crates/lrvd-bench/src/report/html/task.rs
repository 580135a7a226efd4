//! The section of one task: quality and doubt, training, reliability, and what its ranks did.

use std::fmt::Write as _;

use super::line_chart::{Axes, Series, line_chart};
use super::scale::grouped;
use super::svg::escape;
use super::sweep::sweep;
use super::table::method_name;
use super::tradeoff::tradeoff;
use super::view::{self, Cast};
use super::{method_table, ranks, reliability, selective};
use crate::report::checkpoint::{CheckpointRecord, Reliability};
use crate::report::metric::Metric;
use crate::report::names::task_label;
use crate::report::record::{EvalPoint, Results, RunRecord};
use crate::report::summary::{CheckpointChoice, Summary, table_draws};

/// Figures speak of the last checkpoint, as the headline table does first.
pub(super) const CHOICE: CheckpointChoice = CheckpointChoice::Last;

/// Runs of one task by method.
pub(super) struct Group<'a> {
    pub(super) method: String,
    pub(super) colour: usize,
    pub(super) runs: Vec<&'a RunRecord>,
    pub(super) last: Vec<(u64, &'a CheckpointRecord)>,
}

impl Group<'_> {
    pub(super) fn records(&self) -> Vec<&CheckpointRecord> {
        self.last.iter().map(|(_, record)| *record).collect()
    }
}

/// The whole section; `anchor` is the target of the page's links.
pub(crate) fn section(results: &Results, cast: &Cast, task: &str, anchor: &str) -> String {
    let groups: Vec<Group<'_>> = cast
        .members()
        .iter()
        .map(|member| {
            let runs = view::runs(results, task, &member.name);
            let last = view::checkpoints(&runs, CHOICE);
            Group { method: member.name.clone(), colour: member.colour, runs, last }
        })
        .filter(|group| !group.runs.is_empty())
        .collect();
    let name = escape(&task_label(task));
    let mut html = format!("<section class=\"task\" id=\"{anchor}\"><h2>{name}</h2>");
    html.push_str(&lead(results, task));
    let shown = table_draws(results);
    if cast.is_about_uncertainty() {
        let tasks = [task.to_owned()];
        html.push_str(&method_table::tables(results, cast, &tasks, &task_label(task)));
        html.push_str(&tradeoffs(results, cast, &tasks, &task_label(task)));
        html.push_str(&draws(results, cast, task));
        html.push_str(&selection(results, cast, task, shown));
        html.push_str(&calibration(cast, &groups, shown));
        let training = curves(results, cast, task, &groups);
        html.push_str(&fold("Training curves", &training, &training));
        let parts = ranks::parts(cast, &groups);
        html.push_str(&fold("Ranks: dynamics, patterns, relevance, energy", &parts, &parts));
    } else {
        let training = curves(results, cast, task, &groups);
        if !training.is_empty() {
            let _ = write!(html, "<h3>Training</h3>{training}");
        }
        html.push_str(&ranks::parts(cast, &groups));
        html.push_str(&calibration(cast, &groups, shown));
        html.push_str(&selection(results, cast, task, shown));
    }
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
pub(super) fn figure(title: &str, note: &str, svg: &str) -> String {
    let note = if note.is_empty() { String::new() } else { format!(" <span>{note}</span>") };
    format!("<figure><figcaption><b>{title}</b>{note}</figcaption>{svg}</figure>")
}

/// ECE against accuracy, and NLL against accuracy folded; nothing without classes.
pub(super) fn tradeoffs(results: &Results, cast: &Cast, tasks: &[String], what: &str) -> String {
    let draws = table_draws(results);
    let pair = [Metric::Accuracy(0), Metric::Ece(0), Metric::Nll(0)];
    let metrics: Vec<Metric> = pair
        .iter()
        .flat_map(|metric| std::iter::once(*metric).chain(draws.map(|k| metric.at_draws(k))))
        .collect();
    let summary = Summary::new(results, CHOICE, &metrics);
    let chart = |metric: Metric, name: &str| {
        let label = format!("{what}: {name} against accuracy");
        tradeoff(cast, &summary, tasks, metric, draws, &label)
    };
    let Some(ece) = chart(Metric::Ece(0), "calibration error") else { return String::new() };
    let nll = chart(Metric::Nll(0), "negative log-likelihood").unwrap_or_default();
    let nll =
        if nll.is_empty() { nll } else { format!("<figure class=\"panorama\">{nll}</figure>") };
    let how = draws.map_or_else(String::new, |k| {
        format!(
            " A line leads from the posterior mean (hollow) to the answer of {k} draws (filled); a method without \
draws has its one answer filled."
        )
    });
    format!(
        "<h3>Calibration against accuracy</h3><p class=\"how\">The better corner is at the lower right.{how}</p>{}\
<figure class=\"panorama\">{ece}</figure>{}",
        legend(cast),
        fold("The same with the likelihood", &nll, &nll)
    )
}

/// The families with their colours and marks.
fn legend(cast: &Cast) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (family, members) in cast.families() {
        let shape = members.first().map_or(0, |member| member.shape);
        let mut mark = super::svg::Svg::new(14.0, 14.0, family.title());
        mark.marker((7.0, 7.0), shape, &format!("point f{}", family.colour()), None);
        let _ = write!(html, "<span class=\"key\">{} {}</span>", mark.finish(), family.title());
    }
    html.push_str("</p>");
    html
}

fn draws(results: &Results, cast: &Cast, task: &str) -> String {
    let figures: String =
        sweep(results, cast, task).iter().map(|(title, svg)| figure(title, "", svg)).collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<h3>What posterior draws buy</h3><p class=\"how\">Means over seeds; bold: BayesLoRA and the best calibrated \
of each family. Where the draws of a smaller number are the first of a larger one, one pass answers for all of them \
and its time is shared out.</p><div class=\"grid wide-two\">{figures}</div>"
    )
}

fn selection(results: &Results, cast: &Cast, task: &str, shown: Option<u32>) -> String {
    let label = format!("{}: risk against coverage", task_label(task));
    let Some(svg) = selective::chart(results, cast, task, shown, &label) else {
        return String::new();
    };
    let table = selective::thresholds(results, cast, task, shown).unwrap_or_default();
    let which = if cast.is_about_uncertainty() {
        " Bold and named: LoRA, BayesLoRA and the best of each family, with the area under the curve (0 is perfect)."
    } else {
        " Beside each name: the area under its curve (0 is perfect)."
    };
    format!(
        "<h3>Answering only where sure</h3><p class=\"how\">Questions are answered in the order of confidence, each \
method at its full answer, averaged over seeds.{which}</p><div class=\"grid uneven\"><figure>{svg}</figure>{table}</div>"
    )
}

fn curves(results: &Results, cast: &Cast, task: &str, groups: &[Group<'_>]) -> String {
    let many = cast.is_about_uncertainty();
    let last_accuracy = |name: &str| {
        let runs = &groups.iter().find(|group| group.method == name)?.runs;
        let ends = runs.iter().filter_map(|run| run.history.last()?.accuracy);
        view::mean(&ends.collect::<Vec<_>>())
    };
    let named = cast.highlights(|member| last_accuracy(&member.name).map(|x| -x));
    let gather = |decimals: usize, value: fn(&EvalPoint) -> Option<f64>| -> Vec<Series> {
        let mut all: Vec<Series> = groups
            .iter()
            .filter_map(|g| view::series(&g.runs, g.colour, decimals, value))
            .collect();
        if many {
            for series in &mut all {
                series.seeds.clear();
                series.named = named.contains(&series.name.as_str());
            }
        }
        all
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
    let how = if many {
        "Means over seeds at the posterior mean (no draws). Named: LoRA, BayesLoRA and the most accurate of each family."
    } else {
        "Thin lines are seeds, bold lines their mean at the posterior mean (no draws)."
    };
    format!("<h3>Training</h3><p class=\"how\">{how}</p><div class=\"grid two\">{figures}</div>")
}

/// A folded part; nothing if it has no content.
pub(super) fn fold(title: &str, body: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<details><summary>{title}</summary>{body}</details>")
}

/// Reliability diagrams without draws and with those of the tables. Of many methods the best calibrated of each family
/// come first and the others are folded.
fn calibration(cast: &Cast, groups: &[Group<'_>], shown: Option<u32>) -> String {
    let ece = |method: &str| {
        let records = groups.iter().find(|group| group.method == method)?.records();
        let k = view::full_draws(&records, shown);
        let values = records.iter().filter_map(|r| r.reliability.get(&k)).map(|r| r.ece);
        view::mean(&values.collect::<Vec<_>>())
    };
    let first = cast.highlights(|member| ece(&member.name));
    let in_front =
        |group: &&Group<'_>| !cast.is_about_uncertainty() || first.contains(&group.method.as_str());
    let front: String = groups.iter().filter(in_front).map(|g| diagrams(cast, g, shown)).collect();
    let behind: String =
        groups.iter().filter(|g| !in_front(g)).map(|g| diagrams(cast, g, shown)).collect();
    let mut records = groups.iter().flat_map(Group::records);
    let convention = records.find_map(|r| r.reliability.values().next());
    let Some(convention) = convention.filter(|_| !front.is_empty()) else { return String::new() };
    let grid = |figures: &str| format!("<div class=\"grid four\">{figures}</div>");
    format!(
        "<h3>Calibration</h3><p class=\"how\">Bars: accuracy; tick: mean confidence; hatched: the gap between them; \
below: examples per bin. Bins pooled over seeds, ECE is the mean of the seeds' values, binning <code>{}</code>.</p>\
{}{}",
        escape(&convention.convention),
        grid(&front),
        fold("The other methods", &grid(&behind), &behind)
    )
}

/// The diagrams of one method.
fn diagrams(cast: &Cast, group: &Group<'_>, shown: Option<u32>) -> String {
    let records = group.records();
    let mut html = String::new();
    for k in std::iter::once(0).chain(shown) {
        let seeds: Vec<&Reliability> =
            records.iter().filter_map(|r| r.reliability.get(&k)).collect();
        let ece = view::mean(&seeds.iter().map(|r| r.ece).collect::<Vec<_>>()).unwrap_or(f64::NAN);
        let has_draws = records.iter().any(|r| r.reliability.keys().any(|k| *k > 0));
        let note = match (k, has_draws) {
            (0, false) => String::new(),
            (0, true) => "mean".to_owned(),
            (k, _) => format!("{k} draws"),
        };
        let label = format!("{} {note}: reliability diagram", group.method);
        let drawn = reliability::diagram(&reliability::pool(&seeds), ece, group.colour, &label);
        if let Some(svg) = drawn {
            html.push_str(&figure(&method_name(cast, &group.method), &note, &svg));
        }
    }
    html
}
