//! The frame of the page: head, links, sections in reading order.

use std::fmt::Write as _;
use std::path::Path;

use super::scale::grouped;
use super::svg::escape;
use super::view::{self, Cast};
use super::{bars, elsewhere, method_table, notes, published, results as first, style, task};
use crate::io::{IoError, write_text};
use crate::report::compare::Comparison;
use crate::report::names::task_label;
use crate::report::record::Results;
use crate::report::summary::{CheckpointChoice, table_draws};

/// Writes [`render_html`] to a file that is whole or absent.
///
/// # Errors
///
/// [`IoError::File`].
pub fn write_html(
    path: &Path,
    results: &Results,
    comparison: Option<&Comparison>,
) -> Result<(), IoError> {
    write_text(path, &render_html(results, comparison))
}

/// The whole report as one HTML page: no network, no clock, all text escaped, the same bytes for the same record.
pub fn render_html(results: &Results, comparison: Option<&Comparison>) -> String {
    let tasks = view::tasks(results);
    let cast = Cast::of(results);
    let other_sets = elsewhere::tables(results, &cast, table_draws(results));
    let anchors: Vec<String> = (1..=tasks.len()).map(|i| format!("task-{i}")).collect();
    let title = format!("{}, {} profile", results.model.name, results.profile);
    let mut html =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    let _ = write!(
        html,
        "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{PATTERNS}",
        escape(&title),
        style::CSS
    );
    html.push_str(&header(results, &cast));
    html.push_str(
        "<nav aria-label=\"Sections\"><span class=\"links\"><a href=\"#results\">Results</a>",
    );
    html.push_str(&links(&tasks, &anchors, comparison.is_some(), !other_sets.is_empty()));
    html.push_str("</span>");
    html.push_str(&switches(results, &cast));
    html.push_str("</nav><main>");
    html.push_str(&first::section(results, &cast));
    if let Some(comparison) = comparison {
        html.push_str("<section id=\"published\"><h2>Published and measured</h2>");
        html.push_str(&published::comparison(&cast, comparison));
        html.push_str("</section>");
    }
    for (task, anchor) in tasks.iter().zip(&anchors) {
        html.push_str(&task::section(results, &cast, task, anchor));
    }
    if !other_sets.is_empty() {
        let _ = write!(
            html,
            "<section id=\"other-sets\"><h2>Questions of other sets</h2><p class=\"how\">Each model answers questions it \
was not trained for, with the labels of its own set. The area under the ROC curve says how well its doubt tells them \
from its own validation questions: 1 is always, one half is chance. Mutual information needs several draws.</p>\
{other_sets}</section>"
        );
    }
    html.push_str("<section id=\"costs\"><h2>Parameters, time and memory</h2>");
    html.push_str(
        "<p class=\"how\">Trained parameters of the model that a run ended with, pruned ranks gone, as mean over seeds, and \
where there are any the numbers kept for prediction beside them, such as moments, curvature factors or a temperature; \
times and memory as mean and standard deviation, unfinished runs included. Members of an ensemble run one after another: \
their times and parameters add up. Bars compare within a column.</p>",
    );
    html.push_str(&bars::costs(results, &cast));
    html.push_str("</section>");
    html.push_str(&origin(results));
    html.push_str("<section id=\"notes\"><h2>Notes and caveats</h2>");
    html.push_str(&notes::caveat_list(results));
    html.push_str("</section></main>");
    let _ = write!(
        html,
        "<footer>{} {} · schema version {}</footer>\n<script>\n{}</script>\n</body>\n</html>\n",
        escape(&results.tool.name),
        escape(&results.tool.version),
        results.schema_version,
        style::SCRIPT
    );
    html
}

/// Hatchings that several drawings share. They lie outside all figures because an element can be named only once.
const PATTERNS: &str = "<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\
<pattern id=\"removed\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect class=\"hatch-ground\" width=\"5\" height=\"5\"/><rect class=\"hatch\" width=\"1.3\" height=\"5\"/></pattern>\
<pattern id=\"gap\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(-45)\">\
<rect class=\"gap-hatch\" width=\"1.6\" height=\"5\"/></pattern></defs></svg>";

fn header(results: &Results, cast: &Cast) -> String {
    let mut seeds: Vec<u64> = results.runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let model = format!("{}, {} parameters", results.model.name, grouped(results.model.parameters));
    let revision = results.tool.git_revision.as_deref().map_or("unknown", |r| r);
    let finished =
        if results.finished_at.is_empty() { "still running" } else { &results.finished_at };
    let facts = [
        ("Model", model.as_str()),
        ("Preset", &results.preset),
        ("Seeds", &seeds),
        ("Device", &results.device),
        ("Started", &results.started_at),
        ("Finished", finished),
        ("Revision", revision),
    ];
    let question = if cast.is_about_uncertainty() {
        "Which method knows when it is wrong?"
    } else {
        "How much rank does each layer need?"
    };
    let mut html = format!(
        "<header><button id=\"theme\" type=\"button\" hidden>light / dark</button>\
<p class=\"over\">Low-rank adapters · {} · {} profile</p><h1>{question}</h1>\
<p class=\"command\"><code>{}</code></p><dl class=\"facts\">",
        escape(&results.suite),
        escape(&results.profile),
        escape(&results.command)
    );
    for (name, value) in facts {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    }
    html.push_str("</dl></header>");
    html
}

fn links(tasks: &[String], anchors: &[String], published: bool, other_sets: bool) -> String {
    let mut html = String::new();
    if published {
        html.push_str("<a href=\"#published\">Published</a>");
    }
    for (task, anchor) in tasks.iter().zip(anchors) {
        let _ = write!(html, "<a href=\"#{anchor}\">{}</a>", escape(&task_label(task)));
    }
    if other_sets {
        html.push_str("<a href=\"#other-sets\">Other sets</a>");
    }
    html.push_str(
        "<a href=\"#costs\">Costs</a><a href=\"#origin\">Configuration</a><a href=\"#notes\">Notes</a>",
    );
    html
}

/// Radio buttons that choose which of the tables of many methods are shown, on the whole page. They need no script;
/// a browser that lacks `:has` shows all tables, each with its caption.
fn switches(results: &Results, cast: &Cast) -> String {
    if !cast.is_about_uncertainty() {
        return String::new();
    }
    let group = |name: &str, about: &str, first: &str, options: [(&str, String); 2]| {
        let button = |(id, text): &(&str, String)| {
            let checked = if *id == first { " checked" } else { "" };
            format!(
                "<input type=\"radio\" name=\"{name}\" id=\"{id}\"{checked}><label for=\"{id}\">{text}</label>"
            )
        };
        let buttons: String = options.iter().map(button).collect();
        format!(
            "<span class=\"toggle\" role=\"radiogroup\" aria-label=\"{about}\">{buttons}</span>"
        )
    };
    let mut html = String::from("<span class=\"toggles\">");
    if method_table::has_best(results) {
        let first = match CheckpointChoice::reported(results) {
            CheckpointChoice::Last => "show-last",
            CheckpointChoice::Best => "show-best",
        };
        let options = [("show-last", "Last checkpoint".into()), ("show-best", "Best".into())];
        html.push_str(&group("checkpoint", "Checkpoint of the tables", first, options));
    }
    if let Some(k) = table_draws(results) {
        let options = [("show-draws", format!("{k} draws")), ("show-mean", "Mean".into())];
        html.push_str(&group("draws", "Posterior draws of the tables", "show-draws", options));
    }
    html.push_str("</span>");
    html
}

fn origin(results: &Results) -> String {
    let mut html = String::from("<section id=\"origin\"><h2>Configuration and origin</h2>");
    html.push_str("<h3>Resolved configuration</h3>");
    html.push_str(&notes::config_table(results));
    let _ = write!(
        html,
        "<h3>Model</h3><p>{}, read from <code>{}</code>.</p>",
        escape(&results.model.name),
        escape(&results.model.path)
    );
    html.push_str("<ul>");
    for (file, hash) in &results.model.weights {
        let _ = write!(
            html,
            "<li><code>{}</code> <code class=\"hash\">{}</code></li>",
            escape(file),
            escape(hash)
        );
    }
    for note in &results.model.notes {
        let _ = write!(html, "<li>{}</li>", escape(note));
    }
    html.push_str("</ul><h3>Data</h3>");
    html.push_str(&notes::data_table(results));
    html.push_str("</section>");
    html
}
