//! The tables of the page: headline, calibration, and published numbers beside measured ones.

use std::fmt::Write as _;

use super::svg::escape;
use super::view;
use crate::report::compare::Comparison;
use crate::report::metric::{Better, Metric};
use crate::report::names::task_label;
use crate::report::record::Results;
use crate::report::summary::{CheckpointChoice, Summary, headline_metrics};

/// Means closer than this are called equal when the best is set in bold: half a unit of the last printed place.
fn tie(metric: Metric) -> f64 {
    0.5 * 10_f64.powi(-(metric.decimals().0 as i32))
}

/// The headline table at one kind of checkpoint.
pub(crate) fn headline(results: &Results, choice: CheckpointChoice) -> String {
    summary_table(results, &Summary::new(results, choice, &headline_metrics(results)))
}

/// Calibration at the posterior mean and at every number of draws that some run has; none for regression only.
pub(crate) fn calibration(results: &Results, choice: CheckpointChoice) -> Option<String> {
    let mut draws: Vec<u32> = results
        .runs
        .iter()
        .filter_map(|run| choice.of(run))
        .flat_map(|checkpoint| checkpoint.metrics.keys().copied())
        .collect();
    draws.sort_unstable();
    draws.dedup();
    let mut metrics: Vec<Metric> =
        draws.iter().filter(|k| **k > 0).map(|k| Metric::Accuracy(*k)).collect();
    for of in [Metric::Nll as fn(u32) -> Metric, Metric::Ece, Metric::Brier] {
        metrics.extend(draws.iter().map(|k| of(*k)));
    }
    let mut summary = Summary::new(results, choice, &metrics);
    let tasks: Vec<String> = summary
        .tasks
        .iter()
        .filter(|task| summary.cells().any(|(_, _, t, _)| t == task.as_str()))
        .cloned()
        .collect();
    if tasks.is_empty() {
        return None;
    }
    summary.tasks = tasks;
    Some(summary_table(results, &summary))
}

fn summary_table(results: &Results, summary: &Summary) -> String {
    let methods = view::methods(results);
    let most = summary.cells().map(|cell| cell.3.n()).max().unwrap_or(0);
    let mut html = String::from("<div class=\"scroll\"><table class=\"summary\"><thead><tr>");
    html.push_str("<th scope=\"col\">Metric</th><th scope=\"col\">Method</th>");
    for task in &summary.tasks {
        let data = results.data.get(task);
        let star = if data.is_some_and(|d| !d.is_official()) { "<sup>*</sup>" } else { "" };
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{}{star}", escape(&task_label(task)));
        if summary.metrics.contains(&Metric::Standard(0)) {
            let name = data.map_or("accuracy", |d| d.standard_metric.as_str());
            let _ = write!(html, "<small>{}</small>", escape(name));
        }
        html.push_str("</th>");
    }
    html.push_str("</tr></thead>");
    for metric in &summary.metrics {
        let present: Vec<&String> = summary
            .methods
            .iter()
            .filter(|m| summary.tasks.iter().any(|t| summary.cell(*metric, m, t).is_some()))
            .collect();
        if present.is_empty() {
            continue;
        }
        html.push_str("<tbody>");
        for (i, method) in present.iter().enumerate() {
            html.push_str("<tr>");
            if i == 0 {
                let (n, title) = (present.len(), escape(&metric.title()));
                let _ = write!(html, "<th scope=\"rowgroup\" rowspan=\"{n}\">{title}</th>");
            }
            let _ = write!(html, "<th scope=\"row\">{}</th>", method_name(&methods, method));
            for task in &summary.tasks {
                html.push_str(&cell(summary, *metric, method, task, most));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody>");
    }
    html.push_str("</table></div>");
    html
}

fn cell(summary: &Summary, metric: Metric, method: &str, task: &str, most: usize) -> String {
    let Some(spread) = summary.cell(metric, method, task) else {
        return "<td class=\"n absent\">–</td>".to_owned();
    };
    let best = is_best(summary, metric, spread.mean, task);
    let class = if best { "n best" } else { "n" };
    let median = metric.format(spread.median);
    let values: Vec<String> = spread.values.iter().map(|x| metric.format(*x)).collect();
    let tip = format!("median {median}; seeds: {}", values.join(", "));
    let std = spread.std.filter(|s| s.is_finite() && spread.mean.is_finite());
    let std = std.map(|s| format!(" <i>±{}</i>", metric.format_std(s))).unwrap_or_default();
    let few =
        if spread.n() < most { format!("<small>n={}</small>", spread.n()) } else { String::new() };
    format!(
        "<td class=\"{class}\" title=\"{}\"><b>{}</b>{std}{few}</td>",
        escape(&tip),
        metric.format(spread.mean)
    )
}

/// Whether no method's mean is better, as far as the printed places tell. Needs a rival.
fn is_best(summary: &Summary, metric: Metric, mean: f64, task: &str) -> bool {
    let means: Vec<f64> = summary
        .methods
        .iter()
        .filter_map(|m| summary.cell(metric, m, task))
        .map(|spread| spread.mean)
        .collect();
    let rival_better = |other: f64| match metric.better() {
        Better::Higher => other > mean + tie(metric),
        Better::Lower => other < mean - tie(metric),
        Better::Neither => true,
    };
    mean.is_finite() && means.len() > 1 && !means.iter().any(|m| rival_better(*m))
}

/// A method's name with its colour mark.
pub(crate) fn method_name(methods: &[String], method: &str) -> String {
    let colour = view::colour(methods, method);
    format!("<span class=\"swatch b{colour}\"></span>{}", escape(method))
}

/// Published numbers beside measured ones.
pub(crate) fn comparison(results: &Results, comparison: &Comparison) -> String {
    let methods = view::methods(results);
    let mut html = format!(
        "<p>Published numbers from <code>{}</code> beside the {} checkpoint. The last column is the difference in \
units of the combined standard error of both means.</p>",
        escape(&comparison.source),
        comparison.choice.name()
    );
    if comparison.rows.is_empty() {
        html.push_str("<p class=\"empty\">No published number has a measured partner.</p>");
    } else {
        html.push_str(
            "<div class=\"scroll\"><table class=\"compare\"><thead><tr><th scope=\"col\">Metric</th>\
<th scope=\"col\">Method</th><th scope=\"col\">Task</th><th scope=\"col\" class=\"n\">Measured</th>\
<th scope=\"col\" class=\"n\">Published</th><th scope=\"col\" class=\"n\">Difference</th>\
<th scope=\"col\" class=\"n\">Std. errors</th></tr></thead><tbody>",
        );
        let mut before = None;
        for row in &comparison.rows {
            let class =
                if before.is_some_and(|m| m != row.metric) { " class=\"rule\"" } else { "" };
            let title = if before == Some(row.metric) { String::new() } else { row.metric.title() };
            before = Some(row.metric);
            let star = row.caveat.as_ref().map_or_else(String::new, |caveat| {
                format!("<sup title=\"{}\">*</sup>", escape(caveat))
            });
            let _ = write!(
                html,
                "<tr{class}><th scope=\"row\">{}</th><td>{}</td><td>{}{star}</td><td class=\"n\">{}</td>\
<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                escape(&title),
                method_name(&methods, &row.method),
                escape(&task_label(&row.task)),
                row.metric.format_spread(&row.measured),
                row.published_text(),
                row.difference_text(),
                row.standard_errors_text()
            );
        }
        html.push_str("</tbody></table></div>");
    }
    html.push_str("<ul class=\"caveats\">");
    for caveat in &comparison.caveats {
        let _ = write!(html, "<li>{}</li>", escape(caveat));
    }
    html.push_str("</ul>");
    html
}
