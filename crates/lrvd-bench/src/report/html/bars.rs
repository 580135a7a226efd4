//! What it cost: parameters, time and memory, with a bar behind each number for comparison at a glance.

use std::fmt::Write as _;

use super::scale::grouped;
use super::svg::{coordinate, escape};
use super::table::method_name;
use super::view;
use crate::report::metric::Metric;
use crate::report::names::task_label;
use crate::report::record::{Results, RunRecord};
use crate::report::spread::Spread;

/// One task and method: its means over seeds.
struct Cost {
    task: String,
    method: String,
    seeds: String,
    adapter: u64,
    posterior: u64,
    head: u64,
    train: Option<Spread>,
    evaluate: Option<Spread>,
    speed: Option<Spread>,
    memory: Option<Spread>,
}

fn cost(task: &str, method: &str, runs: &[&RunRecord]) -> Option<Cost> {
    let first = runs.first()?.trainable_parameters;
    let all = |of: fn(&RunRecord) -> Option<f64>| {
        Spread::of(&runs.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
    };
    let seeds: Vec<String> = runs.iter().map(|run| run.seed.to_string()).collect();
    Some(Cost {
        task: task.to_owned(),
        method: method.to_owned(),
        seeds: seeds.join(", "),
        adapter: first.adapter,
        posterior: first.posterior,
        head: first.head,
        train: all(|run| Some(run.train_seconds / 60.0)),
        evaluate: all(|run| Some(run.evaluate_seconds / 60.0)),
        speed: all(|run| (run.train_seconds > 0.0).then(|| run.steps as f64 / run.train_seconds)),
        memory: all(|run| run.peak_memory_bytes.map(|bytes| bytes as f64 / 1_048_576.0)),
    })
}

/// A number with a bar whose length is its share of the largest in its column.
fn bar(value: f64, most: f64, colour: usize, text: &str) -> String {
    let share = if most > 0.0 && value.is_finite() {
        (100.0 * value / most).clamp(0.0, 100.0)
    } else {
        0.0
    };
    format!(
        "<td class=\"n bar-cell\"><span class=\"bar-fill b{colour}\" style=\"width:{}%\"></span><span>{text}</span></td>",
        coordinate(share)
    )
}

fn spread_bar(spread: Option<&Spread>, most: f64, colour: usize, metric: Metric) -> String {
    spread.map_or_else(
        || "<td class=\"n absent\">–</td>".to_owned(),
        |s| bar(s.mean, most, colour, &metric.format_spread(s)),
    )
}

/// The table of parameters, time and memory.
pub(crate) fn costs(results: &Results) -> String {
    let methods = view::methods(results);
    let rows: Vec<Cost> = view::tasks(results)
        .iter()
        .flat_map(|task| {
            methods
                .iter()
                .filter_map(|method| cost(task, method, &view::runs(results, task, method)))
                .collect::<Vec<_>>()
        })
        .collect();
    let most = |of: fn(&Cost) -> Option<f64>| {
        rows.iter().filter_map(of).filter(|x| x.is_finite()).fold(0.0, f64::max)
    };
    let most_adapter = most(|row| Some(row.adapter as f64));
    let most_time = most(|row| row.train.as_ref().map(|s| s.mean));
    let most_memory = most(|row| row.memory.as_ref().map(|s| s.mean));
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"costs\"><thead><tr><th scope=\"col\">Task</th><th scope=\"col\">Method</th>\
<th scope=\"col\" class=\"n\">Adapter params</th><th scope=\"col\" class=\"n\">Posterior</th>\
<th scope=\"col\" class=\"n\">Head</th><th scope=\"col\" class=\"n\">Training (min)</th>\
<th scope=\"col\" class=\"n\">Evaluation (min)</th><th scope=\"col\" class=\"n\">Steps / s</th>\
<th scope=\"col\" class=\"n\">Peak memory (MiB)</th></tr></thead><tbody>",
    );
    let mut before = "";
    for row in &rows {
        let new = row.task != before;
        let class = if new && !before.is_empty() { " class=\"rule\"" } else { "" };
        let task = if new { escape(&task_label(&row.task)) } else { String::new() };
        before = &row.task;
        let colour = view::colour(&methods, &row.method);
        let _ = write!(
            html,
            "<tr{class} title=\"seeds {}\"><th scope=\"row\">{task}</th><td>{}</td>{}<td class=\"n\">{}</td>\
<td class=\"n\">{}</td>{}<td class=\"n\">{}</td><td class=\"n\">{}</td>{}</tr>",
            row.seeds,
            method_name(&methods, &row.method),
            bar(row.adapter as f64, most_adapter, colour, &grouped(row.adapter)),
            grouped(row.posterior),
            grouped(row.head),
            spread_bar(row.train.as_ref(), most_time, colour, Metric::TimeMin),
            row.evaluate.as_ref().map_or("–".into(), |s| Metric::TimeMin.format_spread(s)),
            row.speed.as_ref().map_or("–".into(), |s| Metric::Rank.format_spread(s)),
            spread_bar(row.memory.as_ref(), most_memory, colour, Metric::MemoryMib),
        );
    }
    html.push_str("</tbody></table></div>");
    html
}
