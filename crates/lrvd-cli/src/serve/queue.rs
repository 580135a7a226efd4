//! What waits for the model, and which of it is answered together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::Sender;
use tracing::debug;

use super::model::{Found, Input, Key};
use super::problem::{Code, Problem};

/// Why a text has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The text cannot be read.
    Text,
    /// Something that the client cannot help.
    Model,
}

/// A text without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) blame: Blame,
    pub(super) message: String,
}

/// The answers to a job's texts, or the first text without one.
pub(super) type Reply = Result<Vec<Found>, (usize, Fault)>;

/// The texts of a request.
#[derive(Debug)]
pub(super) struct Job {
    /// At least one.
    pub(super) inputs: Vec<Input>,
    pub(super) key: Key,
    /// Closed by a client that has gone or timed out.
    pub(super) reply: Sender<Reply>,
}

/// First come, first served; bounded by texts.
#[derive(Debug)]
pub(super) struct Queue {
    most: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug)]
struct Waiting {
    jobs: VecDeque<Job>,
    texts: usize,
    closed: bool,
}

impl Waiting {
    /// Drops the jobs whose clients have disconnected.
    fn forget(&mut self) {
        self.jobs.retain(|job| !job.reply.is_closed());
        self.texts = self.jobs.iter().map(|job| job.inputs.len()).sum();
    }
}

impl Queue {
    /// A queue of `most` texts.
    pub(super) fn new(most: usize) -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), texts: 0, closed: false };
        Self { most, waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Texts that may wait.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Texts that wait.
    pub(super) fn texts(&self) -> usize {
        self.lock().texts
    }

    /// Puts a job behind the others, unless the queue is full or stopping.
    pub(super) fn push(&self, job: Job) -> Result<(), Problem> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Problem::stopping());
        }
        let texts = job.inputs.len();
        if waiting.texts + texts > self.most {
            waiting.forget();
        }
        if waiting.texts + texts > self.most {
            let message = format!("the queue is full ({} texts): try again later", self.most);
            return Err(Problem::new(Code::QueueFull, message));
        }
        waiting.texts += texts;
        waiting.jobs.push_back(job);
        debug!(texts, waiting = waiting.texts, "queued");
        self.changed.notify_one();
        Ok(())
    }

    /// Takes nothing more in; what is there can still be taken out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for the next batch; `None` once the queue is closed and empty.
    ///
    /// It is the job that has waited longest and, if `is_shared` says that its key allows that, those of the others with
    /// the same key, in order, that fit within `most` texts.
    pub(super) fn take(&self, most: usize, is_shared: impl Fn(Key) -> bool) -> Option<Vec<Job>> {
        let mut waiting = self.lock();
        loop {
            waiting.forget();
            if let Some(first) = waiting.jobs.pop_front() {
                let key = first.key;
                let mut room = if is_shared(key) { most } else { 0 };
                room = room.saturating_sub(first.inputs.len());
                let mut batch = vec![first];
                let mut next = 0;
                while room > 0 && next < waiting.jobs.len() {
                    let job = &waiting.jobs[next];
                    if job.key == key && job.inputs.len() <= room {
                        room -= job.inputs.len();
                        batch.extend(waiting.jobs.remove(next));
                    } else {
                        next += 1;
                    }
                }
                waiting.texts -= batch.iter().map(|job| job.inputs.len()).sum::<usize>();
                debug!(jobs = batch.len(), draws = key.draws, waiting = waiting.texts, "taken");
                return Some(batch);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code that can panic holds it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::serve::testing::{job, text};

    const MEAN: Key = Key { max_tokens: 0, draws: 0, seed: 1, sampling: None };
    const DRAWN: Key = Key { draws: 3, ..MEAN };

    /// The names of the jobs of a batch.
    fn names(batch: &[Job]) -> Vec<&str> {
        batch.iter().map(|job| text(&job.inputs[0]).trim_end_matches(" 0")).collect()
    }

    #[test]
    fn jobs_of_one_key_are_taken_together_and_the_oldest_is_never_passed_over() {
        let queue = Queue::new(20);
        let mut replies = Vec::new();
        for (name, texts, key) in
            [("a", 2, MEAN), ("b", 1, DRAWN), ("c", 3, MEAN), ("d", 1, MEAN), ("e", 6, DRAWN)]
        {
            let (job, reply) = job(name, texts, key);
            queue.push(job).unwrap();
            replies.push(reply);
        }
        assert_eq!(queue.texts(), 13);
        let shared = |_| true;
        // `c` has no room beside `a`, and becomes the oldest but one.
        assert_eq!(names(&queue.take(4, shared).unwrap()), ["a", "d"]);
        assert_eq!(names(&queue.take(4, shared).unwrap()), ["b"]);
        assert_eq!(names(&queue.take(4, shared).unwrap()), ["c"]);
        assert_eq!(names(&queue.take(4, shared).unwrap()), ["e"], "larger than a batch");
        assert_eq!(queue.texts(), 0);
        for name in ["a", "b"] {
            let (job, reply) = job(name, 1, MEAN);
            queue.push(job).unwrap();
            replies.push(reply);
        }
        assert_eq!(names(&queue.take(4, |_| false).unwrap()), ["a"], "it shares nothing");
    }

    #[test]
    fn a_full_queue_rejects_until_somebody_leaves() {
        let queue = Queue::new(3);
        let (first, gone) = job("a", 2, MEAN);
        queue.push(first).unwrap();
        let (second, _waits) = job("b", 2, MEAN);
        assert_eq!(queue.push(second).unwrap_err().code, Code::QueueFull);
        drop(gone);
        let (third, _waits) = job("c", 3, MEAN);
        queue.push(third).unwrap();
        assert_eq!(queue.texts(), 3);
        assert_eq!(names(&queue.take(9, |_| true).unwrap()), ["c"]);
    }

    #[test]
    fn a_closed_queue_gives_what_it_holds() {
        let queue = Queue::new(3);
        let (waits, _reply) = job("a", 1, MEAN);
        queue.push(waits).unwrap();
        queue.close();
        let (late, _reply) = job("b", 1, MEAN);
        assert_eq!(queue.push(late).unwrap_err().code, Code::Stopping);
        assert_eq!(names(&queue.take(1, |_| true).unwrap()), ["a"]);
        assert!(queue.take(1, |_| true).is_none());
    }
}
