//! The page as a whole: well formed, self-contained, safe, and the same every time.

#![allow(clippy::unwrap_used)]

use super::render_html;
use crate::report::compare::compare;
use crate::report::published::Published;
use crate::report::record::{Results, RunStatus};
use crate::report::sample::sample_results;
use crate::report::sample_reasoning::{sample_reasoning, six_tasks};
use crate::report::summary::{CheckpointChoice, Summary, headline_metrics};
use crate::report::table::{render_markdown, render_text};

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

/// Made-up published numbers of tasks of both samples, some without a partner.
const PUBLISHED: &str = "metric,method,task,mean,std\naccuracy,LoRA,CoLA,0.858,0.011\nrank,LoRA,RTE,2,\n\
accuracy,LoRA,OBQA,0.59,0.01\naccuracy,ENS,OBQA,0.62,0.01\naccuracy,LoRA,ARC-E,0.69,0.02\n\
accuracy,BayesLoRA_k0,OBQA,0.57,0.01\naccuracy,BayesLoRA_k10,OBQA,0.575,0.01\naccuracy,IVON_k10,OBQA,0.6,\n\
ece,LAP,OBQA,0.05,0.01\nece,BLoB_k10,OBQA,0.06,0.01\nparams_m,LoRA,all,4.48,\n\
params_m_min,BayesLoRA_k10,all,2.40,\nparams_m_max,BayesLoRA_k10,all,3.87,\n";

fn page(results: &Results) -> String {
    let table = PUBLISHED;
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
fn the_page_of_the_reasoning_suite_has_its_parts() {
    let html = page(&sample_reasoning());
    assert!(check_balance(&html).unwrap() > 1000);
    for part in [
        "Which method knows when it is wrong?",
        "Published and measured",
        "Lowest calibration error",
        "Mean over 2 tasks: last checkpoint, 10 draws",
        "OBQA: best checkpoint, posterior mean",
        "Calibration against accuracy",
        "What posterior draws buy",
        "Answering only where sure",
        "Questions of other sets",
        "Trained on OBQA",
        "Rank dynamics",
        "Relevance of every component",
        "Low-rank variational dropout",
        "Parameters, time and memory",
        "id=\"show-mean\"",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("NaN") && !html.contains("inf\""));
    assert!(!html.contains("How much rank"));
}

#[test]
fn ranks_are_shown_only_where_a_method_chooses_them() {
    let mut results = sample_reasoning();
    results.runs.retain(|run| !run.method.contains("BayesLoRA") && !run.method.contains("LRVD"));
    let html = page(&results);
    for part in ["Rank dynamics", "Final rank patterns", "Relevance of every", "Energy captured"] {
        assert!(!html.contains(part), "{part}");
    }
    let html = page(&sample_results());
    let patterns = html.split("Final rank patterns").nth(1).unwrap();
    let patterns = patterns.split("<details>").next().unwrap();
    assert!(patterns.contains("AdaLoRA</b>") && !patterns.contains(">LoRA</b>"));
}

#[test]
fn switches_need_no_script() {
    let html = page(&sample_reasoning());
    for id in ["show-last", "show-best", "show-draws", "show-mean"] {
        assert_eq!(html.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
        assert_eq!(html.matches(&format!("<label for=\"{id}\"")).count(), 1, "{id}");
        assert!(html.contains(&format!(":has(#{id}:checked)")), "{id}");
    }
    let mut results = sample_reasoning();
    results.runs.retain(|run| run.method == "LoRA");
    let html = page(&results);
    assert!(!html.contains("id=\"show-mean\""), "nothing to choose without draws");
}

#[test]
fn the_page_begins_with_the_checkpoint_of_the_settings() {
    for mut results in [sample_results(), sample_reasoning()] {
        for (said, other) in [("last", "best"), ("best", "last")] {
            results.config = serde_json::json!({ "experiment": { "checkpoint": said } });
            let html = page(&results);
            assert_eq!(html.matches(&format!("id=\"show-{said}\" checked>")).count(), 1, "{said}");
            assert_eq!(html.matches(&format!("id=\"show-{other}\" checked>")).count(), 0, "{said}");
            check_balance(&html).unwrap();
        }
    }
}

#[test]
fn kept_numbers_have_a_column_where_there_are_any() {
    assert!(page(&sample_reasoning()).contains(">+ Kept</th>"));
    assert!(!page(&sample_results()).contains(">+ Kept</th>"));
}

#[test]
fn the_page_needs_no_network() {
    let html = page(&sample_results()) + &page(&sample_reasoning());
    for needle in ["http:", "https:", "src=", "@import", "url(\"", "//cdn", "<link"] {
        assert!(!html.contains(needle), "{needle}");
    }
    let inside = html.matches("url(").count();
    assert_eq!(inside, html.matches("url(#").count(), "only references into the page");
}

#[test]
fn names_cannot_become_markup() {
    for (results, task) in [(sample_results(), "rte"), (sample_reasoning(), "obqa")] {
        let html = page(&with_markup(results, task));
        assert!(!html.contains("<script>alert"), "markup came through");
        assert!(html.contains("&lt;script&gt;alert(&quot;x&quot;)"));
        assert_eq!(html.matches("<script").count(), 1, "the page's own");
        check_balance(&html).unwrap();
    }
}

/// The results with markup in every text of a record.
fn with_markup(mut results: Results, task: &str) -> Results {
    let evil = "<script>alert(\"x\")</script>";
    let data = results.data[task].clone();
    results.data.insert(evil.to_owned(), data);
    for run in results.runs.iter_mut().filter(|run| run.task == task) {
        run.task = evil.to_owned();
        if let Some(sets) = run.elsewhere.values().next().cloned() {
            run.elsewhere.insert(evil.to_owned(), sets);
        }
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
        if run.seed == 1 {
            run.status = RunStatus::Failed { reason: evil.to_owned() };
        }
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
    results.suite = evil.to_owned();
    results.notes.push(evil.to_owned());
    results
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    assert_eq!(page(&sample_results()), page(&sample_results()));
    assert_eq!(page(&sample_reasoning()), page(&sample_reasoning()));
}

#[test]
fn an_empty_or_broken_record_still_makes_a_page() {
    for results in [sample_results(), sample_reasoning()] {
        check_broken(results);
    }
}

fn check_broken(mut results: Results) {
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

/// Writes the samples as pages into the temporary folder, for people to look at.
#[test]
#[ignore = "writes files for people"]
fn write_sample_pages() {
    let folder = std::env::temp_dir().join("lrvd-sample-pages");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, results) in [
        ("first-table", sample_results()),
        ("reasoning", sample_reasoning()),
        ("six-tasks", six_tasks()),
    ] {
        std::fs::write(folder.join(format!("{name}.html")), page(&results)).unwrap();
        for choice in CheckpointChoice::BOTH {
            let summary = Summary::new(&results, choice, &headline_metrics(&results));
            let path = |ending: &str| folder.join(format!("{name}-{}.{ending}", choice.name()));
            std::fs::write(path("txt"), render_text(&summary)).unwrap();
            std::fs::write(path("md"), render_markdown(&summary)).unwrap();
        }
    }
}
