//! One `report.html` that opens without a network: a static template around the embedded record.
//!
//! - `template.html`, `style.css`: the frame and its look.
//! - `data.js`, `charts.js`, `page.js`: what the page reads, draws and says, from two embedded JSON documents: the
//!   record itself, as `results.json` holds it, and what `data` computes beside it.
//! - `vendor/`: the plot library, written into the page as it was published, with its licences.
//!
//! All text reaches the page as JSON and is placed by the script as text, never as markup. The same record gives the
//! same bytes.

mod data;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use super::compare::Comparison;
use super::rows::RowScores;
use super::summary::{CheckpointChoice, Summary, headline_metrics};
use super::table::render_text;
use crate::error::Result;
use crate::io::write_text;
use crate::record::Results;
use data::PageData;

const TEMPLATE: &str = include_str!("template.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 3] =
    [include_str!("data.js"), include_str!("charts.js"), include_str!("page.js")];
const PLOT: [&str; 2] = [include_str!("vendor/d3.min.js"), include_str!("vendor/plot.umd.min.js")];
const LICENCES: [&str; 2] =
    [include_str!("vendor/LICENSE-d3"), include_str!("vendor/LICENSE-plot")];

/// Writes [`render_html`] to a file that is whole or absent.
pub(crate) fn write_html(
    path: &Path,
    results: &Results,
    rows: &RowScores,
    comparison: Option<&Comparison>,
) -> Result<()> {
    let page = render_html(results, rows, comparison)
        .map_err(|source| anyhow!("`{}`: {source}", path.display()))?;
    write_text(path, &page)
}

/// The whole report as one HTML page: no network, no clock, the same bytes for the same record.
pub(crate) fn render_html(
    results: &Results,
    rows: &RowScores,
    comparison: Option<&Comparison>,
) -> Result<String, serde_json::Error> {
    let title = format!("{}, {} profile", results.model.name, results.profile);
    let table =
        Summary::new(results, CheckpointChoice::reported(results), &headline_metrics(results));
    Ok(fill(
        TEMPLATE,
        &[
            ("title", &escape(&title)),
            ("style", STYLE),
            ("table", &escape(&render_text(&table))),
            ("results", &json(results)?),
            ("page", &json(&PageData::new(results, rows, comparison))?),
            ("licences", &LICENCES.join("\n")),
            ("plot", &PLOT.join("\n")),
            ("scripts", &SCRIPTS.join("\n")),
        ],
    ))
}

/// Puts parts in the places of a template that name them, `{{name}}`. Parts are not searched for places.
fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        let part = parts.iter().find(|(known, _)| *known == name);
        page.push_str(part.map_or("", |(_, text)| text));
        page.push_str(rest);
    }
    page
}

/// A value as JSON for a script element: no `<` can end it or open a comment.
fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(value)?.replace('<', "\\u003c"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
