//! The report of the finished runs: the same files from one process, an array of jobs, or several machines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use lrvd_burn::files::is_file;

use super::execute::now;
use super::grid::{Arms, Plan, arm_folder};
use crate::error::Result;
use crate::io::{read_json, write_json_lines, write_text};
use crate::record::{RankLine, Results, RunRecord, SCHEMA_VERSION, Tool};
use crate::report::{
    Claim, Comparison, Findings, Page, Published, RowScores, Summary, compare, judge, render_csv,
    render_markdown, render_pairs, render_runs, render_text,
};
use crate::run::{RECORD_FILE, still_there};
use crate::settings::CheckpointChoice;

/// The report of a suite: texts for a terminal, and its file.
#[derive(Clone, Debug)]
pub struct SuiteOutcome {
    pub finished: usize,
    pub planned: usize,
    /// The headline table as text; `None` before the first row.
    pub table: Option<String>,
    pub comparison: Option<String>,
    /// Findings: a sentence or two for every task.
    pub verdict: Vec<String>,
    pub report: PathBuf,
    pub results: Results,
}

impl SuiteOutcome {
    /// `true` if every run is finished; otherwise `--resume` continues.
    pub fn is_complete(&self) -> bool {
        self.finished == self.planned
    }
}

/// Writes `results.json`, tables and report of the plan in `out`, and of each arm.
pub fn collect(out: &Path) -> Result<SuiteOutcome> {
    let plan = Plan::read(out)?;
    let published = plan.options().compare.as_deref().map(Published::read).transpose()?;
    let mut whole: Option<(Results, RowScores)> = None;
    for (place, experiment) in plan.experiments.iter().enumerate() {
        let (mut results, mut rows) = experiment_results(&plan, place, out)?;
        let Some(arm) = &experiment.options.arm else {
            whole = Some((results, rows));
            continue;
        };
        if !results.runs.is_empty() {
            let folder = out.join(arm_folder(arm));
            still_there(&folder)?;
            results = write_files(&folder, results, &rows, None, None)?.results;
        }
        for run in &mut results.runs {
            run.method.clone_from(arm);
        }
        for methods in results.planned.values_mut() {
            *methods = BTreeMap::from([(arm.clone(), methods.values().sum())]);
        }
        rows.rename(arm);
        match &mut whole {
            None => whole = Some((results, rows)),
            Some((all, all_rows)) => {
                all.data.extend(results.data);
                for (task, methods) in results.planned {
                    all.planned.entry(task).or_default().extend(methods);
                }
                all.runs.extend(results.runs);
                all_rows.extend(rows);
            }
        }
    }
    let (mut results, rows) = whole.ok_or_else(|| anyhow!("`{}`: no experiment", out.display()))?;
    if let Some(arms) = &plan.arms {
        let suite = plan.options().suite;
        results.config = arms.settings(suite);
        "arms".clone_into(&mut results.profile);
        arms.preset(suite).clone_into(&mut results.preset);
    }
    still_there(out)?;
    let claims = plan.arms.as_ref().map(Arms::claims).transpose()?;
    let published = published.as_ref().filter(|_| claims.is_none());
    write_files(out, results, &rows, published, claims.as_deref())
}

/// The finished rows of an experiment, in the order of the plan.
fn experiment_results(plan: &Plan, place: usize, out: &Path) -> Result<(Results, RowScores)> {
    let experiment = &plan.experiments[place];
    let options = &experiment.options;
    let mut records = Vec::new();
    let mut scores = RowScores::default();
    let mut planned: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for run in plan.runs.iter().filter(|run| run.experiment == place && !run.is_member) {
        let methods = planned.entry(run.task.name().to_owned()).or_default();
        *methods.entry(run.method.name()).or_default() += 1;
        let folder = out.join(&run.folder);
        let path = folder.join(RECORD_FILE);
        if is_file(&path)? {
            let record: RunRecord = read_json(&path)?;
            let data = experiment.data.get(&record.task);
            let standard = data.map_or("accuracy", |data| &data.standard_metric);
            scores.read(&folder, &record, standard)?;
            records.push(record);
        }
    }
    let is_reported = |task: &String| records.iter().any(|record| record.task == *task);
    let data = experiment.data.iter().filter(|(task, _)| is_reported(task));
    let results = Results {
        schema_version: SCHEMA_VERSION,
        suite: options.suite.name().to_owned(),
        tool: Tool {
            name: "lrvd".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_revision: options.git_revision.clone(),
        },
        profile: options.profile.name().to_owned(),
        preset: options.preset.name().to_owned(),
        command: options.command.clone(),
        device: options.device.clone(),
        started_at: plan.started_at.clone(),
        finished_at: now(),
        config: experiment.settings.clone(),
        model: plan.backbone.clone(),
        data: data.map(|(task, data)| (task.clone(), data.clone())).collect(),
        notes: Vec::new(),
        planned,
        runs: records,
    };
    Ok((results, scores))
}

fn notes(complete: bool) -> Vec<String> {
    let mut notes = vec![
        "k = 0 is a method's deterministic answer (the posterior mean where there is one); k draws \
         average probabilities over fixed keyed draws"
            .to_owned(),
        "last and best checkpoint are separate; each one's ranks and metrics belong together"
            .to_owned(),
    ];
    if !complete {
        notes.push("the experiment was interrupted; `--resume` continues it".to_owned());
    }
    notes
}

/// Writes `results.json`, `ranks.jsonl`, the tables and the page into `out`. Both checkpoints have a CSV file; the printed
/// table, `table.md` and the comparison are of the one that the settings report. `claims` are judged, and their verdicts are notes
/// of the results.
fn write_files(
    out: &Path,
    mut results: Results,
    rows: &RowScores,
    published: Option<&Published>,
    claims: Option<&[Claim]>,
) -> Result<SuiteOutcome> {
    let finished = results.runs.len();
    let planned = results.planned.values().flat_map(BTreeMap::values).sum::<u64>() as usize;
    results.notes = notes(finished == planned);
    let summary = Summary::new(&results, rows);
    for choice in CheckpointChoice::BOTH {
        let csv = render_csv(&summary.at(choice));
        write_text(&out.join(format!("table-{}.csv", choice.name())), &csv)?;
    }
    let verdicts = claims.map(|claims| judge(&summary, claims)).unwrap_or_default();
    let pairs = claims.map(|_| render_pairs(&verdicts));
    if pairs.is_some() {
        write_text(&out.join("arms.csv"), &render_runs(&summary))?;
    }
    let compared = published.map(|published| compare(&summary, published));
    let findings = Findings::new(&summary)?;
    let lead = findings.lead();
    let verdict = findings.verdict();
    let mut markdown =
        format!("{lead}\n\n{}\n{}\n", render_markdown(&summary), verdict.join("\n\n"));
    if let Some(pairs) = &pairs {
        markdown = format!("{markdown}\n{pairs}");
    }
    markdown.extend(compared.as_ref().map(Comparison::render_markdown));
    write_text(&out.join("table.md"), &markdown)?;
    let page = Page::new(&summary, &findings, compared.as_ref());
    let table = (finished > 0).then(|| format!("{lead}\n\n{}", render_text(&summary)));
    let compared = compared.filter(|_| finished > 0).map(|compared| compared.render_text());

    results.notes.extend(verdicts.iter().map(|verdict| verdict.cells().join("; ")));
    write_text(&out.join("results.json"), &(serde_json::to_string_pretty(&results)? + "\n"))?;
    let events = results.runs.iter().flat_map(|run| {
        let RunRecord { task, method, seed, .. } = run;
        run.rank_events.iter().map(move |event| RankLine { task, method, seed: *seed, event })
    });
    write_json_lines(&out.join("ranks.jsonl"), events)?;
    let report = out.join("report.html");
    let html = page.render(&results).with_context(|| format!("`{}`", report.display()))?;
    write_text(&report, &html)?;
    let comparison = pairs.or(compared);
    Ok(SuiteOutcome { finished, planned, table, comparison, verdict, report, results })
}
