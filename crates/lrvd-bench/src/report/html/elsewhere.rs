//! Can doubt tell the questions of another set from a model's own?

use std::fmt::Write as _;

use super::svg::escape;
use super::table::{Graded, family_rows};
use super::view::{self, Cast, Member};
use crate::report::checkpoint::ElsewhereRecord;
use crate::report::names::task_label;
use crate::report::record::{Results, RunStatus};
use crate::report::spread::Spread;

/// One column: a set, a number of draws, and what measures doubt.
struct Column {
    set: String,
    draws: u32,
    heading: String,
    value: fn(&ElsewhereRecord) -> Option<f64>,
}

/// One table per task whose models were shown other sets; empty where none was.
pub(crate) fn tables(results: &Results, cast: &Cast, shown: Option<u32>) -> String {
    let mut html = String::new();
    for task in view::tasks(results) {
        let sets = sets(results, &task);
        if sets.is_empty() {
            continue;
        }
        let columns = columns(&sets, shown);
        let name = escape(&task_label(&task));
        let counts: Vec<String> =
            sets.iter().map(|(set, n)| format!("{n} of {}", escape(&task_label(set)))).collect();
        let _ = write!(
            html,
            "<h3>Trained on {name}</h3><p class=\"how\">Questions of the other sets: {}.</p>{}",
            counts.join(", "),
            table(results, cast, &task, &sets, &columns)
        );
    }
    html
}

/// The other sets of a task's finished runs with their numbers of questions.
fn sets(results: &Results, task: &str) -> Vec<(String, u64)> {
    let runs = results.runs.iter().filter(|r| r.task == task && r.status == RunStatus::Finished);
    let mut sets: Vec<(String, u64)> = runs
        .flat_map(|run| &run.elsewhere)
        .filter_map(|(set, by_draws)| Some((set.clone(), by_draws.values().next()?.n)))
        .collect();
    sets.sort();
    sets.dedup_by(|a, b| a.0 == b.0);
    sets
}

fn columns(sets: &[(String, u64)], shown: Option<u32>) -> Vec<Column> {
    let mut columns = Vec::new();
    for (set, _) in sets {
        let column = |draws: u32, heading: String, value: fn(&ElsewhereRecord) -> Option<f64>| {
            Column { set: set.clone(), draws, heading, value }
        };
        columns.push(column(0, "entropy, k&#8239;=&#8239;0".to_owned(), |e| Some(e.auroc_entropy)));
        if let Some(k) = shown {
            let at = format!("k&#8239;=&#8239;{k}");
            columns.push(column(k, format!("entropy, {at}"), |e| Some(e.auroc_entropy)));
            columns.push(column(k, format!("mutual information, {at}"), |e| {
                e.auroc_mutual_information
            }));
        }
    }
    columns
}

fn table(
    results: &Results,
    cast: &Cast,
    task: &str,
    sets: &[(String, u64)],
    columns: &[Column],
) -> String {
    let per_set = columns.len() / sets.len().max(1);
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"dense\"><thead><tr class=\"over-head\"><td></td>",
    );
    for (set, _) in sets {
        let name = escape(&task_label(set));
        let _ = write!(html, "<th scope=\"colgroup\" colspan=\"{per_set}\">{name}</th>");
    }
    html.push_str("</tr><tr><th scope=\"col\">AUROC</th>");
    for column in columns {
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{}</th>", column.heading);
    }
    html.push_str("</tr></thead>");
    let cells: Vec<Vec<Option<Spread>>> = columns
        .iter()
        .map(|column| cast.members().iter().map(|m| cell(results, task, m, column)).collect())
        .collect();
    let graded: Vec<Graded> = cells
        .iter()
        .map(|cells| {
            let means = cells.iter().flatten().map(|spread| spread.mean).collect();
            Graded::new(means, true, 0.0005)
        })
        .collect();
    let row = |member: &Member| {
        let at = cast.members().iter().position(|m| std::ptr::eq(m, member))?;
        let spreads: Vec<Option<&Spread>> = cells.iter().map(|c| c[at].as_ref()).collect();
        spreads.iter().any(Option::is_some).then(|| {
            spreads
                .iter()
                .zip(&graded)
                .map(|(spread, graded)| value_cell(*spread, graded))
                .collect()
        })
    };
    html.push_str(&family_rows(cast, columns.len(), row));
    html.push_str("</table></div>");
    html
}

fn cell(results: &Results, task: &str, member: &Member, column: &Column) -> Option<Spread> {
    let values: Vec<f64> = view::runs(results, task, &member.name)
        .iter()
        .filter(|run| run.status == RunStatus::Finished)
        .filter_map(|run| run.elsewhere.get(&column.set)?.get(&column.draws))
        .filter_map(column.value)
        .collect();
    Spread::of(&values)
}

fn value_cell(spread: Option<&Spread>, graded: &Graded) -> String {
    let Some(spread) = spread.filter(|s| s.mean.is_finite()) else {
        return "<td class=\"n absent\">–</td>".to_owned();
    };
    let std = spread.std.map(|s| format!(" <i>±{}</i>", format!("{s:.3}").trim_start_matches('0')));
    format!(
        "<td class=\"n{}\"><b>{:.3}</b>{}</td>",
        graded.class(spread.mean),
        spread.mean,
        std.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_reasoning::sample_reasoning;

    #[test]
    fn a_table_per_task_that_has_other_sets() {
        let results = sample_reasoning();
        let html = tables(&results, &Cast::of(&results), Some(10));
        assert_eq!(html.matches("<table").count(), 1, "ARC-E models saw no other set");
        assert!(html.contains("Trained on OBQA") && html.contains("299 of ARC-C, 299 of ARC-E"));
        assert_eq!(html.matches("<tr><th scope=\"row\"").count(), 20);
        // Two sets with three columns: a method without draws has one of them.
        let lora = html.split("<tr>").find(|row| row.contains("LoRA</th>")).unwrap_or_default();
        assert_eq!(lora.matches("absent").count(), 4, "{lora}");
        let mut none = sample_reasoning();
        none.runs.retain(|run| run.task == "arc-e");
        assert_eq!(tables(&none, &Cast::of(&none), Some(10)), "");
    }
}
