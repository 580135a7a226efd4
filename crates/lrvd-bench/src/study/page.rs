//! The table of every number, and the page that a person reads.

use std::fmt::Write as _;

use super::design::{Column, Study};
use super::error::StudyError;
use super::evidence::Evidence;
use super::figure;
use super::options::StudyOptions;
use super::run::{StudyOutcome, StudyPlan};
use crate::io::write_text;
use crate::report::Spread;

/// Writes CSV, images and page.
pub(super) fn write(
    options: &StudyOptions,
    plan: &StudyPlan,
    evidence: &Evidence,
    outcome: &StudyOutcome,
) -> Result<(), StudyError> {
    let failed = |source| StudyError::Table { path: outcome.table.clone(), source };
    write_text(&outcome.table, &table(evidence).map_err(failed)?)?;
    for (figure, path) in options.study.figures.iter().zip(&outcome.figures) {
        write_text(path, &figure::svg(figure, evidence))?;
    }
    Ok(write_text(&outcome.page, &page(options, plan, evidence, outcome))?)
}

/// What a metric of single rows begins with: too many numbers for the table.
const ROWS: &str = "row ";

/// `arm,task,seed,metric,at,value`, one line for each number that is not a single row's.
fn table(evidence: &Evidence) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["arm", "task", "seed", "metric", "at", "value"])?;
    for o in evidence.observations.iter().filter(|o| !o.found.metric.starts_with(ROWS)) {
        let at = o.found.at.map_or_else(String::new, |at| at.to_string());
        let (seed, value) = (o.seed.to_string(), o.found.value.to_string());
        writer.write_record([&o.arm, &o.task, &seed, &o.found.metric, &at, &value])?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Headings, then a row for every arm and task that has a run.
pub(super) fn rows(study: &Study, evidence: &Evidence) -> Vec<Vec<String>> {
    let tasks = evidence.tasks();
    let columns = study.columns.iter().map(|c| c.heading.to_owned());
    let mut rows = vec![["arm", "task"].map(str::to_owned).into_iter().chain(columns).collect()];
    for arm in &evidence.arms {
        for task in &tasks {
            let cells = study.columns.iter().map(|column| cell(evidence, &arm.label, task, column));
            let cells: Vec<String> = cells.collect();
            if cells.iter().any(|cell| cell != "–") {
                let names = [arm.label.clone(), (*task).to_owned()];
                rows.push(names.into_iter().chain(cells).collect());
            }
        }
    }
    rows
}

fn cell(evidence: &Evidence, arm: &str, task: &str, column: &Column) -> String {
    printed(evidence.spread(arm, task, column.quantity), column.digits)
}

fn printed(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => "–".to_owned(),
        Some(spread) => {
            let std = spread.std.map_or_else(String::new, |std| format!(" ±{std:.digits$}"));
            format!("{:.digits$}{std}", spread.mean)
        }
    }
}

fn page(
    options: &StudyOptions,
    plan: &StudyPlan,
    evidence: &Evidence,
    outcome: &StudyOutcome,
) -> String {
    let study = options.study;
    let mut text = format!("# Study `{}`\n\n{}\n\n", study.name, study.question);
    let _ = writeln!(text, "```console\n{}\n```\n", options.command);
    if let Some((_, first)) = plan.arms.first() {
        let data = match &options.data_dir {
            Some(_) => "real text",
            None => "generated text",
        };
        let _ = writeln!(
            text,
            "{} of {} runs on {data}: {} steps of batch {}, model {} ({} layers, hidden {}), {} adapted modules, \
             revision {}. Every arm begins with the [study recipe](../guides/studies.md); last checkpoint; mean ± \
             sample standard deviation over seeds.\n",
            outcome.finished,
            outcome.planned,
            plan.steps,
            first.settings.batch_size,
            short(&first.model.name),
            first.model.layers,
            first.model.hidden,
            first.modules,
            options.git_revision.as_deref().unwrap_or("unknown"),
        );
    }
    if !outcome.complete {
        let _ = writeln!(text, "**Incomplete**: `--resume` makes the other runs.\n");
    }
    text.push_str("## Claims\n\n| claim | source | verdict | numbers |\n|---|---|---|---|\n");
    for claim in &outcome.claims {
        let because = claim.judgement.because.join("; ");
        let verdict = claim.judgement.verdict;
        let _ =
            writeln!(text, "| {} | {} | **{verdict}** | {because} |", claim.sentence, claim.source);
    }
    text.push_str(
        "\nDifferences are paired by task and seed, with the standard error of their mean. Holds and fails need two \
         standard errors; one seed says neither.\n\n## Numbers\n\n",
    );
    for (place, row) in outcome.rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if place == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    for (place, row) in named_rows(evidence).iter().enumerate() {
        let _ = writeln!(text, "{}| {} |", if place == 0 { "\n" } else { "" }, row.join(" | "));
        if place == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    let _ = writeln!(text, "\nEvery number: [{0}.csv]({0}.csv).", study.name);
    for (figure, path) in study.figures.iter().zip(&outcome.figures) {
        let file = path.file_name().unwrap_or_default().display();
        let _ = writeln!(text, "\n![{}]({file})", figure.title);
    }
    if !study.notes.is_empty() {
        let _ = writeln!(text, "\n## Notes\n\n{}", study.notes.trim());
    }
    text
}

/// Headings, then a row for every arm, task and name `n` of metrics `x/n`; empty where there is none.
fn named_rows(evidence: &Evidence) -> Vec<Vec<String>> {
    let metrics: Vec<&str> =
        evidence.named_metrics().into_iter().filter(|m| !m.starts_with(ROWS)).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for arm in &evidence.arms {
        for task in evidence.tasks() {
            for name in evidence.names(&arm.label) {
                let spread = |metric: &str| {
                    evidence.metric_spread(&arm.label, task, &format!("{metric}/{name}"), None)
                };
                let cells = metrics.iter().map(|metric| printed(spread(metric), 4));
                let names = [arm.label.as_str(), task, name].map(str::to_owned);
                rows.push(names.into_iter().chain(cells).collect());
            }
        }
    }
    if !rows.is_empty() {
        let headings = ["arm", "task", "candidate"].into_iter().chain(metrics);
        rows.insert(0, headings.map(str::to_owned).collect());
    }
    rows
}

/// The last part of a folder's name.
fn short(name: &str) -> &str {
    name.trim_end_matches('/').rsplit('/').next().unwrap_or(name)
}
