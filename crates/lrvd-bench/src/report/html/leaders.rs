//! The first glance at many methods: who leads in what, and where the reference stands.

use std::fmt::Write as _;

use super::svg::escape;
use super::tradeoff::mean_over;
use super::view::{self, Cast};
use crate::report::metric::{Better, Metric};
use crate::report::names::match_key;
use crate::report::record::Results;
use crate::report::summary::{CheckpointChoice, Summary, table_draws};

/// What is led in.
const METRICS: [(Metric, &str); 4] = [
    (Metric::Accuracy(0), "Highest accuracy"),
    (Metric::Ece(0), "Lowest calibration error"),
    (Metric::Nll(0), "Lowest NLL"),
    (Metric::Brier(0), "Lowest Brier score"),
];
/// Methods named on every card: the reference and the subject.
const ALWAYS: [&str; 2] = ["lora", "bayeslora"];

/// One card per metric, means over all tasks at the last checkpoint, each method at its full answer.
pub(crate) fn leaders(results: &Results, cast: &Cast) -> String {
    let most = table_draws(results);
    let tasks = view::class_tasks(results);
    let metrics: Vec<Metric> = METRICS
        .iter()
        .flat_map(|(metric, _)| std::iter::once(*metric).chain(most.map(|k| metric.at_draws(k))))
        .collect();
    let summary = Summary::new(results, CheckpointChoice::Last, &metrics);
    let mut html = String::new();
    for (metric, title) in METRICS {
        // The drawn answer where there is one.
        let full = |name: &str| {
            let at = |k: u32| Some((k, mean_over(&summary, metric.at_draws(k), name, &tasks)?));
            most.and_then(at).or_else(|| at(0))
        };
        let mut ranked: Vec<(&str, u32, f64)> = cast
            .members()
            .iter()
            .filter_map(|m| full(&m.name).map(|(k, x)| (m.name.as_str(), k, x)))
            .collect();
        ranked.sort_by(|a, b| match metric.better() {
            Better::Higher => b.2.total_cmp(&a.2),
            _ => a.2.total_cmp(&b.2),
        });
        let Some((name, k, value)) = ranked.first() else { continue };
        let named = |(name, k, _): &(&str, u32, f64)| format!("{}{}", escape(name), draws_text(*k));
        let rows: Vec<(usize, &(&str, u32, f64))> = ranked
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(i, entry)| *i == 1 || ALWAYS.contains(&match_key(entry.0).as_str()))
            .collect();
        let _ = write!(
            html,
            "<div class=\"card k{}\"><h3>{title}</h3><p class=\"big\">{}</p><p class=\"who\">{}{}</p><dl>",
            cast.colour(name),
            metric.format(*value),
            escape(name),
            draws_text(*k)
        );
        for (i, entry) in rows {
            let _ = write!(
                html,
                "<dt><span class=\"place\">{}.</span> {}</dt><dd>{}</dd>",
                i + 1,
                named(entry),
                metric.format(entry.2)
            );
        }
        html.push_str("</dl></div>");
    }
    format!("<div class=\"cards\">{html}</div>")
}

fn draws_text(k: u32) -> String {
    if k == 0 { String::new() } else { format!(" <small>{k} draws</small>") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_reasoning::sample_reasoning;

    #[test]
    fn the_reference_is_on_every_card() {
        let results = sample_reasoning();
        let html = leaders(&results, &Cast::of(&results));
        assert_eq!(html.matches("class=\"card k").count(), 4);
        assert_eq!(html.matches("</span> LoRA</dt>").count(), 4, "{html}");
        assert_eq!(html.matches("</span> BayesLoRA <small>10 draws</small></dt>").count(), 4);
        let mut none = sample_reasoning();
        none.runs.clear();
        assert_eq!(leaders(&none, &Cast::of(&none)), "<div class=\"cards\"></div>");
    }
}
