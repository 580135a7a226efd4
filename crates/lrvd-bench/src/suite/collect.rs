//! The report of whatever is finished: the same files from one process, an array of jobs, or several machines.

use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::arms::finish;
use super::plan::Plan;
use super::summary::{Written, now, write_summary};
use crate::error::Result;
use crate::io::read_json;
use crate::record::{Results, RunRecord, SCHEMA_VERSION, Tool};
use crate::report::{Published, RowScores, Verdict};
use crate::run::{RECORD_FILE, still_there};

#[derive(Clone, Debug)]
pub struct SuiteOutcome {
    /// Whether every run is complete; otherwise `--resume` continues.
    pub complete: bool,
    pub finished: usize,
    pub planned: usize,
    /// The headline table as text; `None` before the first row.
    pub table: Option<String>,
    pub comparison: Option<String>,
    /// What the runs showed, in words: a sentence or two for every task.
    pub verdict: Vec<String>,
    pub report: PathBuf,
    pub results: Results,
    /// Comparisons of arms.
    pub verdicts: Vec<Verdict>,
}

/// Writes `results.json`, tables and report of the plan in `out`, and of each arm.
pub fn collect(out: &Path) -> Result<SuiteOutcome> {
    let plan = Plan::read(out)?;
    let published = plan.compare.as_deref().map(Published::read).transpose()?;
    let planned = plan.runs.iter().filter(|run| !run.is_member).count();
    let mut whole: Option<(Results, RowScores)> = None;
    for (place, experiment) in plan.experiments.iter().enumerate() {
        let (mut results, mut rows) = experiment_results(&plan, place, out)?;
        let Some(arm) = &experiment.arm else {
            whole = Some((results, rows));
            continue;
        };
        if !results.runs.is_empty() {
            let folder = plan.place(out, place);
            still_there(&folder)?;
            write_summary(&folder, &results, &rows, None, None)?;
        }
        for run in &mut results.runs {
            run.method.clone_from(arm);
        }
        rows.rename(arm);
        match &mut whole {
            None => whole = Some((results, rows)),
            Some((all, all_rows)) => {
                all.data.extend(results.data);
                all.runs.extend(results.runs);
                all_rows.extend(rows);
            }
        }
    }
    let (mut results, rows) = whole.ok_or_else(|| anyhow!("`{}`: no experiment", out.display()))?;
    let finished = results.runs.len();
    let complete = finished == planned;
    results.notes = notes(complete);
    still_there(out)?;
    let (written, verdicts) = match &plan.arms {
        None => (write_summary(out, &results, &rows, published.as_ref(), None)?, Vec::new()),
        Some(arms) => {
            results.config.clone_from(&arms.settings);
            "arms".clone_into(&mut results.profile);
            results.preset.clone_from(&arms.preset);
            finish(&arms.file, &mut results, &rows, out)?
        }
    };
    let Written { table, comparison, verdict, report } = written;
    Ok(SuiteOutcome {
        complete,
        finished,
        planned,
        table,
        comparison,
        verdict,
        report,
        results,
        verdicts,
    })
}

/// The finished rows of an experiment, in the order of the plan.
fn experiment_results(plan: &Plan, place: usize, out: &Path) -> Result<(Results, RowScores)> {
    let experiment = &plan.experiments[place];
    let (mut records, mut scores) = (Vec::new(), RowScores::default());
    let own = plan.runs.iter().filter(|run| run.experiment == place && !run.is_member);
    let rows = own.clone().count();
    for run in own {
        let folder = out.join(plan.folder(run));
        let path = folder.join(RECORD_FILE);
        if path.is_file() {
            let record: RunRecord = read_json(&path)?;
            scores.read(&folder, &record.task, &record.method, record.seed)?;
            records.push(record);
        }
    }
    let is_reported = |task: &String| records.iter().any(|record| record.task == *task);
    let data = experiment.data.iter().filter(|(task, _)| is_reported(task));
    let results = Results {
        schema_version: SCHEMA_VERSION,
        suite: plan.suite.name().to_owned(),
        tool: Tool {
            name: "lrvd".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_revision: plan.git_revision.clone(),
        },
        profile: plan.profile.name().to_owned(),
        preset: experiment.preset.clone(),
        command: plan.command.clone(),
        device: plan.device.clone(),
        started_at: plan.started_at.clone(),
        finished_at: now(),
        config: experiment.settings.clone(),
        model: plan.backbone.clone(),
        data: data.map(|(task, data)| (task.clone(), data.clone())).collect(),
        notes: notes(records.len() == rows),
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
