//! Workers, which make the runs of a plan: one, or all that can be made. A single process, a job array and several machines
//! use them alike. `status` lists the states of the runs.

mod claim;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::device;
use lrvd_burn::train::latest_checkpoint;
use serde::Serialize;
use tracing::debug;

pub use claim::WorkerName;
use claim::{ClaimAttempt, Claims};

use super::arms::Arms;
use super::collect::{SuiteOutcome, collect};
use super::data::{ReadyTask, Tasks, data_files, load};
use super::execute::{Records, RunInput};
use super::grid::SuiteOptions;
use super::plan::{Plan, hashes};
use super::prepare::{Started, open_backbone, start};
use super::runs::{PLAN_DIR, PlannedRun, needed};
use crate::backbone::Backbone;
use crate::error::{Error, Kind, Result, kind_of};
use crate::io::{cannot, create_dir, read_json, write_text};
use crate::progress::Event;
use crate::record::RunRecord;
use crate::run::{
    CHECKPOINT_DIR, CLAIMS_DIR, DATA_DIR, RECORD_FILE, clear, remove_parts, still_there, summary,
};

const FAILED_DIR: &str = "failed";
/// Time between two looks at the runs of other workers.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Time without a heartbeat after which a worker counts as dead by default.
pub const DEAD_AFTER: Duration = Duration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Done,
    Needs(String),
    Claimed(String),
    /// A process of this machine without heartbeats still has the lock on the folder.
    InUse(String),
    /// A stop request ended it after a checkpoint.
    Stopped,
}

#[derive(Clone, Debug)]
pub struct WorkerOptions {
    pub name: WorkerName,
    /// Time without a heartbeat after which another worker counts as dead.
    pub dead_after: Duration,
    /// `true` if other runs are made after one has failed.
    pub continues: bool,
}

impl WorkerOptions {
    /// The worker of a process that stops at the first error.
    pub fn alone(name: WorkerName) -> Self {
        Self { name, dead_after: DEAD_AFTER, continues: false }
    }
}

pub struct Worker<'a> {
    out: PathBuf,
    plan: Plan,
    /// Opened for the first run that is made.
    model: Option<Rc<(Backbone, Device)>>,
    tasks: Tasks,
    claims: Claims,
    continues: bool,
    stop: &'a AtomicBool,
}

impl<'a> Worker<'a> {
    pub fn open(out: &Path, options: WorkerOptions, stop: &'a AtomicBool) -> Result<Self> {
        let WorkerOptions { name, dead_after, continues } = options;
        let claims = claims(out, name, dead_after);
        let plan = Plan::read(out)?;
        still_there(out)?;
        let tasks = Tasks::default();
        Ok(Self { out: out.to_owned(), plan, model: None, tasks, claims, continues, stop })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Makes every run that is not finished and that no other worker has, and waits for the runs that these need.
    pub fn run_all(&mut self, sink: &mut dyn FnMut(&Event)) -> Result<Step> {
        let runs = self.plan.runs.len();
        let mut open: Vec<usize> = (0..runs).collect();
        let mut failed: Option<Error> = None;
        let mut noted = BTreeSet::new();
        while !open.is_empty() {
            let before = open.len();
            let mut left = Vec::new();
            let mut waits = false;
            for index in std::mem::take(&mut open) {
                match self.run(index, sink) {
                    Ok(Step::Done) => {}
                    Ok(Step::Claimed(_)) => left.push(index),
                    Ok(Step::Needs(_)) => {
                        left.push(index);
                        waits = true;
                    }
                    Ok(Step::InUse(why)) => {
                        left.push(index);
                        waits = true;
                        if noted.insert(index) {
                            sink(&Event::Note(format!("waiting: {why}")));
                        }
                    }
                    Ok(Step::Stopped) => return Ok(Step::Stopped),
                    Err(error) if self.continues && self.may_continue(&error) => {
                        sink(&Event::Note(format!("{error:#}")));
                        failed.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
                if self.stop.load(Ordering::Relaxed) && (index + 1 < runs || !left.is_empty()) {
                    return Ok(Step::Stopped);
                }
            }
            if !waits && !left.is_empty() {
                sink(&Event::Note(format!("other workers make {} runs", left.len())));
                break;
            }
            if left.len() == before {
                std::thread::sleep(LOOK_AGAIN);
            }
            open = left;
        }
        failed.map_or(Ok(Step::Done), Err)
    }

    /// `true` if `error` is of one run. Without the hub or the disk the others would fail as well.
    fn may_continue(&self, error: &Error) -> bool {
        kind_of(error) != Some(Kind::Unavailable) && !self.stop.load(Ordering::Relaxed)
    }

    /// Makes the run at `index`, unless it is finished.
    pub fn run(&mut self, index: usize, sink: &mut dyn FnMut(&Event)) -> Result<Step> {
        let run = self.plan.runs[index].clone();
        let place = run.experiment_folder(&self.out);
        still_there(&place)?;
        let is_finished = run.is_finished(&self.out);
        if !is_finished && let Some(needed) = self.missing(&run)? {
            return Ok(Step::Needs(needed));
        }
        let claims = self.claims.clone();
        let claim = match claims.take(&run.id)? {
            ClaimAttempt::Won(claim) => claim,
            ClaimAttempt::Lost(_) if is_finished => return Ok(Step::Done),
            ClaimAttempt::Lost(holder) => return Ok(Step::Claimed(holder)),
        };
        debug!(run = %run.label(), id = %run.id, "claimed");
        claim.warning().into_iter().for_each(|text| sink(&Event::Note(text)));
        let failed = failed_file(&self.out, &run);
        let stop = self.stop;
        match claim.hold(stop, |own_stop| self.make(&run, own_stop, sink)) {
            Ok(None) => {
                let silent = self.claims.dead_after.as_secs();
                let label = run.label();
                sink(&Event::Note(format!(
                    "{label}: lost the claim, no heartbeat for {silent} s, another worker took it over"
                )));
                Ok(Step::Claimed("another worker".to_owned()))
            }
            Ok(Some(step)) => match fs::remove_file(&failed) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(cannot("remove", &failed)(error))
                }
                _ => Ok(step),
            },
            Err(error) if kind_of(&error) == Some(Kind::InUse) => {
                Ok(Step::InUse(format!("{}: {error:#}", run.label())))
            }
            Err(error) => {
                // An error that a later start may not meet is not a failure of the run.
                let is_final = kind_of(&error) != Some(Kind::Unavailable);
                if is_final && still_there(&place).is_ok() {
                    create_dir(&self.out.join(PLAN_DIR).join(FAILED_DIR))?;
                    write_text(&failed, &format!("{error:#}\n"))?;
                }
                Err(error)
            }
        }
    }

    /// The first run that `run` needs and that is not finished; an error if that one has failed.
    fn missing(&self, run: &PlannedRun) -> Result<Option<String>> {
        let Some(needed) = self.plan.missing(&self.out, run) else { return Ok(None) };
        match fs::read_to_string(failed_file(&self.out, needed)) {
            Ok(why) if self.claims.living(&needed.id)?.is_none() => Err(anyhow!(
                "{}: needs {}, which failed: {}",
                run.label(),
                needed.label(),
                why.trim_end()
            )),
            _ => Ok(Some(needed.label())),
        }
    }

    fn make(
        &mut self,
        run: &PlannedRun,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(&Event),
    ) -> Result<Step> {
        let folder = self.out.join(&run.folder);
        let record = folder.join(RECORD_FILE);
        if record.is_file() {
            clear(&folder)?;
            // A kill at the end of a run leaves no last line in the metrics of a single process. A combined row has no lines.
            if !self.continues && !run.is_combined() {
                let record: RunRecord = read_json(&record)?;
                let goal = &self.task(run)?.prepared.goal;
                let label = run.label();
                let seconds = record.train_seconds;
                sink(&Event::RunFinished { label, summary: summary(&record, goal), seconds });
            }
            return Ok(Step::Done);
        }
        remove_parts(&folder)?;
        let model = self.model()?;
        let (backbone, device) = &*model;
        let task = self.task(run)?;
        let records = needed(&self.plan.runs, run).map(|run| {
            let record = read_json(&self.out.join(&run.folder).join(RECORD_FILE))?;
            Ok((run.clone(), record))
        });
        let input = RunInput {
            run,
            needed: &records.collect::<Result<Records>>()?,
            plan: &self.plan,
            backbone,
            device,
            task: &task,
            out: &self.out,
            stop,
        };
        if run.is_combined() {
            input.combine()?;
            return Ok(Step::Done);
        }
        let made = input.train((run.index + 1, self.plan.runs.len()), sink)?;
        Ok(if made.is_some() { Step::Done } else { Step::Stopped })
    }

    fn model(&mut self) -> Result<Rc<(Backbone, Device)>> {
        if let Some(model) = &self.model {
            return Ok(Rc::clone(model));
        }
        let plan = &self.plan;
        let backbone = open_backbone(plan.suite, plan.profile, plan.model.as_deref())?;
        if backbone.hashes != plan.backbone.weights {
            bail!(
                "the weights in `{}` are not those of the plan",
                backbone.location.folder.display()
            );
        }
        let model = Rc::new((backbone, device::open(&plan.device)?));
        self.model = Some(Rc::clone(&model));
        Ok(model)
    }

    fn task(&mut self, run: &PlannedRun) -> Result<Rc<ReadyTask>> {
        let model = self.model()?;
        let plan = &self.plan;
        let backbone = &model.0;
        let experiment = &plan.experiments[run.experiment];
        let data_dir = plan.data_dir.clone().unwrap_or_else(|| self.out.join(DATA_DIR));
        self.tasks.get(run.experiment, run.task, || {
            let ready = load(run.task, &data_dir, backbone, &experiment.config, plan.profile)?;
            let found = data_files(std::iter::once(&ready));
            let found = serde_json::json!({ "data_files": found });
            if hashes(&found, run.task) != hashes(&experiment.settings, run.task) {
                let task = run.task.name();
                let folder = data_dir.display();
                bail!("the data files of {task} in `{folder}` are not those of the plan");
            }
            Ok(ready)
        })
    }
}

fn claims(out: &Path, own: WorkerName, dead_after: Duration) -> Claims {
    Claims { folder: out.join(PLAN_DIR).join(CLAIMS_DIR), own, dead_after }
}

fn failed_file(out: &Path, run: &PlannedRun) -> PathBuf {
    out.join(PLAN_DIR).join(FAILED_DIR).join(format!("{}.txt", run.id))
}

/// Plans the suite, or its `arms`, makes every run in this process, and reports.
pub fn run_suite(
    options: &SuiteOptions,
    arms: Option<&Arms>,
    worker: WorkerOptions,
    stop: &AtomicBool,
    sink: &mut dyn FnMut(&Event),
) -> Result<SuiteOutcome> {
    let device = device::open(&options.device)?;
    let Started { backbone, tasks, folder, .. } = start(options, arms, Some(&device), sink)?;
    let mut worker = Worker::open(&options.out, worker, stop)?;
    (worker.model, worker.tasks) = (Some(Rc::new((backbone, device))), tasks);
    worker.run_all(sink)?;
    folder.still_there()?;
    collect(&options.out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    Finished,
    Running,
    /// Without a worker, with a checkpoint to continue from.
    Interrupted,
    Failed,
    Waiting,
    Ready,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    pub index: usize,
    pub id: String,
    pub run: String,
    pub state: RunState,
    /// Step of its newest checkpoint; of a finished run its last one.
    pub step: usize,
    pub steps: usize,
    /// Its worker, the run that it waits for, or the error that ended it.
    pub note: String,
}

/// States of all runs of the plan in `out`. `name` is the process that looks, and `dead_after` the time after which a silent
/// worker counts as dead.
pub fn status(out: &Path, name: WorkerName, dead_after: Duration) -> Result<Vec<RunStatus>> {
    let plan = Plan::read(out)?;
    let claims = claims(out, name, dead_after);
    let of = |run: &PlannedRun| {
        let folder = out.join(&run.folder);
        let newest = latest_checkpoint(&folder.join(CHECKPOINT_DIR))?;
        let step = newest.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let step = step.and_then(|name| name.rsplit('-').next()?.parse().ok()).unwrap_or(0);
        let (state, note) = if run.is_finished(out) {
            (RunState::Finished, String::new())
        } else if let Some(worker) = claims.living(&run.id)? {
            (RunState::Running, worker)
        } else if let Ok(why) = fs::read_to_string(failed_file(out, run)) {
            (RunState::Failed, why.trim_end().to_owned())
        } else if let Some(missing) = plan.missing(out, run) {
            (RunState::Waiting, format!("needs {}", missing.label()))
        } else if newest.is_some() {
            (RunState::Interrupted, String::new())
        } else {
            (RunState::Ready, String::new())
        };
        let step = match state {
            // A run with patience may end before its last step.
            RunState::Finished if !run.is_combined() => {
                read_json::<RunRecord>(&folder.join(RECORD_FILE))?.steps as usize
            }
            _ => step,
        };
        Ok(RunStatus {
            index: run.index,
            id: run.id.clone(),
            run: run.label(),
            state,
            step,
            steps: run.steps,
            note,
        })
    };
    plan.runs.iter().map(of).collect()
}
