//! Workers, which make the runs of a plan: one, or all that can be made. A single process, a job array and several machines
//! use them alike. `status` lists the states of the runs.
//!
//! Claims: several workers on one file system make every run once.
//!
//! A claim is a file `claims/ID.N` that its worker creates (`create_new`, which exactly one process can), rewrites as a
//! heartbeat, and removes in the end. The claim of a dead worker is taken over by creating `ID.N+1`, which
//! again only one worker can create; a worker that was only suspended finds the later file at its next heartbeat, stops this run and continues
//! with others.
//!
//! A worker is dead if its file has not been rewritten for a while by the clock of the file system, or sooner, if it ran on
//! this kernel and its lock on the file is gone, or if it was an earlier start of this very job. Locks are not used on a file
//! system without them, and names of hosts never, which several may share.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::device;
use lrvd_burn::files::silence;
use lrvd_burn::train::latest_checkpoint;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::collect::{SuiteOutcome, collect};
use super::execute::{ReadyTask, RunInput, Started, Tasks, open_backbone, start};
use super::grid::{Arms, Experiment, PLAN_DIR, Plan, PlannedRun, SuiteOptions, needed};
use crate::backbone::Backbone;
use crate::error::{Error, Kind, Result, kind_of, no_threads};
use crate::io::{cannot, create_dir, read_json, write_text};
use crate::progress::Event;
use crate::record::{RunRecord, TaskData};
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
        let plan = Plan::read(out)?;
        still_there(out)?;
        Ok(Self {
            out: out.to_owned(),
            plan,
            model: None,
            tasks: Tasks::default(),
            claims: Claims::new(out, name, dead_after),
            continues,
            stop,
        })
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
            Ok(claim) => claim,
            Err(_) if is_finished => return Ok(Step::Done),
            Err(holder) => return Ok(Step::Claimed(holder)),
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
            Ok((run, record))
        });
        let input = RunInput {
            run,
            needed: records.collect::<Result<_>>()?,
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
        let backbone = open_backbone(plan.options())?;
        if backbone.hashes != plan.backbone.weights {
            bail!(
                "the weights in `{}` are not those of the plan",
                backbone.location.folder.display()
            );
        }
        let model = Rc::new((backbone, device::open(&plan.options().device)?));
        self.model = Some(Rc::clone(&model));
        Ok(model)
    }

    fn task(&mut self, run: &PlannedRun) -> Result<Rc<ReadyTask>> {
        let model = self.model()?;
        let Experiment { options, config, data, .. } = &self.plan.experiments[run.experiment];
        let data_dir = options.data_dir.clone().unwrap_or_else(|| self.out.join(DATA_DIR));
        let place = run.experiment;
        let ready =
            self.tasks.get(place, run.task, &data_dir, &model.0, config, options.profile)?;
        if data.get(run.task.name()).map(TaskData::hashes) != Some(ready.data.hashes()) {
            let folder = data_dir.display();
            bail!("the data files of {} in `{folder}` are not those of the plan", run.task);
        }
        Ok(ready)
    }
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
    let claims = Claims::new(out, name, dead_after);
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

/// Heartbeats within the time after which a silent worker counts as dead.
const BEATS: u32 = 20;
/// Longest time until a stop request reaches the work under a claim.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerName {
    pub host: String,
    /// The running kernel, on which its lock is seen; `None` in a claim without a lock.
    pub kernel: Option<String>,
    pub process: u32,
    /// The job of an engine that starts a job anew under the same id: id, and how often it was started again.
    pub job: Option<(String, u64)>,
}

impl WorkerName {
    fn is_later_start_of(&self, other: &Self) -> bool {
        match (&self.job, &other.job) {
            (Some((own, start)), Some((theirs, earlier))) => own == theirs && start > earlier,
            _ => false,
        }
    }

    fn describe(&self) -> String {
        format!("process {} on {}", self.process, self.host)
    }
}

#[derive(Clone, Debug)]
struct Claims {
    folder: PathBuf,
    own: WorkerName,
    /// Time without a heartbeat after which a worker counts as dead.
    dead_after: Duration,
}

#[derive(Debug)]
struct Claim<'a> {
    claims: &'a Claims,
    id: String,
    generation: u32,
    name: WorkerName,
    file: Mutex<File>,
    lost: AtomicBool,
}

impl Claims {
    fn new(out: &Path, own: WorkerName, dead_after: Duration) -> Self {
        Self { folder: out.join(PLAN_DIR).join(CLAIMS_DIR), own, dead_after }
    }

    fn path(&self, id: &str, generation: u32) -> PathBuf {
        self.folder.join(format!("{id}.{generation}"))
    }

    /// Takes the run `id`, or describes the living worker that has it.
    fn take(&self, id: &str) -> Result<Result<Claim<'_>, String>> {
        loop {
            let generation = match self.newest(id)? {
                None => 0,
                Some(newest) => match self.holder(&self.path(id, newest))? {
                    Holder::Alive(holder) => return Ok(Err(holder)),
                    Holder::Dead => newest + 1,
                    Holder::Gone => continue,
                },
            };
            let path = self.path(id, generation);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // On a file system without locks, heartbeats alone count.
                    let is_locked = file.try_lock().is_ok();
                    let kernel = self.own.kernel.clone().filter(|_| is_locked);
                    let name = WorkerName { kernel, ..self.own.clone() };
                    let claim = Claim {
                        claims: self,
                        id: id.to_owned(),
                        generation,
                        name,
                        file: Mutex::new(file),
                        lost: AtomicBool::new(false),
                    };
                    claim.rewrite().map_err(cannot("write", &path))?;
                    return Ok(Ok(claim));
                }
                // Another worker was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot("create", &path)(error)),
            }
        }
    }

    /// The living worker that makes the run `id`.
    fn living(&self, id: &str) -> Result<Option<String>> {
        let Some(newest) = self.newest(id)? else { return Ok(None) };
        Ok(match self.holder(&self.path(id, newest))? {
            Holder::Alive(holder) => Some(holder),
            Holder::Dead | Holder::Gone => None,
        })
    }

    /// Numbers of the claims on the run `id`, in ascending order.
    fn generations(&self, id: &str) -> Result<Vec<u32>> {
        let entries = fs::read_dir(&self.folder).map_err(cannot("list", &self.folder))?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(cannot("list", &self.folder))?.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('.'));
            let number = parts.filter(|(start, _)| *start == id).map(|(_, number)| number);
            found.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn newest(&self, id: &str) -> Result<Option<u32>> {
        Ok(self.generations(id)?.pop())
    }

    fn holder(&self, path: &Path) -> Result<Holder> {
        let gone = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Ok(Holder::Gone),
            _ => Err(cannot("read", path)(error)),
        };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) => return gone(error),
        };
        let mut text = String::new();
        let worker: Option<WorkerName> =
            file.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
        if let Some(worker) = &worker {
            // Shared, so that two processes that look at once do not take each other for the worker.
            let is_unlocked = || file.try_lock_shared().is_ok();
            let is_here = worker.kernel.is_some() && worker.kernel == self.own.kernel;
            if self.own.is_later_start_of(worker) || (is_here && is_unlocked()) {
                return Ok(Holder::Dead);
            }
        }
        match silence(path) {
            Ok(silent) if silent > self.dead_after => return Ok(Holder::Dead),
            Ok(_) => {}
            Err(error) => return gone(error),
        }
        let worker = worker.map_or_else(|| "another worker".to_owned(), |w| w.describe());
        Ok(Holder::Alive(worker))
    }
}

enum Holder {
    Alive(String),
    Dead,
    Gone,
}

impl Claim<'_> {
    /// A warning if the file system has no locks.
    fn warning(&self) -> Option<String> {
        let silent = self.claims.dead_after.as_secs();
        self.name.kernel.is_none().then(|| {
            format!(
                "`{}` has no locks: a worker that is killed counts as alive for {silent} s",
                self.claims.folder.display()
            )
        })
    }

    /// Runs `work` under heartbeats. Its flag is set by `stop`, and if another worker takes the claim over meanwhile: then the
    /// run is that worker's, and there is no result (`None`), not even an error.
    fn hold<T>(
        &self,
        stop: &AtomicBool,
        work: impl FnOnce(&AtomicBool) -> Result<T>,
    ) -> Result<Option<T>> {
        let (done, waits) = channel::<()>();
        let every = self.claims.dead_after / BEATS;
        let own_stop = AtomicBool::new(stop.load(Ordering::Relaxed));
        let result = std::thread::scope(|scope| {
            let own_stop = &own_stop;
            let beats = move || {
                let mut beaten = Instant::now();
                while waits.recv_timeout(every.min(LOOK)) == Err(RecvTimeoutError::Timeout) {
                    own_stop.fetch_or(stop.load(Ordering::Relaxed), Ordering::Relaxed);
                    if beaten.elapsed() < every {
                        continue;
                    }
                    beaten = Instant::now();
                    if !self.beat() {
                        self.lost.store(true, Ordering::Relaxed);
                        own_stop.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            };
            Builder::new().spawn_scoped(scope, beats).map_err(|error| no_threads(1, error))?;
            let result = work(own_stop);
            drop(done);
            result
        });
        if self.lost.load(Ordering::Relaxed) { Ok(None) } else { result.map(Some) }
    }

    /// Rewrites the file; `false` if the claim is another worker's by now.
    fn beat(&self) -> bool {
        // A write that fails now, such as to a file server that restarts, may succeed at the next heartbeat.
        let _ = self.rewrite();
        self.claims.newest(&self.id).map_or(true, |newest| newest == Some(self.generation))
    }

    fn rewrite(&self) -> std::io::Result<()> {
        let text = serde_json::to_string(&self.name)?;
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

impl Drop for Claim<'_> {
    /// Gives the run back. Earlier files go first, so that there is no moment at which a dead worker's is the newest.
    fn drop(&mut self) {
        if self.lost.load(Ordering::Relaxed) {
            return;
        }
        let generations = self.claims.generations(&self.id).unwrap_or_default();
        for generation in generations.into_iter().filter(|&g| g <= self.generation) {
            let _ = fs::remove_file(self.claims.path(&self.id, generation));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::time::SystemTime;

    use super::*;

    const MINUTE: u64 = 60_000;

    fn worker(folder: &Path, host: &str, process: u32, dead_after: u64) -> Claims {
        let own =
            WorkerName { host: host.to_owned(), kernel: Some(host.to_owned()), process, job: None };
        let dead_after = Duration::from_millis(dead_after);
        Claims { folder: folder.to_owned(), own, dead_after }
    }

    fn won(claims: &Claims) -> Claim<'_> {
        claims.take("run").unwrap().unwrap()
    }

    fn lost(claims: &Claims) -> bool {
        claims.take("run").unwrap().is_err()
    }

    fn date(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    /// As if the worker had been silent for an hour.
    fn hush(path: &Path) {
        date(path, SystemTime::now() - Duration::from_hours(1));
    }

    #[test]
    fn of_many_workers_one_has_the_run() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20 {
            // Every other time over a dead worker.
            if round % 2 == 1 {
                let dead = worker(folder.path(), "away", 0, MINUTE);
                std::mem::forget(won(&dead));
                hush(&dead.path("run", 0));
            }
            let barrier = Barrier::new(8);
            let winners = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for process in 0..8 {
                    let barrier = &barrier;
                    let winners = &winners;
                    let claims = worker(folder.path(), &format!("node{process}"), process, MINUTE);
                    scope.spawn(move || {
                        barrier.wait();
                        let taken = claims.take("run").unwrap();
                        winners.fetch_add(usize::from(taken.is_ok()), Ordering::Relaxed);
                        // All have tried before one gives it back.
                        barrier.wait();
                    });
                }
            });
            assert_eq!(winners.into_inner(), 1, "round {round}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        }
    }

    #[test]
    fn a_living_worker_keeps_its_run_and_a_silent_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        // Beats every 50 ms.
        let first = worker(folder.path(), "a", 1, 1000);
        let second = worker(folder.path(), "b", 2, MINUTE);
        let stop = AtomicBool::new(false);
        let claim = won(&first);
        let path = first.path("run", 0);
        let holder = claim.hold(&stop, |_| {
            hush(&path);
            let silent = || fs::metadata(&path).unwrap().modified().unwrap().elapsed().unwrap();
            while silent() > Duration::from_mins(1) {
                std::thread::yield_now();
            }
            second.living("run")
        });
        assert_eq!(holder.unwrap().unwrap().as_deref(), Some("process 1 on a"));
        // Taken over once, and the first worker sees it when it wakes up.
        hush(&path);
        let taken = won(&second);
        assert_eq!(taken.generation, 1);
        let until_stopped = |stopped: &AtomicBool| {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        };
        let ended = claim.hold(&stop, |own_stop| {
            until_stopped(own_stop);
            Err::<(), _>(anyhow::anyhow!("the folder is another worker's"))
        });
        assert!(ended.unwrap().is_none() && !stop.load(Ordering::Relaxed), "only this run stops");
        drop(claim);
        assert!(lost(&first), "it gave back nothing");
        // A stop request reaches the work, and its error is one.
        let failed = taken.hold(&stop, |own_stop| {
            stop.store(true, Ordering::Relaxed);
            until_stopped(own_stop);
            Err::<(), _>(anyhow::anyhow!("stopped"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "stopped");
        drop(taken);
        assert!(first.living("run").unwrap().is_none());
    }

    #[test]
    fn a_process_of_this_kernel_and_a_former_start_of_this_job_are_known_to_be_dead() {
        let folder = tempfile::tempdir().unwrap();
        let first = worker(folder.path(), "a", 1, MINUTE);
        let claim = won(&first);
        let neighbour = worker(folder.path(), "a", 2, MINUTE);
        assert!(lost(&neighbour), "its lock is held");
        // As a kill leaves it: the file is there and the lock is not.
        let path = first.path("run", 0);
        let text = fs::read(&path).unwrap();
        drop(claim);
        fs::write(&path, text).unwrap();
        let away = worker(folder.path(), "b", 2, MINUTE);
        assert!(lost(&away), "b cannot know");
        let mut namesake = worker(folder.path(), "a", 2, MINUTE);
        namesake.own.kernel = Some("another a".to_owned());
        assert!(lost(&namesake), "nor another a");
        drop(won(&neighbour));

        let job = |host: &str, starts| {
            let mut claims = worker(folder.path(), host, 1, MINUTE);
            claims.own.job = Some(("17_3".to_owned(), starts));
            claims
        };
        let before = job("a", 0);
        let after = job("b", 1);
        let claim = won(&before);
        assert!(lost(&job("c", 0)));
        let taken = won(&after);
        assert!(!claim.beat());
        drop(taken);
    }

    #[test]
    fn a_claim_without_a_lock_ends_by_silence_alone_and_one_from_the_future_ages() {
        let folder = tempfile::tempdir().unwrap();
        let first = worker(folder.path(), "a", 1, MINUTE);
        let neighbour = worker(folder.path(), "a", 2, MINUTE);
        let path = first.path("run", 0);
        // As a worker leaves it that was killed on a file system without locks.
        let name = WorkerName { kernel: None, ..first.own.clone() };
        fs::write(&path, serde_json::to_string(&name).unwrap()).unwrap();
        assert!(lost(&neighbour), "nothing tells");
        date(&path, SystemTime::now() + Duration::from_hours(1_000_000));
        assert!(lost(&neighbour), "it may live");
        assert!(fs::metadata(&path).unwrap().modified().unwrap() <= SystemTime::now());
        hush(&path);
        assert_eq!(won(&neighbour).generation, 1);
    }
}
