//! The files that sum an experiment up.

use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::report::{
    CheckpointChoice, Comparison, JsonLines, Published, RankLine, Results, Summary, compare,
    headline_metrics, render_csv, render_markdown, render_text, write_html, write_results,
    write_text,
};

/// What is printed at the end.
pub(super) struct Written {
    /// The headline table as text.
    pub table: String,
    /// The comparison with published numbers as text.
    pub comparison: Option<String>,
    /// The report page.
    pub report: PathBuf,
}

/// Writes `results.json`, `ranks.jsonl`, the tables and the page into `out`.
pub(super) fn write_summary(
    out: &Path,
    results: &Results,
    published: Option<&Published>,
) -> Result<Written, BenchError> {
    write_results(&out.join("results.json"), results)?;
    let mut lines = JsonLines::create(&out.join("ranks.jsonl"))?;
    for run in &results.runs {
        for event in &run.rank_events {
            lines.write(&RankLine {
                task: run.task.clone(),
                method: run.method.clone(),
                seed: run.seed,
                step: event.step,
                cause: event.cause,
                ranks: event.ranks.clone(),
                total_rank: event.total_rank,
            })?;
        }
    }
    lines.flush()?;
    let metrics = headline_metrics(results);
    let mut markdown = String::new();
    for choice in CheckpointChoice::BOTH {
        let summary = Summary::new(results, choice, &metrics);
        write_text(&out.join(format!("table-{}.csv", choice.name())), &render_csv(&summary))?;
        markdown.push_str(&render_markdown(&summary));
        markdown.push('\n');
    }
    let comparison: Option<Comparison> =
        published.map(|published| compare(results, published, CheckpointChoice::Last));
    if let Some(comparison) = &comparison {
        markdown.push_str(&comparison.render_markdown());
    }
    write_text(&out.join("table.md"), &markdown)?;
    let report = out.join("report.html");
    write_html(&report, results, comparison.as_ref())?;
    let summary = Summary::new(results, CheckpointChoice::Last, &metrics);
    let table = render_text(&summary);
    Ok(Written { table, comparison: comparison.map(|c| c.render_text()), report })
}
