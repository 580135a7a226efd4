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

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use lrvd_burn::files::silence;
use serde::{Deserialize, Serialize};

use crate::error::{Result, no_threads};
use crate::io::cannot;

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
pub(super) struct Claims {
    pub folder: PathBuf,
    pub own: WorkerName,
    /// Time without a heartbeat after which a worker counts as dead.
    pub dead_after: Duration,
}

#[derive(Debug)]
pub(super) enum ClaimAttempt<'a> {
    Won(Claim<'a>),
    /// Description of the living worker that has the claim.
    Lost(String),
}

#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    id: String,
    generation: u32,
    name: WorkerName,
    file: Mutex<File>,
    lost: AtomicBool,
}

impl Claims {
    fn path(&self, id: &str, generation: u32) -> PathBuf {
        self.folder.join(format!("{id}.{generation}"))
    }

    /// Takes the run `id`, unless a living worker has it.
    pub(super) fn take(&self, id: &str) -> Result<ClaimAttempt<'_>> {
        loop {
            let generation = match self.newest(id)? {
                None => 0,
                Some(newest) => match self.holder(&self.path(id, newest))? {
                    Holder::Alive(holder) => return Ok(ClaimAttempt::Lost(holder)),
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
                    return Ok(ClaimAttempt::Won(claim));
                }
                // Another worker was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot("create", &path)(error)),
            }
        }
    }

    /// The living worker that makes the run `id`.
    pub(super) fn living(&self, id: &str) -> Result<Option<String>> {
        let Some(newest) = self.newest(id)? else { return Ok(None) };
        Ok(match self.holder(&self.path(id, newest))? {
            Holder::Alive(holder) => Some(holder),
            Holder::Dead | Holder::Gone => None,
        })
    }

    fn generations(&self, id: &str) -> Result<Vec<u32>> {
        let entries = fs::read_dir(&self.folder).map_err(cannot("list", &self.folder))?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(cannot("list", &self.folder))?.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('.'));
            if let Some((_, number)) = parts.filter(|(start, _)| *start == id) {
                found.extend(number.parse::<u32>());
            }
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
    pub(super) fn warning(&self) -> Option<String> {
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
    pub(super) fn hold<T>(
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

    fn own(taken: ClaimAttempt<'_>) -> Claim<'_> {
        let ClaimAttempt::Won(claim) = taken else { panic!("{taken:?}") };
        claim
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
                std::mem::forget(own(dead.take("run").unwrap()));
                hush(&dead.path("run", 0));
            }
            let barrier = Barrier::new(8);
            let won = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for process in 0..8 {
                    let barrier = &barrier;
                    let won = &won;
                    let claims = worker(folder.path(), &format!("node{process}"), process, MINUTE);
                    scope.spawn(move || {
                        barrier.wait();
                        let taken = claims.take("run").unwrap();
                        let is_own = matches!(taken, ClaimAttempt::Won(_));
                        won.fetch_add(usize::from(is_own), Ordering::Relaxed);
                        // All have tried before one gives it back.
                        barrier.wait();
                    });
                }
            });
            assert_eq!(won.into_inner(), 1, "round {round}");
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
        let claim = own(first.take("run").unwrap());
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
        let taken = own(second.take("run").unwrap());
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
        assert!(
            matches!(first.take("run").unwrap(), ClaimAttempt::Lost(_)),
            "it gave back nothing"
        );
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
        let claim = own(first.take("run").unwrap());
        let neighbour = worker(folder.path(), "a", 2, MINUTE);
        assert!(
            matches!(neighbour.take("run").unwrap(), ClaimAttempt::Lost(_)),
            "its lock is held"
        );
        // As a kill leaves it: the file is there and the lock is not.
        let path = first.path("run", 0);
        let text = fs::read(&path).unwrap();
        drop(claim);
        fs::write(&path, text).unwrap();
        let away = worker(folder.path(), "b", 2, MINUTE);
        assert!(matches!(away.take("run").unwrap(), ClaimAttempt::Lost(_)), "b cannot know");
        let mut namesake = worker(folder.path(), "a", 2, MINUTE);
        namesake.own.kernel = Some("another a".to_owned());
        assert!(matches!(namesake.take("run").unwrap(), ClaimAttempt::Lost(_)), "nor another a");
        drop(own(neighbour.take("run").unwrap()));

        let job = |host: &str, starts| {
            let mut claims = worker(folder.path(), host, 1, MINUTE);
            claims.own.job = Some(("17_3".to_owned(), starts));
            claims
        };
        let before = job("a", 0);
        let after = job("b", 1);
        let claim = own(before.take("run").unwrap());
        assert!(matches!(job("c", 0).take("run").unwrap(), ClaimAttempt::Lost(_)));
        let taken = own(after.take("run").unwrap());
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
        assert!(matches!(neighbour.take("run").unwrap(), ClaimAttempt::Lost(_)), "nothing tells");
        date(&path, SystemTime::now() + Duration::from_hours(1_000_000));
        assert!(matches!(neighbour.take("run").unwrap(), ClaimAttempt::Lost(_)), "it may live");
        assert!(fs::metadata(&path).unwrap().modified().unwrap() <= SystemTime::now());
        hush(&path);
        assert_eq!(own(neighbour.take("run").unwrap()).generation, 1);
    }
}
