//! A thread for a template, because it comes with a downloaded model.
//!
//! The engine bounds instructions and bytes by its fuel. It does not bound the recursion of its parser and of nested
//! values, nor the work of joining and comparing nested lists. So every template has one thread with a large stack, and
//! a caller waits for a limited time. A template that does not answer in time is not used again: it costs one thread.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Bytes of stack, which take memory only once they are used. The deepest nesting that a source of 64 KiB and the fuel
/// allow needs a quarter.
const STACK: usize = 256 << 20;
/// Longest wait: a usual rendering takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an answer lacks, in words.
pub(super) type Answer<T> = Result<T, String>;

/// A thread that answers one question after another.
#[derive(Debug)]
pub(super) struct Worker<Q, A> {
    /// The way to the thread and back; none after a question without an answer.
    ends: Mutex<Option<(SyncSender<Q>, Receiver<A>)>>,
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// A thread that calls `make` once and what it returns for every question.
    pub(super) fn start<F: FnMut(Q) -> A>(
        make: impl FnOnce() -> Answer<F> + Send + 'static,
    ) -> Answer<Self> {
        let (ask, questions) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let (made, ready) = sync_channel(1);
        let run = move || {
            let mut respond = match make() {
                Ok(respond) => respond,
                Err(reason) => return drop(made.send(Err(reason))),
            };
            let mut open = made.send(Ok(())).is_ok();
            while open && let Ok(question) = questions.recv() {
                open = answer.send(respond(question)).is_ok();
            }
        };
        let thread = Builder::new().name("chat template".to_owned()).stack_size(STACK);
        thread.spawn(run).map_err(|error| format!("it has no thread to run on: {error}"))?;
        wait(&ready)??;
        Ok(Self { ends: Mutex::new(Some((ask, answers))) })
    }

    pub(super) fn ask(&self, question: Q) -> Answer<A> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match &*ends {
            Some((ask, answers)) if ask.send(question).is_ok() => wait(answers),
            _ => Err("an earlier rendering failed or took too long".to_owned()),
        };
        if answer.is_err() {
            *ends = None;
        }
        answer
    }
}

fn wait<T>(answers: &Receiver<T>) -> Answer<T> {
    answers.recv_timeout(PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Timeout => format!("it takes longer than {} s", PATIENCE.as_secs()),
        RecvTimeoutError::Disconnected => "the template engine failed".to_owned(),
    })
}
