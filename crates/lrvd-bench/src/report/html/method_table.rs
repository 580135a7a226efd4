//! Every method in one table, for one task or for the mean over tasks: quality, size and time.
//!
//! The table is written for both checkpoints, with and without posterior draws; switches of the page choose one of
//! the four.

use std::fmt::Write as _;

use super::svg::escape;
use super::table::{Graded, family_rows, tie};
use super::tradeoff::mean_over;
use super::view::{Cast, Member};
use crate::report::metric::{Better, KEPT, Metric};
use crate::report::record::Results;
use crate::report::spread::Spread;
use crate::report::summary::{CheckpointChoice, Summary, table_draws};

/// Quality at the posterior mean, in the order of columns, with short headings.
const QUALITY: [(Metric, &str); 7] = [
    (Metric::Accuracy(0), "Accuracy"),
    (Metric::Standard(0), "Standard"),
    (Metric::MacroF1(0), "Macro F1"),
    (Metric::Ece(0), "ECE"),
    (Metric::Nll(0), "NLL"),
    (Metric::Brier(0), "Brier"),
    (Metric::SelectiveArea(0), "Risk area"),
];

/// Size and time.
const FACTS: [(Metric, &str); 4] = [
    (Metric::Parameters, "Parameters"),
    (Metric::Rank, "Rank"),
    (Metric::TimeMin, "Train, min"),
    (Metric::PredictSeconds(0), "Predict, s"),
];

/// Whether any run has a best checkpoint: methods that are fitted after training have none.
pub(crate) fn has_best(results: &Results) -> bool {
    results.runs.iter().any(|run| run.checkpoints.best.is_some())
}

/// The tables of some tasks under the switches of the page; `what` names the tasks.
pub(crate) fn tables(results: &Results, cast: &Cast, tasks: &[String], what: &str) -> String {
    let most = table_draws(results);
    let metrics: Vec<Metric> = QUALITY
        .iter()
        .chain(&FACTS)
        .flat_map(|(metric, _)| {
            let drawn = metric.draws().and(most).map(|k| metric.at_draws(k));
            std::iter::once(*metric).chain(drawn)
        })
        .collect();
    let mut html = String::new();
    for choice in CheckpointChoice::BOTH {
        if choice == CheckpointChoice::Best && !has_best(results) {
            continue;
        }
        let summary = Summary::new(results, choice, &metrics);
        for draws in std::iter::once(None).chain(most.map(Some)) {
            let (class, how) = match draws {
                None => ("at-mean", "posterior mean".to_owned()),
                Some(k) => ("at-draws", format!("{k} draws")),
            };
            let italics = if draws.is_some() { "; in italics: one answer, no draws" } else { "" };
            let absent = match choice {
                CheckpointChoice::Last => "",
                CheckpointChoice::Best => "; methods that have no best checkpoint are left out",
            };
            let caption = format!("{what}: {} checkpoint, {how}{italics}{absent}", choice.name());
            let view = View { results, summary: &summary, tasks, draws };
            let _ = write!(
                html,
                "<div class=\"of-{} {class}\"><div class=\"scroll\">{}</div></div>",
                choice.name(),
                view.table(cast, &caption)
            );
        }
    }
    html
}

/// One table.
struct View<'a> {
    results: &'a Results,
    summary: &'a Summary,
    tasks: &'a [String],
    /// Posterior draws; none for the posterior mean.
    draws: Option<u32>,
}

impl View<'_> {
    /// The draws of a method's answer: those of the table, or 0 for a method that has one answer only.
    fn draws_of(&self, method: &str) -> u32 {
        let has = |k: &u32| {
            self.tasks.iter().any(|t| self.summary.cell(Metric::Standard(*k), method, t).is_some())
        };
        self.draws.filter(has).unwrap_or(0)
    }

    fn value(&self, metric: Metric, method: &str) -> Option<f64> {
        mean_over(self.summary, metric.at_draws(self.draws_of(method)), method, self.tasks)
    }

    /// Columns that some method fills; the standard metric only where it is not the accuracy.
    fn columns(&self, cast: &Cast) -> Vec<(Metric, String)> {
        let standard = |task: &String| {
            self.results.data.get(task).is_some_and(|data| data.standard_metric != "accuracy")
        };
        QUALITY
            .into_iter()
            .chain(FACTS)
            .filter(|(metric, _)| *metric != Metric::Standard(0) || self.tasks.iter().any(standard))
            .filter(|(metric, _)| {
                cast.members().iter().any(|m| self.value(*metric, &m.name).is_some())
            })
            .map(|(metric, heading)| match (metric, self.tasks) {
                // The standard metric of a single task has a name.
                (Metric::Standard(_), [task]) => {
                    let name = self.results.data.get(task).map(|data| &data.standard_metric);
                    (metric, name.map_or_else(|| heading.to_owned(), |name| escape(name)))
                }
                _ => (metric, heading.to_owned()),
            })
            .collect()
    }

    fn table(&self, cast: &Cast, caption: &str) -> String {
        let columns = self.columns(cast);
        let mut html =
            format!("<table class=\"dense\"><caption>{}</caption><thead><tr>", escape(caption));
        html.push_str("<th scope=\"col\">Method</th>");
        for (metric, heading) in &columns {
            let direction = match metric.better() {
                Better::Higher => " <span class=\"way\" title=\"higher is better\">↑</span>",
                Better::Lower => " <span class=\"way\" title=\"lower is better\">↓</span>",
                Better::Neither => "",
            };
            let class = if *metric == FACTS[0].0 { "n parted" } else { "n" };
            let title = metric.kept_beside().map_or_else(|| metric.title(), |_| KEPT.to_owned());
            let _ = write!(
                html,
                "<th scope=\"col\" class=\"{class}\" title=\"{title}\">{heading}{direction}</th>"
            );
        }
        html.push_str("</tr></thead>");
        let graded: Vec<Graded> = columns
            .iter()
            .map(|(metric, _)| {
                let graded = metric.better() != Better::Neither;
                let members = cast.members().iter().filter(|_| graded);
                let values = members.filter_map(|m| self.value(*metric, &m.name)).collect();
                Graded::new(values, metric.better() == Better::Higher, tie(*metric))
            })
            .collect();
        let row = |member: &Member| {
            let cells: Vec<String> = columns
                .iter()
                .zip(&graded)
                .map(|((metric, _), graded)| self.cell(*metric, &member.name, graded))
                .collect();
            cells.iter().any(|cell| !cell.contains("absent")).then(|| cells.concat())
        };
        html.push_str(&family_rows(cast, columns.len(), row));
        html.push_str("</table>");
        html
    }

    fn cell(&self, metric: Metric, method: &str, graded: &Graded) -> String {
        let k = self.draws_of(method);
        let metric = metric.at_draws(k);
        let parted = if metric == FACTS[0].0 { " parted" } else { "" };
        let Some(mean) = mean_over(self.summary, metric, method, self.tasks) else {
            return format!("<td class=\"n absent{parted}\">–</td>");
        };
        // In the table of drawn answers the only answer of a method without draws is set apart.
        let only =
            if k == 0 && self.draws.is_some() && metric.draws().is_some() { " only" } else { "" };
        let (std, tip) = match self.tasks {
            [task] => {
                self.summary.cell(metric, method, task).map_or_else(Default::default, |spread| {
                    (std_text(metric, spread), tip(metric, spread))
                })
            }
            _ => (String::new(), String::new()),
        };
        let tip = if only.is_empty() { tip } else { format!("{tip}{NO_DRAWS}") };
        let title = if tip.is_empty() { tip } else { format!(" title=\"{}\"", escape(&tip)) };
        format!(
            "<td class=\"n{parted}{only}{}\"{title}><b>{}</b>{std}{}</td>",
            graded.class(mean),
            metric.format(mean),
            self.kept(metric, method)
        )
    }

    /// What is printed behind a count that has kept numbers beside it.
    fn kept(&self, metric: Metric, method: &str) -> String {
        let kept = metric.kept_beside();
        let mean = kept.and_then(|kept| mean_over(self.summary, kept, method, self.tasks));
        mean.filter(|mean| *mean > 0.0).map_or_else(String::new, |mean| kept_text(metric, mean))
    }
}

/// Kept numbers behind a count.
pub(crate) fn kept_text(metric: Metric, kept: f64) -> String {
    format!(" <i>+&#8239;{}</i>", metric.format(kept))
}

/// What the tip of a set-apart cell ends with.
const NO_DRAWS: &str = " (one answer, no draws)";

fn std_text(metric: Metric, spread: &Spread) -> String {
    // Ranks that all seeds share have nothing to say of their spread.
    let told =
        |s: &f64| s.is_finite() && !metric.is_count() && (metric != Metric::Rank || *s > 0.0);
    let std = spread.std.filter(told);
    std.map(|s| format!(" <i>±{}</i>", metric.format_std(s))).unwrap_or_default()
}

fn tip(metric: Metric, spread: &Spread) -> String {
    let values: Vec<String> = spread.values.iter().map(|x| metric.format(*x)).collect();
    if values.len() < 2 { String::new() } else { format!("seeds: {}", values.join(", ")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample_reasoning::sample_reasoning;

    #[test]
    fn four_tables_under_two_switches() {
        let mut results = sample_reasoning();
        let cast = Cast::of(&results);
        let task = ["obqa".to_owned()];
        let html = tables(&results, &cast, &task, "OBQA");
        for class in ["of-last at-mean", "of-last at-draws", "of-best at-mean", "of-best at-draws"]
        {
            assert_eq!(html.matches(class).count(), 1, "{class}");
        }
        assert!(html.contains("<caption>OBQA: last checkpoint, 10 draws; in italics"));
        assert!(!html.contains(">Standard"), "it is the accuracy");
        let drawn = html.split("at-draws").nth(1).unwrap_or_default();
        let row = |name: &str| {
            let end = format!(">{name}</th>");
            drawn.split("<tr>").find(|row| row.contains(&end)).unwrap_or_default()
        };
        // LoRA has one answer, which the table of drawn answers sets apart; BayesLoRA has draws.
        assert!(row("LoRA").contains(" only") && !row("BayesLoRA").contains(" only"));
        for run in &mut results.runs {
            run.checkpoints.best = None;
        }
        assert!(!tables(&results, &cast, &task, "OBQA").contains("of-best"));
    }

    #[test]
    fn kept_numbers_stand_behind_the_parameters() {
        let results = sample_reasoning();
        let html = tables(&results, &Cast::of(&results), &["obqa".to_owned()], "OBQA");
        let swag = "<b>13\u{202f}568</b> <i>+&#8239;81\u{202f}408</i></td>";
        assert!(html.contains(swag) && html.contains("<b>13\u{202f}568</b></td>"), "{html}");
        assert!(html.contains(&format!("title=\"{KEPT}\">Parameters</th>")));
    }

    #[test]
    fn the_standard_metric_goes_by_its_name() {
        let mut results = sample_reasoning();
        results.data.get_mut("obqa").unwrap().standard_metric = "mcc".into();
        let last = results.runs.iter_mut().filter_map(|run| run.checkpoints.last.as_mut());
        for metrics in last.flat_map(|checkpoint| checkpoint.metrics.values_mut()) {
            metrics.standard.insert("mcc".into(), 0.25);
        }
        let html = tables(&results, &Cast::of(&results), &["obqa".to_owned()], "OBQA");
        assert!(html.contains(">mcc <span") && html.contains("<b>0.250</b>"));
    }

    #[test]
    fn a_mean_over_tasks_needs_all_of_them() {
        let mut results = sample_reasoning();
        results.runs.retain(|run| run.method != "MAP" || run.task == "obqa");
        let cast = Cast::of(&results);
        let html = tables(&results, &cast, &["arc-e".to_owned(), "obqa".to_owned()], "Mean");
        assert!(!html.contains(">MAP</th>") && html.contains(">LoRA</th>"));
    }
}
