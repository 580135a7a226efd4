//! The first glance: one card per method, averaged over tasks.

use std::fmt::Write as _;

use super::scatter::scatter;
use super::svg::escape;
use super::table::method_name;
use super::view::{self, Cast};
use crate::report::metric::Metric;
use crate::report::names::task_label;
use crate::report::record::Results;
use crate::report::summary::{CheckpointChoice, Summary};

/// One card per method: mean over tasks of the standard metric, of the average rank and of the training time.
///
/// A method enters with the tasks it finished, which is said on its card where they are not all.
pub(crate) fn cards(results: &Results, cast: &Cast, choice: CheckpointChoice) -> String {
    let metrics = [Metric::Standard(0), Metric::Rank, Metric::RankPercent, Metric::TimeMin];
    let summary = Summary::new(results, choice, &metrics);
    let mut html = String::from("<div class=\"cards\">");
    for method in cast.members().iter().map(|member| &member.name) {
        let over_tasks = |metric: Metric| {
            let means: Vec<f64> = summary
                .tasks
                .iter()
                .filter_map(|task| summary.cell(metric, method, task))
                .map(|spread| spread.mean)
                .collect();
            let text = view::mean(&means).map_or_else(|| "–".to_owned(), |x| metric.format(x));
            (means.len(), text)
        };
        let (n, score) = over_tasks(Metric::Standard(0));
        let _ = write!(
            html,
            "<div class=\"card k{}\"><h3>{}</h3><p class=\"big\">{score}</p>\
<p class=\"what\">mean of the standard metrics, {n} of {} tasks</p><dl><dt>average rank</dt><dd>{}</dd>\
<dt>of initial rank</dt><dd>{}&#8239;%</dd><dt>training</dt><dd>{} min</dd></dl></div>",
            cast.colour(method),
            method_name(cast, method),
            summary.tasks.len(),
            over_tasks(Metric::Rank).1,
            over_tasks(Metric::RankPercent).1,
            over_tasks(Metric::TimeMin).1,
        );
    }
    html.push_str("</div>");
    html
}

/// Small diagrams of quality against rank, one per task, under a legend of the methods.
pub(crate) fn overview(results: &Results, cast: &Cast, choice: CheckpointChoice) -> String {
    let mut html = String::from("<div class=\"grid three\">");
    for task in view::tasks(results) {
        let metric = results.data.get(&task).map_or("accuracy", |d| d.standard_metric.as_str());
        if let Some(svg) = scatter(results, cast, &task, choice, metric) {
            let name = escape(&task_label(&task));
            let _ = write!(html, "<figure><figcaption><b>{name}</b></figcaption>{svg}</figure>");
        }
    }
    html.push_str("</div>");
    html
}

/// A line that names every method beside its colour.
pub(crate) fn legend(cast: &Cast) -> String {
    let names: Vec<String> = cast
        .members()
        .iter()
        .map(|m| format!("<span class=\"key\">{}</span>", method_name(cast, &m.name)))
        .collect();
    format!("<p class=\"legend\">{}</p>", names.join(""))
}
