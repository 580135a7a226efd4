//! The files that sum an experiment up.

use std::path::{Path, PathBuf};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::Result;
use crate::io::{write_json_lines, write_text};
use crate::record::{RankLine, Results, write_results};
use crate::report::{
    Findings, Published, RowScores, Summary, compare, render_csv, render_markdown, render_text,
    write_html,
};

pub(super) struct Written {
    /// The headline table as text, if it has a row.
    pub table: Option<String>,
    pub comparison: Option<String>,
    pub verdict: Vec<String>,
    pub report: PathBuf,
}

/// Writes `results.json`, `ranks.jsonl`, the tables and the page into `out`. Both checkpoints have a CSV
/// file; the printed table, `table.md` and the comparison speak of the one that the settings say to
/// report. `below` stands below the table.
pub(super) fn write_summary(
    out: &Path,
    results: &Results,
    rows: &RowScores,
    published: Option<&Published>,
    below: Option<&str>,
) -> Result<Written> {
    write_results(&out.join("results.json"), results)?;
    let events = results.runs.iter().flat_map(|run| {
        run.rank_events.iter().map(|event| RankLine {
            task: run.task.clone(),
            method: run.method.clone(),
            seed: run.seed,
            step: event.step,
            cause: event.cause,
            ranks: event.ranks.clone(),
            total_rank: event.total_rank,
        })
    });
    write_json_lines(&out.join("ranks.jsonl"), events)?;
    let both = Summary::both(results, rows);
    for summary in &both {
        write_text(
            &out.join(format!("table-{}.csv", summary.choice.name())),
            &render_csv(summary),
        )?;
    }
    let summary = Summary::reported(&both);
    let comparison = published.map(|published| compare(summary, published));
    let findings = Findings::new(summary);
    let (lead, verdict) = (findings.lead(), findings.verdict());
    let mut markdown =
        format!("{lead}\n\n{}\n{}\n", render_markdown(summary), verdict.join("\n\n"));
    if let Some(below) = below {
        markdown = format!("{markdown}\n{below}");
    }
    if let Some(comparison) = &comparison {
        markdown.push_str(&comparison.render_markdown());
    }
    write_text(&out.join("table.md"), &markdown)?;
    let report = out.join("report.html");
    write_html(&report, &both, &findings, comparison.as_ref())?;
    let has_runs = !results.runs.is_empty();
    let table = has_runs.then(|| format!("{lead}\n\n{}", render_text(summary)));
    let comparison = comparison.filter(|_| has_runs).map(|c| c.render_text());
    Ok(Written { table, comparison, verdict, report })
}

/// The present moment as `YYYY-MM-DDThh:mm:ssZ`.
pub(super) fn now() -> String {
    let now = OffsetDateTime::now_utc().truncate_to_second();
    // Fails for years beyond 9999 only.
    now.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::method::MethodName;
    use crate::record::RunRecord;
    use crate::record::sample::{sample_results, set_accuracy};

    #[test]
    fn methods_that_this_build_does_not_have_are_reported_by_name() {
        let mut results = sample_results();
        let old =
            ["ENS-logits", "BBB-BT", "LAP-last", "BayesLoRA-expanded", "BayesLoRA-expanded+TS"];
        let lora: Vec<_> =
            results.runs.iter().filter(|run| run.method == "LoRA").cloned().collect();
        for method in old {
            assert!(MethodName::from_name(method).is_none(), "{method}");
            let renamed =
                lora.iter().map(|run| RunRecord { method: method.to_owned(), ..run.clone() });
            results.runs.extend(renamed);
        }
        let table = "metric,method,task,mean,std\naccuracy,BayesLoRA_expanded,RTE,0.5,\n";
        let published = Published::parse(table, "published.csv").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let rows = RowScores::default();
        let written =
            write_summary(folder.path(), &results, &rows, Some(&published), None).unwrap();
        assert!(written.comparison.unwrap().contains("BayesLoRA-expanded"));
        let text = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
        let (page, table) = (text("report.html"), written.table.unwrap());
        let (markdown, csv) = (text("table.md"), text("table-last.csv"));
        for method in old {
            for text in [&page, &table, &markdown, &csv] {
                assert!(text.contains(method), "{method}: {text}");
            }
        }
    }

    #[test]
    fn the_settings_decide_what_is_reported() {
        let mut results = sample_results();
        set_accuracy(&mut results, "rte", "LoRA", &[(0.25, 0.75); 3]);
        let table = "metric,method,task,mean,std\naccuracy,LoRA,RTE,0.5,\n";
        let published = Published::parse(table, "published.csv").unwrap();
        let cells =
            [("last", "0.250 ±.000", "0.750 ±.000"), ("best", "0.750 ±.000", "0.250 ±.000")];
        for (said, shown, other) in cells {
            results.config = serde_json::json!({ "experiment": { "checkpoint": said } });
            let folder = tempfile::tempdir().unwrap();
            let written = write_summary(
                folder.path(),
                &results,
                &RowScores::default(),
                Some(&published),
                None,
            )
            .unwrap();
            let markdown = std::fs::read_to_string(folder.path().join("table.md")).unwrap();
            for text in [markdown, written.table.unwrap(), written.comparison.unwrap()] {
                assert!(text.contains(shown) && !text.contains(other), "{said}: {text}");
            }
            for (file, mean) in [("table-last.csv", "0.25"), ("table-best.csv", "0.75")] {
                let csv = std::fs::read_to_string(folder.path().join(file)).unwrap();
                assert!(csv.contains(&format!("\naccuracy,LoRA,RTE,{mean},0\n")), "{file}: {csv}");
            }
        }
    }
}
