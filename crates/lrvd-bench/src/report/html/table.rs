//! What all tables of the page share, and the tables of a few methods: headline and calibration.

use std::fmt::Write as _;

use super::method_table::kept_text;
use super::svg::escape;
use super::view::{Cast, Member};
use crate::report::metric::{Better, Metric};
use crate::report::names::task_label;
use crate::report::record::Results;
use crate::report::summary::{CheckpointChoice, Summary, headline_metrics};
use crate::settings::MethodName;

/// Means closer than this are called equal when the best is set in bold: half a unit of the last printed place.
pub(crate) fn tie(metric: Metric) -> f64 {
    0.5 * 10_f64.powi(-(metric.decimals().0 as i32))
}

/// The headline table at one kind of checkpoint.
pub(crate) fn headline(results: &Results, cast: &Cast, choice: CheckpointChoice) -> String {
    summary_table(results, cast, &Summary::new(results, choice, &headline_metrics(results)))
}

/// Calibration at the posterior mean and at every number of draws that some run has; none for regression only.
pub(crate) fn calibration(
    results: &Results,
    cast: &Cast,
    choice: CheckpointChoice,
) -> Option<String> {
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
    Some(summary_table(results, cast, &summary))
}

fn summary_table(results: &Results, cast: &Cast, summary: &Summary) -> String {
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
            let _ = write!(html, "<th scope=\"row\">{}</th>", method_name(cast, method));
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
    let kept = summary.kept(metric, method, task);
    let kept = kept.map(|kept| kept_text(metric, kept)).unwrap_or_default();
    let few =
        if spread.n() < most { format!("<small>n={}</small>", spread.n()) } else { String::new() };
    format!(
        "<td class=\"{class}\" title=\"{}\"><b>{}</b>{std}{kept}{few}</td>",
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
pub(crate) fn method_name(cast: &Cast, method: &str) -> String {
    let colour = cast.colour(method);
    format!("<span class=\"swatch b{colour}\"></span>{}", escape(method))
}

/// The body of a table with one row per method that has one: `row` gives the cells after the name, `n_cells` of them.
/// Families have headings where colours tell families.
pub(crate) fn family_rows(
    cast: &Cast,
    n_cells: usize,
    row: impl Fn(&Member) -> Option<String>,
) -> String {
    let line = |member: &Member, name: &str| {
        let cells = row(member)?;
        let about = MethodName::from_name(&member.name).map(|m| m.entry().summary);
        let about = about.map(|text| format!(" title=\"{}\"", escape(text))).unwrap_or_default();
        Some(format!("<tr><th scope=\"row\"{about}>{name}</th>{cells}</tr>"))
    };
    if !cast.is_about_uncertainty() {
        let rows = cast.members().iter().filter_map(|m| line(m, &method_name(cast, &m.name)));
        return format!("<tbody>{}</tbody>", rows.collect::<String>());
    }
    let mut html = String::new();
    for (family, members) in cast.families() {
        let rows: String = members.iter().filter_map(|m| line(m, &escape(&m.name))).collect();
        if !rows.is_empty() {
            let _ = write!(
                html,
                "<tbody><tr class=\"family\"><th scope=\"rowgroup\" colspan=\"{}\"><span class=\"swatch b{}\"></span>\
{}</th></tr>{rows}</tbody>",
                n_cells + 1,
                family.colour(),
                family.title()
            );
        }
    }
    html
}

/// Marks the best values of a column, which are many to read through.
pub(crate) struct Graded {
    /// Finite values, the best first.
    values: Vec<f64>,
    higher: bool,
    tie: f64,
}

/// So many values behind the best are marked as good.
const GOOD: usize = 3;

impl Graded {
    /// Ranks the values of a column; `higher` says which end is the best, values closer than `tie` are equal.
    pub(crate) fn new(values: Vec<f64>, higher: bool, tie: f64) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
        values.sort_by(|a, b| if higher { b.total_cmp(a) } else { a.total_cmp(b) });
        Self { values, higher, tie }
    }

    /// A class to be added to that of a cell: ` best`, ` good` or nothing. Needs rivals.
    pub(crate) fn class(&self, value: f64) -> &'static str {
        let behind = |other: f64| if self.higher { other - value } else { value - other };
        match self.values.as_slice() {
            [first, _, ..] if behind(*first) <= self.tie => " best",
            list if list.len() > 2 * GOOD && behind(list[GOOD - 1]) <= self.tie => " good",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_column_is_marked() {
        let graded = Graded::new(vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], false, 0.01);
        let found = [0.1, 0.105, 0.2, 0.3, 0.4].map(|x| graded.class(x));
        assert_eq!(found, [" best", " best", " good", " good", ""]);
        let two = Graded::new(vec![0.1, 0.2], true, 0.01);
        assert_eq!([0.2, 0.1].map(|x| two.class(x)), [" best", ""]);
        assert_eq!(Graded::new(vec![0.1, f64::NAN], true, 0.01).class(0.1), "", "no rival");
    }
}
