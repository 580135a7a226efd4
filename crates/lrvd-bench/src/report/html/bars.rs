//! What it cost: parameters, time and memory, with a bar behind each number for comparison at a glance.

use std::fmt::Write as _;

use super::scale::grouped;
use super::svg::{coordinate, escape};
use super::table::method_name;
use super::view::{self, Cast};
use crate::report::metric::Metric;
use crate::report::names::task_label;
use crate::report::record::{ParameterCounts, Results, RunRecord};
use crate::report::spread::Spread;
use crate::report::summary::table_draws;

/// One task and method: its means over seeds.
struct Cost {
    task: String,
    method: String,
    seeds: String,
    adapter: f64,
    posterior: f64,
    /// Kept for prediction beside the trained ones.
    stored: f64,
    head: f64,
    train: Option<Spread>,
    /// Of the validation split at the posterior mean.
    predict: Option<Spread>,
    /// The same with draws.
    predict_drawn: Option<Spread>,
    speed: Option<Spread>,
    memory: Option<Spread>,
}

fn cost(task: &str, method: &str, runs: &[&RunRecord], draws: Option<u32>) -> Option<Cost> {
    let count = |of: fn(&ParameterCounts) -> u64| {
        let counts: Vec<f64> =
            runs.iter().map(|run| of(&run.trainable_parameters) as f64).collect();
        view::mean(&counts)
    };
    let predict = |k: u32| {
        let last = runs.iter().filter_map(|run| run.checkpoints.last.as_ref());
        let seconds = last.filter_map(|checkpoint| checkpoint.predict_seconds.get(&k).copied());
        Spread::of(&seconds.collect::<Vec<_>>())
    };
    let all = |of: fn(&RunRecord) -> Option<f64>| {
        Spread::of(&runs.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
    };
    let seeds: Vec<String> = runs.iter().map(|run| run.seed.to_string()).collect();
    Some(Cost {
        task: task.to_owned(),
        method: method.to_owned(),
        seeds: seeds.join(", "),
        adapter: count(|c| c.adapter)?,
        posterior: count(|c| c.posterior)?,
        stored: count(|c| c.stored)?,
        head: count(|c| c.head)?,
        train: all(|run| Some(run.train_seconds / 60.0)),
        predict: predict(0),
        predict_drawn: draws.and_then(predict),
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
pub(crate) fn costs(results: &Results, cast: &Cast) -> String {
    let draws = table_draws(results);
    let rows: Vec<Cost> = view::tasks(results)
        .iter()
        .flat_map(|task| {
            cast.members()
                .iter()
                .filter_map(|m| cost(task, &m.name, &view::runs(results, task, &m.name), draws))
                .collect::<Vec<_>>()
        })
        .collect();
    let most = |of: fn(&Cost) -> Option<f64>| {
        rows.iter().filter_map(of).filter(|x| x.is_finite()).fold(0.0, f64::max)
    };
    let most_adapter = most(|row| Some(row.adapter));
    let most_time = most(|row| row.train.as_ref().map(|s| s.mean));
    let most_memory = most(|row| row.memory.as_ref().map(|s| s.mean));
    let with_kept = rows.iter().any(|row| row.stored > 0.0);
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"costs\"><thead><tr><th scope=\"col\">Task</th><th scope=\"col\">Method</th>\
<th scope=\"col\" class=\"n\">Adapter params</th><th scope=\"col\" class=\"n\">Posterior</th>",
    );
    if with_kept {
        html.push_str("<th scope=\"col\" class=\"n\">+ Kept</th>");
    }
    html.push_str(
        "<th scope=\"col\" class=\"n\">Head</th><th scope=\"col\" class=\"n\">Training (min)</th>\
<th scope=\"col\" class=\"n\">Steps / s</th><th scope=\"col\" class=\"n\">Prediction (s)</th>",
    );
    if let Some(k) = draws {
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{k} draws (s)</th>");
    }
    html.push_str("<th scope=\"col\" class=\"n\">Memory (MiB)</th></tr></thead><tbody>");
    let seconds = |spread: Option<&Spread>| {
        spread.map_or("–".into(), |s| Metric::PredictSeconds(0).format_spread(s))
    };
    let whole = |x: f64| grouped(x.round() as u64);
    let mut before = "";
    for row in &rows {
        let new = row.task != before;
        let class = if new && !before.is_empty() { " class=\"rule\"" } else { "" };
        let task = if new { escape(&task_label(&row.task)) } else { String::new() };
        before = &row.task;
        let colour = cast.colour(&row.method);
        let drawn = draws.map_or_else(String::new, |_| {
            format!("<td class=\"n\">{}</td>", seconds(row.predict_drawn.as_ref()))
        });
        let kept = if with_kept {
            format!("<td class=\"n\">{}</td>", whole(row.stored))
        } else {
            String::new()
        };
        let _ = write!(
            html,
            "<tr{class} title=\"seeds {}\"><th scope=\"row\">{task}</th><td>{}</td>{}<td class=\"n\">{}</td>{kept}\
<td class=\"n\">{}</td>{}<td class=\"n\">{}</td><td class=\"n\">{}</td>{drawn}{}</tr>",
            row.seeds,
            method_name(cast, &row.method),
            bar(row.adapter, most_adapter, colour, &whole(row.adapter)),
            whole(row.posterior),
            whole(row.head),
            spread_bar(row.train.as_ref(), most_time, colour, Metric::TimeMin),
            row.speed.as_ref().map_or("–".into(), |s| Metric::Rank.format_spread(s)),
            seconds(row.predict.as_ref()),
            spread_bar(row.memory.as_ref(), most_memory, colour, Metric::MemoryMib),
        );
    }
    html.push_str("</tbody></table></div>");
    html
}
