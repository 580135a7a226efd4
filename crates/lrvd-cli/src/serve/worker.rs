//! The loop that asks the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::metrics::Metrics;
use super::model::{Found, Input, Key};
use super::queue::{Blame, Fault, Queue};

/// Answers what waits in `queue` until it is closed and empty, with at most `most` texts in one call of `answer`; one
/// text in each where `is_shared` says so of the key.
///
/// A call that fails or panics is made again for each of its texts, so that one of them costs the others no answer. A call
/// that generates reports its new tokens, and checks whether the client still waits.
pub(super) fn work(
    queue: &Queue,
    metrics: &Metrics,
    most: usize,
    is_shared: impl Fn(Key) -> bool,
    mut answer: impl FnMut(&[Input], Key, &mut dyn FnMut(usize) -> bool) -> Result<Vec<Found>, Fault>,
) {
    let mut attempt = |inputs: &[Input], key: Key, is_awaited: &dyn Fn() -> bool| {
        metrics.passed(inputs.len());
        let begun = Instant::now();
        let mut go_on = |tokens| {
            metrics.generated(tokens);
            is_awaited()
        };
        let answered = catch_unwind(AssertUnwindSafe(|| answer(inputs, key, &mut go_on)));
        metrics.took(begun.elapsed());
        let message = "it panicked".to_owned();
        answered.unwrap_or(Err(Fault { blame: Blame::Model, message }))
    };
    let mut ask =
        |inputs: &[Input], key: Key, is_awaited: &dyn Fn() -> bool| -> Vec<Result<Found, Fault>> {
            match attempt(inputs, key, is_awaited) {
                Ok(answers) => answers.into_iter().map(Ok).collect(),
                Err(fault) if inputs.len() == 1 => vec![Err(fault)],
                Err(_) => inputs
                    .chunks(1)
                    .flat_map(|one| match attempt(one, key, is_awaited) {
                        Ok(answers) => answers.into_iter().map(Ok).collect(),
                        Err(fault) => vec![Err(fault)],
                    })
                    .collect(),
            }
        };
    while let Some(jobs) = queue.take(most, &is_shared) {
        let Some(key) = jobs.first().map(|job| job.key) else { continue };
        let inputs: Vec<Input> = jobs.iter().flat_map(|job| job.inputs.clone()).collect();
        let size = if is_shared(key) { most } else { 1 };
        let is_awaited = || jobs.iter().any(|job| !job.reply.is_closed());
        let answers: Vec<_> =
            inputs.chunks(size).flat_map(|part| ask(part, key, &is_awaited)).collect();
        let mut answers = answers.into_iter();
        for job in jobs {
            let own: Vec<_> = answers.by_ref().take(job.inputs.len()).collect();
            let numbered = own.into_iter().enumerate();
            let reply = numbered.map(|(i, answer)| answer.map_err(|fault| (i, fault))).collect();
            // A client that has gone wants none.
            let _ = job.reply.send(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::serve::testing::{class, job, text};

    const KEY: Key = Key { max_tokens: 0, draws: 0, seed: 1, sampling: None };

    /// How many answers there were, or what failed.
    type Counted = Result<usize, (usize, Fault)>;

    /// The sizes of the calls, and the replies, to jobs of the given names and sizes.
    fn worked(jobs: &[(&str, usize)], is_shared: bool) -> (Vec<usize>, Vec<Counted>) {
        let queue = Queue::new(100);
        let mut replies = Vec::new();
        for (name, texts) in jobs {
            let (job, reply) = job(name, *texts, KEY);
            queue.push(job).unwrap();
            replies.push(reply);
        }
        queue.close();
        let mut calls = Vec::new();
        work(
            &queue,
            &Metrics::default(),
            4,
            |_| is_shared,
            |inputs, key, _| {
                assert_eq!(key, KEY);
                calls.push(inputs.len());
                assert!(inputs.iter().all(|input| text(input) != "panic 0"), "as asked");
                if inputs.iter().any(|input| text(input) == "odd 1") {
                    return Err(Fault { blame: Blame::Text, message: "odd".to_owned() });
                }
                Ok(inputs.iter().map(|_| class(0.5)).collect())
            },
        );
        let read = |mut reply: tokio::sync::oneshot::Receiver<_>| {
            let reply: super::super::queue::Reply = reply.try_recv().unwrap();
            reply.map(|answers| answers.len())
        };
        (calls, replies.into_iter().map(read).collect())
    }

    #[test]
    fn requests_share_calls_up_to_the_batch_size() {
        let (calls, replies) = worked(&[("a", 1), ("b", 2), ("c", 2), ("d", 1), ("e", 9)], true);
        assert_eq!(calls, [4, 2, 4, 4, 1], "a b d, c, then e in parts");
        assert_eq!(replies, [Ok(1), Ok(2), Ok(2), Ok(1), Ok(9)]);
        let (calls, replies) = worked(&[("a", 1), ("b", 2)], false);
        assert_eq!((calls, replies), (vec![1, 1, 1], vec![Ok(1), Ok(2)]));
    }

    #[test]
    fn a_text_that_fails_costs_its_own_request_alone() {
        let (calls, replies) = worked(&[("a", 1), ("odd", 2), ("c", 1)], true);
        assert_eq!(calls, [4, 1, 1, 1, 1]);
        let fault = Fault { blame: Blame::Text, message: "odd".to_owned() };
        assert_eq!(replies, [Ok(1), Err((1, fault)), Ok(1)]);
        let (_, replies) = worked(&[("panic", 1), ("b", 1)], true);
        let blames: Vec<_> =
            replies.iter().map(|r| r.as_ref().map_err(|(_, fault)| fault.blame)).collect();
        assert_eq!(blames, [Err(Blame::Model), Ok(&1)]);
    }
}
