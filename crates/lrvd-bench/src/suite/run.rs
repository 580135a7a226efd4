//! A suite in one process, as a plan for several, and what has become of a plan.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lrvd_burn::device;
use lrvd_burn::train::latest_checkpoint;
use serde::Serialize;

use super::arms::Arms;
use super::claim::WorkerName;
use super::collect::{SuiteOutcome, collect};
use super::options::SuiteOptions;
use super::plan::Plan;
use super::runs::PlannedRun;
use super::start::{Started, start};
use super::worker::{Worker, WorkerOptions, claims, failed_file};
use crate::error::Result;
use crate::progress::ProgressSink;
use crate::run::CHECKPOINT_DIR;

/// Plans the suite, or its `arms`, makes every run in this process, and reports.
pub fn run_suite(
    options: &SuiteOptions,
    arms: Option<&Arms>,
    worker: WorkerOptions,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<SuiteOutcome> {
    let device = device::open(&options.device)?;
    let Started { backbone, tasks, folder, .. } = start(options, arms, Some(&device), sink)?;
    let mut worker = Worker::open(&options.out, worker, stop)?.with(backbone, device, tasks);
    worker.run_all(sink)?;
    folder.still_there()?;
    collect(&options.out)
}

/// Writes the plan of the suite, or of its `arms`, for workers.
pub fn write_plan(
    options: &SuiteOptions,
    arms: Option<&Arms>,
    sink: &mut dyn ProgressSink,
) -> Result<Plan> {
    Ok(start(options, arms, None, sink)?.plan)
}

/// What has become of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    Finished,
    Running,
    /// With a checkpoint to continue from, and no worker.
    Interrupted,
    Failed,
    /// A run that it needs is not finished.
    Waiting,
    Ready,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    pub index: usize,
    pub id: String,
    pub run: String,
    pub state: RunState,
    /// Of its newest checkpoint; all of them once it is finished.
    pub step: usize,
    pub steps: usize,
    /// Its worker, what it waits for, or why it failed.
    pub note: String,
}

/// What has become of every run of the plan in `out`. `name` is the one who looks, and `dead_after` the time after which a
/// silent worker counts as dead.
pub fn status(out: &Path, name: WorkerName, dead_after: Duration) -> Result<Vec<RunStatus>> {
    let plan = Plan::read(out)?;
    let claims = claims(out, name, dead_after);
    let of = |(index, run): (usize, &PlannedRun)| {
        let folder = out.join(plan.folder(run));
        let steps = plan.steps(run);
        let newest = latest_checkpoint(&folder.join(CHECKPOINT_DIR))?;
        let step = newest.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let step = step.and_then(|name| name.rsplit('-').next()?.parse().ok()).unwrap_or(0);
        let (state, note) = if plan.is_finished(out, run) {
            (RunState::Finished, String::new())
        } else if let Some(worker) = claims.living(&run.id)? {
            (RunState::Running, worker)
        } else if let Ok(why) = std::fs::read_to_string(failed_file(out, run)) {
            (RunState::Failed, why.trim_end().to_owned())
        } else if let Some(missing) = plan.missing(out, run) {
            (RunState::Waiting, format!("needs {}", missing.label()))
        } else if newest.is_some() {
            (RunState::Interrupted, String::new())
        } else {
            (RunState::Ready, String::new())
        };
        let step = if state == RunState::Finished { steps } else { step };
        let (id, run) = (run.id.clone(), run.label());
        Ok(RunStatus { index, id, run, state, step, steps, note })
    };
    plan.runs.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Profile, Suite};

    #[test]
    fn every_task_has_a_key_of_its_own() {
        let tasks = [Suite::Glue, Suite::Reasoning].map(|s| s.tasks(Profile::Paper, true));
        let mut keys: Vec<&str> = tasks.iter().flatten().map(|t| t.name()).collect();
        let n = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), n);
    }
}
