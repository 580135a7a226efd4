//! The frame of the page: head, links, sections in reading order.

use std::fmt::Write as _;
use std::path::Path;

use super::scale::grouped;
use super::svg::escape;
use super::{bars, cards, notes, style, table, task, view};
use crate::report::compare::Comparison;
use crate::report::error::ReportError;
use crate::report::files::write_text;
use crate::report::names::task_label;
use crate::report::record::Results;
use crate::report::summary::CheckpointChoice;

/// Writes [`render_html`] to a file that is whole or absent.
///
/// # Errors
///
/// [`ReportError::File`].
pub fn write_html(
    path: &Path,
    results: &Results,
    comparison: Option<&Comparison>,
) -> Result<(), ReportError> {
    write_text(path, &render_html(results, comparison))
}

/// The whole report as one HTML page: no network, no clock, all text escaped, the same bytes for the same record.
pub fn render_html(results: &Results, comparison: Option<&Comparison>) -> String {
    let tasks = view::tasks(results);
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
    html.push_str(&header(results));
    html.push_str(&links(&tasks, &anchors, comparison.is_some()));
    html.push_str("<main>");
    html.push_str(&headline(results));
    if let Some(comparison) = comparison {
        html.push_str("<section id=\"published\"><h2>Published and measured</h2>");
        html.push_str(&table::comparison(results, comparison));
        html.push_str("</section>");
    }
    for (task, anchor) in tasks.iter().zip(&anchors) {
        html.push_str(&task::section(results, task, anchor));
    }
    html.push_str("<section id=\"costs\"><h2>Parameters, time and memory</h2>");
    html.push_str(
        "<p class=\"how\">Parameters at the start of training; times and memory as mean and standard deviation over \
seeds, unfinished runs included. Bars compare within a column.</p>",
    );
    html.push_str(&bars::costs(results));
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

fn header(results: &Results) -> String {
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
    let mut html = format!(
        "<header><button id=\"theme\" type=\"button\" hidden>light / dark</button>\
<p class=\"over\">Low-rank adapters · {} profile</p><h1>How much rank does each layer need?</h1>\
<p class=\"command\"><code>{}</code></p><dl class=\"facts\">",
        escape(&results.profile),
        escape(&results.command)
    );
    for (name, value) in facts {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    }
    html.push_str("</dl></header>");
    html
}

fn links(tasks: &[String], anchors: &[String], published: bool) -> String {
    let mut html = String::from("<nav aria-label=\"Sections\"><a href=\"#results\">Results</a>");
    if published {
        html.push_str("<a href=\"#published\">Published</a>");
    }
    for (task, anchor) in tasks.iter().zip(anchors) {
        let _ = write!(html, "<a href=\"#{anchor}\">{}</a>", escape(&task_label(task)));
    }
    html.push_str(
        "<a href=\"#costs\">Costs</a><a href=\"#origin\">Configuration</a><a href=\"#notes\">Notes</a></nav>",
    );
    html
}

/// Cards, overview, headline and calibration tables, for the last and for the best checkpoint. The switch is a pair of
/// radio buttons and needs no script.
fn headline(results: &Results) -> String {
    let mut html = String::from(
        "<section id=\"results\"><h2>Results</h2><div class=\"switch\">\
<input type=\"radio\" name=\"checkpoint\" id=\"show-last\" checked><label for=\"show-last\">Last checkpoint</label>\
<input type=\"radio\" name=\"checkpoint\" id=\"show-best\"><label for=\"show-best\">Best checkpoint</label>",
    );
    for choice in CheckpointChoice::BOTH {
        let what = match choice {
            CheckpointChoice::Last => "The state after the last step.",
            CheckpointChoice::Best => {
                "The state with the best validation metric, chosen on the data it is reported on: optimistic."
            }
        };
        let _ = write!(
            html,
            "<div class=\"panel {0}\"><p class=\"how\">{what} Mean ± sample standard deviation over seeds; bold: the \
best mean of a task. Hover a number for its median and its seeds.</p>{1}{2}",
            choice.name(),
            cards::cards(results, choice),
            table::headline(results, choice),
        );
        if results.data.values().any(|data| !data.is_official()) {
            html.push_str(
                "<p class=\"foot\">* The data are not the official splits; see the notes.</p>",
            );
        }
        let _ = write!(
            html,
            "<h3>Score against rank</h3>{}{}",
            cards::legend(results),
            cards::overview(results, choice)
        );
        if let Some(calibration) = table::calibration(results, choice) {
            html.push_str("<h3>Likelihood and calibration</h3>");
            html.push_str(&calibration);
        }
        html.push_str("</div>");
    }
    html.push_str("</div></section>");
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
