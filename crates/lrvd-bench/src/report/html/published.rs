//! Published numbers below measured ones: a table per metric, methods down, tasks across.

use std::fmt::Write as _;

use super::svg::escape;
use super::table::method_name;
use super::view::Cast;
use crate::report::compare::{Comparison, ComparisonRow};
use crate::report::metric::Metric;
use crate::report::names::task_label;

/// All tables with their caveats.
pub(crate) fn comparison(cast: &Cast, comparison: &Comparison) -> String {
    let mut html = format!(
        "<p class=\"how\">In each cell: measured at the {} checkpoint; published in <code>{}</code>; measured minus \
published, and that in units of the combined standard error of both means. Methods that did not run here keep their \
published numbers.</p>",
        comparison.choice.name(),
        escape(&comparison.source)
    );
    if comparison.rows.iter().all(|row| row.measured.is_none()) {
        html.push_str("<p class=\"empty\">No published number has a measured partner.</p>");
    }
    for rows in comparison.rows.chunk_by(|a, b| a.metric.base() == b.metric.base()) {
        html.push_str(&table(cast, rows));
    }
    html.push_str("<ul class=\"caveats\">");
    for caveat in &comparison.caveats {
        let _ = write!(html, "<li>{}</li>", escape(caveat));
    }
    html.push_str("</ul>");
    html
}

/// The rows of one metric, in order.
fn table(cast: &Cast, rows: &[ComparisonRow]) -> String {
    let title = rows.first().map(|row| row.metric.at_draws(0).title()).unwrap_or_default();
    let mut tasks: Vec<&str> = Vec::new();
    let mut methods: Vec<(&str, Metric)> = Vec::new();
    for row in rows {
        if !tasks.contains(&row.task.as_str()) {
            tasks.push(&row.task);
        }
        if !methods.contains(&(row.method.as_str(), row.metric)) {
            methods.push((&row.method, row.metric));
        }
    }
    tasks.sort_by(|a, b| crate::report::names::task_order(a, b));
    let mut html = format!(
        "<div class=\"scroll\"><table class=\"compare\"><thead><tr><th scope=\"col\">{}</th>",
        escape(&title)
    );
    for task in &tasks {
        let caveat = rows.iter().filter(|r| r.task == *task).find_map(|r| r.caveat.as_ref());
        let star = caveat.map_or_else(String::new, |caveat| {
            format!("<sup title=\"{}\">*</sup>", escape(caveat))
        });
        let _ =
            write!(html, "<th scope=\"col\" class=\"n\">{}{star}</th>", escape(&task_label(task)));
    }
    html.push_str("</tr></thead><tbody>");
    for (method, metric) in &methods {
        let name = if cast.has(method) {
            method_name(cast, method)
        } else {
            format!("<span class=\"absent\" title=\"did not run here\">{}</span>", escape(method))
        };
        let draws = match metric.draws() {
            Some(k) if k > 0 => format!(" <i>{k} draws</i>"),
            _ => String::new(),
        };
        let _ = write!(html, "<tr><th scope=\"row\">{name}{draws}</th>");
        for task in &tasks {
            let same =
                |r: &&ComparisonRow| r.task == *task && r.method == *method && r.metric == *metric;
            html.push_str(
                &rows
                    .iter()
                    .find(same)
                    .map_or_else(|| "<td class=\"n absent\">–</td>".to_owned(), cell),
            );
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn cell(row: &ComparisonRow) -> String {
    let published = format!("<span class=\"below\">{}</span>", row.published_text());
    if row.measured.is_none() {
        return format!("<td class=\"n\"><span class=\"absent\">–</span>{published}</td>");
    }
    let errors = row.standard_errors.map(|_| format!(", {} s.e.", row.standard_errors_text()));
    format!(
        "<td class=\"n\"><b>{}</b>{published}<span class=\"below apart\">{}{}</span></td>",
        row.measured_text(),
        row.difference_text(),
        errors.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::compare::compare;
    use crate::report::published::Published;
    use crate::report::sample_reasoning::sample_reasoning;
    use crate::report::summary::CheckpointChoice;

    #[test]
    fn every_published_number_is_there() {
        let table = "metric,method,task,mean,std\naccuracy,ENS,OBQA,82,1\naccuracy,<b>_k10,OBQA,83,\n\
accuracy,LoRA,BoolQ,86,\nparams_m,LoRA,all,4.48,\n";
        let results = sample_reasoning();
        let published = Published::parse(table, "t.csv").unwrap();
        let html =
            comparison(&Cast::of(&results), &compare(&results, &published, CheckpointChoice::Last));
        for text in ["0.820 ±.010", "0.830", "0.860", "4.480 M", "ENS-10", "&lt;b&gt;", "10 draws"]
        {
            assert!(html.contains(text), "{text}\n{html}");
        }
        assert_eq!(html.matches("<table").count(), 2);
        assert!(!html.contains("<b>_k10"));
    }
}
