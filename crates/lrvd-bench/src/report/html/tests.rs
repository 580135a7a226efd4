//! The page as a whole: well formed, self-contained, safe, and the same every time.

#![allow(clippy::unwrap_used)]

use super::render_html;
use crate::report::compare::compare;
use crate::report::published::Published;
use crate::report::record::{Results, RunStatus};
use crate::report::sample::sample_results;
use crate::report::summary::CheckpointChoice;

/// Elements of HTML that have no end tag.
const VOID: [&str; 4] = ["meta", "input", "br", "link"];

/// Checks that all tags close in the order in which they opened; the contents of style and script are skipped.
fn check_balance(html: &str) -> Result<usize, String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = html;
    let mut n = 0;
    while let Some(start) = rest.find('<') {
        let tail = &rest[start..];
        let end = tail.find('>').ok_or("a tag without end")?;
        let tag = &tail[1..end];
        rest = &tail[end + 1..];
        n += 1;
        if tag.starts_with('!') {
            continue;
        }
        if !tag.matches('"').count().is_multiple_of(2) {
            return Err(format!("an open quote in <{tag}>"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop().ok_or(format!("</{name}> closes nothing"))?;
            if last != name {
                return Err(format!("</{name}> closes <{last}>"));
            }
            continue;
        }
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        if name.is_empty() {
            return Err(format!("no tag name in <{tag}>"));
        }
        if tag.ends_with('/') || VOID.contains(&name.as_str()) {
            continue;
        }
        if name == "style" || name == "script" {
            rest =
                &rest[rest.find(&format!("</{name}>")).ok_or("style or script without end")?..];
        }
        open.push(name);
    }
    if open.is_empty() { Ok(n) } else { Err(format!("never closed: {open:?}")) }
}

fn page(results: &Results) -> String {
    let table = "metric,method,task,mean,std\naccuracy,LoRA,CoLA,0.858,0.011\nrank,LoRA,RTE,2,\n";
    let published = Published::parse(table, "published.csv").unwrap();
    let comparison = compare(results, &published, CheckpointChoice::Last);
    render_html(results, Some(&comparison))
}

#[test]
fn the_checker_finds_faults() {
    assert_eq!(check_balance("<a><b x=\"1\"/><br></a>"), Ok(4));
    for bad in ["<a>", "</a>", "<a><b></a></b>", "<a x=\"></a>", "<>", "<a"] {
        assert!(check_balance(bad).is_err(), "{bad}");
    }
}

#[test]
fn tags_balance_and_every_part_is_there() {
    let html = page(&sample_results());
    assert!(check_balance(&html).unwrap() > 1000);
    for part in [
        "Published and measured",
        "Rank dynamics",
        "Final rank patterns",
        "Calibration",
        "Relevance of every component",
        "Energy captured",
        "Parameters, time and memory",
        "Resolved configuration",
        "Notes and caveats",
        "Last checkpoint",
        "Best checkpoint",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("NaN") && !html.contains("inf\""));
}

#[test]
fn the_page_needs_no_network() {
    let html = page(&sample_results());
    for needle in ["http:", "https:", "src=", "@import", "url(\"", "//cdn", "<link"] {
        assert!(!html.contains(needle), "{needle}");
    }
    let inside = html.matches("url(").count();
    assert_eq!(inside, html.matches("url(#").count(), "only references into the page");
}

#[test]
fn names_cannot_become_markup() {
    let evil = "<script>alert(\"x\")</script>";
    let mut results = sample_results();
    let data = results.data["rte"].clone();
    results.data.insert(evil.to_owned(), data);
    for run in results.runs.iter_mut().filter(|run| run.task == "rte") {
        run.task = evil.to_owned();
        if run.method == "LoRA" {
            run.method = evil.to_owned();
        }
        for record in [&mut run.checkpoints.last, &mut run.checkpoints.best].into_iter().flatten() {
            record.ranks.insert(format!("encoder.layer.0.{evil}"), 3);
            if let Some(statistic) = &mut record.statistics {
                evil.clone_into(&mut statistic.name);
                statistic.present.insert(evil.to_owned(), vec![1.0]);
            }
            record.reliability.values_mut().for_each(|r| evil.clone_into(&mut r.convention));
        }
        run.status = RunStatus::Failed { reason: evil.to_owned() };
    }
    for text in [
        &mut results.profile,
        &mut results.preset,
        &mut results.command,
        &mut results.device,
        &mut results.started_at,
        &mut results.finished_at,
        &mut results.model.name,
        &mut results.model.path,
        &mut results.tool.version,
    ] {
        evil.clone_into(text);
    }
    results.tool.git_revision = Some(evil.to_owned());
    results.model.weights.insert(evil.to_owned(), evil.to_owned());
    results.config = serde_json::json!({ evil: evil });
    results.notes.push(evil.to_owned());
    let html = page(&results);
    assert!(!html.contains("<script>alert"), "markup came through");
    assert!(html.contains("&lt;script&gt;alert(&quot;x&quot;)"));
    assert_eq!(html.matches("<script").count(), 1, "the page's own");
    check_balance(&html).unwrap();
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    assert_eq!(page(&sample_results()), page(&sample_results()));
}

#[test]
fn an_empty_or_broken_record_still_makes_a_page() {
    let mut results = sample_results();
    for run in &mut results.runs {
        run.status = RunStatus::Interrupted;
        run.checkpoints.last = None;
        run.checkpoints.best = None;
        run.history.clear();
        run.rank_events.clear();
        run.train_seconds = f64::NAN;
    }
    check_balance(&page(&results)).unwrap();
    results.runs.clear();
    results.data.clear();
    results.config = serde_json::Value::Null;
    let html = render_html(&results, None);
    check_balance(&html).unwrap();
    assert!(html.contains("No run has been recorded."));
}
