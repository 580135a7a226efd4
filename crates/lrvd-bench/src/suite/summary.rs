//! The files that sum an experiment up, and its resolved settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::options::SuiteOptions;
use super::task::{ReadyTask, wording};
use crate::backbone::{Architecture, Backbone};
use crate::data::Wording;
use crate::error::Result;
use crate::io::{write_json_lines, write_text};
use crate::record::{RankLine, Results, write_results};
use crate::report::{
    Findings, Published, RowScores, Summary, compare, render_csv, render_markdown, render_text,
    write_html,
};
use crate::settings::Config;

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
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    stamp(seconds)
}

/// `seconds` since 1970 in the proleptic Gregorian calendar, UTC.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years (Howard Hinnant's civil-from-days).
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub(super) fn resolved(
    options: &SuiteOptions,
    config: &Config,
    backbone: &Backbone,
) -> Result<Value> {
    let mut settings = json!({
        "suite": options.suite.name(),
        "profile": options.profile.name(),
        "preset": options.preset.name(),
        "tasks": options.tasks.iter().map(|t| t.name()).collect::<Vec<_>>(),
        "methods": options.methods,
        "seeds": options.seeds,
        "device": options.device,
        "model": backbone.location.name,
        "weights": backbone.hashes,
        "data_dir": options.data_dir,
        "experiment": config,
    });
    let wordings = wordings(options, config, &backbone.architecture)?;
    if !wordings.is_empty() {
        settings["wording"] = json!(wordings);
    }
    Ok(settings)
}

/// How a language model is asked, by task; nothing for an encoder.
pub(super) fn wordings(
    options: &SuiteOptions,
    config: &Config,
    architecture: &Architecture,
) -> Result<BTreeMap<String, Wording>> {
    let worded = options.tasks.iter().map(|task| {
        let found = wording(*task, architecture, config)?;
        Ok(found.map(|wording| (task.name().to_owned(), wording)))
    });
    worded.filter_map(Result::transpose).collect()
}

/// SHA-256 of every data file, by task.
pub(super) fn data_files<'a>(tasks: impl Iterator<Item = &'a ReadyTask>) -> Value {
    let files = |task: &ReadyTask| -> Value {
        let splits = [&task.data.train, &task.data.validation];
        let files = splits.into_iter().flat_map(|split| &split.files);
        files.map(|file| (file.path.clone(), json!(file.sha256))).collect::<Map<_, _>>().into()
    };
    tasks.map(|task| (task.task.name().to_owned(), files(task))).collect::<Map<_, _>>().into()
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

    #[test]
    fn known_moments() {
        assert_eq!(stamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(stamp(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(stamp(1_000_000_000), "2001-09-09T01:46:40Z");
        assert_eq!(stamp(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
