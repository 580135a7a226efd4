//! What waits for the model, which of it is answered together, and the loop that asks the model.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lrvd_bench::adapter::ContinuedToken;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot::Sender;
use tracing::debug;

use super::metrics::Metrics;
use super::model::{AnswerOptions, Input, ModelAnswer};
use super::models::Served;
use super::problem::{Code, Problem};

/// Why a text has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The text cannot be read, and why.
    Text(String),
    /// Something that the client cannot help.
    Model,
}

/// The answers to a job's texts, or the first text without one.
pub(super) type Reply = Result<Vec<ModelAnswer>, (usize, Fault)>;

pub(super) struct Job<M = Served> {
    pub(super) model: Arc<M>,
    /// At least one.
    pub(super) inputs: Vec<Input>,
    pub(super) options: AnswerOptions,
    /// Closed by a client that has gone or timed out.
    pub(super) reply: Sender<Reply>,
    /// Receives the tokens of a text as they come, no more than the request asks for; closed after the reply.
    pub(super) tokens: Option<UnboundedSender<ContinuedToken>>,
}

impl<M> Job<M> {
    fn texts(&self) -> usize {
        self.inputs.iter().map(Input::texts).sum()
    }
}

/// First come, first served; bounded by texts.
pub(super) struct Queue<M = Served> {
    /// Texts that may wait.
    pub(super) most: usize,
    waiting: Mutex<Waiting<M>>,
    changed: Condvar,
}

struct Waiting<M> {
    jobs: VecDeque<Job<M>>,
    texts: usize,
    closed: bool,
}

impl<M> Waiting<M> {
    /// Drops the jobs whose clients have disconnected.
    fn forget(&mut self) {
        self.jobs.retain(|job| !job.reply.is_closed());
        self.texts = self.jobs.iter().map(Job::texts).sum();
    }
}

impl<M> Queue<M> {
    pub(super) fn new(most: usize) -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), texts: 0, closed: false };
        Self { most, waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    pub(super) fn texts(&self) -> usize {
        self.lock().texts
    }

    /// Puts a job behind the others, unless the queue is full or stopping.
    pub(super) fn push(&self, job: Job<M>) -> Result<(), Problem> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Problem::stopping());
        }
        let texts = job.texts();
        if waiting.texts + texts > self.most {
            waiting.forget();
        }
        if waiting.texts + texts > self.most {
            let message = format!("the queue is full ({} texts): try again later", self.most);
            return Err(Problem::new(Code::Unavailable, message));
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
    /// It is the job that has waited longest and, if `is_shared` says that its inputs allow that with its options, those of the
    /// others to the same model of which it says the same, with equal options, in order, that fit within `most` texts.
    pub(super) fn take(
        &self,
        most: usize,
        is_shared: impl Fn(&M, &Input, AnswerOptions) -> bool,
    ) -> Option<Vec<Job<M>>> {
        let shares =
            |job: &Job<M>| job.inputs.iter().all(|input| is_shared(&job.model, input, job.options));
        let mut waiting = self.lock();
        loop {
            waiting.forget();
            if let Some(first) = waiting.jobs.pop_front() {
                let model = Arc::clone(&first.model);
                let options = first.options;
                let mut room = if shares(&first) { most } else { 0 };
                room = room.saturating_sub(first.texts());
                let mut batch = vec![first];
                let mut next = 0;
                while room > 0 && next < waiting.jobs.len() {
                    let job = &waiting.jobs[next];
                    let is_alike = Arc::ptr_eq(&job.model, &model) && job.options == options;
                    if is_alike && job.texts() <= room && shares(job) {
                        room -= job.texts();
                        batch.extend(waiting.jobs.remove(next));
                    } else {
                        next += 1;
                    }
                }
                waiting.texts -= batch.iter().map(Job::texts).sum::<usize>();
                debug!(jobs = batch.len(), draws = options.draws, waiting = waiting.texts, "taken");
                return Some(batch);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<M>> {
        // No code that can panic holds it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers what waits in `queue` until it is closed and empty, with at most `most` texts in one call of `answer`; one
/// text in each unless `is_shared` allows more.
///
/// A call that fails or panics is made again for each of its texts, so that one of them costs the others no answer. Every call
/// reports its passes, those of a generation with new tokens, which go to the client that wants them. What no client waits for
/// any more ends there.
pub(super) fn work<M>(
    queue: &Queue<M>,
    metrics: &Metrics,
    most: usize,
    is_shared: impl Fn(&M, &Input, AnswerOptions) -> bool,
    mut answer: impl FnMut(
        &M,
        &[Input],
        AnswerOptions,
        &mut dyn FnMut(&[ContinuedToken]) -> bool,
    ) -> Result<Vec<ModelAnswer>, Fault>,
) {
    let mut attempt =
        |first: &Job<M>, inputs: &[Input], follow: &dyn Fn(&[ContinuedToken]) -> bool| {
            metrics.batches.inc();
            metrics.batched.inc_by(inputs.iter().map(Input::texts).sum::<usize>() as u64);
            let begun = Instant::now();
            let mut continues = |tokens: &[ContinuedToken]| {
                metrics.tokens.inc_by(tokens.len() as u64);
                follow(tokens)
            };
            let answered = catch_unwind(AssertUnwindSafe(|| {
                answer(&first.model, inputs, first.options, &mut continues)
            }));
            metrics.batch_seconds.inc_by(begun.elapsed().as_secs_f64());
            answered.unwrap_or(Err(Fault::Model))
        };
    let mut ask = |first: &Job<M>, inputs: &[Input], follow: &dyn Fn(&[ContinuedToken]) -> bool| {
        let mut found = vec![attempt(first, inputs, follow)];
        if found[0].is_err() && inputs.len() > 1 && follow(&[]) {
            found = inputs.chunks(1).map(|one| attempt(first, one, follow)).collect();
        }
        let each = |found: Result<Vec<ModelAnswer>, Fault>| match found {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(fault) => vec![Err(fault)],
        };
        found.into_iter().flat_map(each).collect::<Vec<_>>()
    };
    while let Some(jobs) = queue.take(most, &is_shared) {
        // Model and options of all.
        let Some(first) = jobs.first() else { continue };
        let inputs: Vec<Input> = jobs.iter().flat_map(|job| job.inputs.clone()).collect();
        let shares = |input: &Input| is_shared(&first.model, input, first.options);
        let size = if inputs.iter().all(shares) { most } else { 1 };
        let follow = |tokens: &[ContinuedToken]| {
            for said in jobs.iter().filter_map(|job| job.tokens.as_ref()) {
                // One that has gone is seen below.
                for token in tokens {
                    drop(said.send(token.clone()));
                }
            }
            jobs.iter().any(|job| !job.reply.is_closed())
        };
        let mut parts = inputs.chunks(size);
        let wanted = std::iter::from_fn(|| parts.next().filter(|_| follow(&[])));
        let answers: Vec<_> = wanted.flat_map(|part| ask(first, part, &follow)).collect();
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
    use std::sync::LazyLock;

    use lrvd_bench::adapter::{JudgedAnswer, RowAnswer};
    use lrvd_bench::{answers, data};
    use tokio::sync::oneshot::{Receiver, channel};

    use super::*;

    fn given(answer: RowAnswer) -> JudgedAnswer {
        JudgedAnswer { answer, abstained: None, reason: None }
    }

    const MEAN: AnswerOptions = AnswerOptions { draws: 0, seed: 1 };
    const DRAWN: AnswerOptions = AnswerOptions { draws: 3, ..MEAN };

    /// Puts in a job of `texts` texts that are called `NAME 0`, `NAME 1` and so on, to `model`.
    fn push_to(
        queue: &Queue<()>,
        model: &Arc<()>,
        name: &str,
        texts: usize,
        options: AnswerOptions,
    ) -> Result<Receiver<Reply>, Code> {
        let (reply, receiver) = channel();
        let input = |i| Input::Text(data::Input::text(format!("{name} {i}")));
        let model = Arc::clone(model);
        let inputs = (0..texts).map(input).collect();
        let job = Job { model, inputs, options, reply, tokens: None };
        queue.push(job).map_err(|problem| problem.code)?;
        Ok(receiver)
    }

    static ONLY: LazyLock<Arc<()>> = LazyLock::new(Arc::default);

    /// [`push_to`] with the only model.
    fn push(
        queue: &Queue<()>,
        name: &str,
        n: usize,
        options: AnswerOptions,
    ) -> Result<Receiver<Reply>, Code> {
        push_to(queue, &ONLY, name, n, options)
    }

    fn text(input: &Input) -> &str {
        match input {
            Input::Text(input) => &input.text,
            Input::Prompt { .. } | Input::Decision { .. } => "",
        }
    }

    #[test]
    fn a_full_queue_rejects_until_a_client_leaves_and_a_closed_one_gives_what_it_holds() {
        let queue = Queue::new(3);
        let gone = push(&queue, "a", 2, MEAN).unwrap();
        assert_eq!(push(&queue, "b", 2, MEAN).unwrap_err(), Code::Unavailable);
        drop(gone);
        let _waits = push(&queue, "c", 3, MEAN).unwrap();
        assert_eq!(queue.texts(), 3);
        queue.close();
        assert_eq!(push(&queue, "d", 1, MEAN).unwrap_err(), Code::Unavailable);
        let batch = queue.take(9, |(), _, _| true).unwrap();
        assert_eq!((batch.len(), text(&batch[0].inputs[0]), queue.texts()), (1, "c 0", 0));
        assert!(queue.take(1, |(), _, _| true).is_none());
    }

    /// Number of answers, or the failure.
    type Counted = Result<usize, (usize, Fault)>;

    /// Texts and draws of each call, and the replies, to jobs of the given names, sizes and options.
    fn worked(
        jobs: &[(&str, usize, AnswerOptions)],
        is_shared: bool,
    ) -> (Vec<(usize, usize)>, Vec<Counted>) {
        let queue = Queue::new(100);
        let put = |(name, texts, options): &(&str, usize, AnswerOptions)| {
            push(&queue, name, *texts, *options)
        };
        let replies: Vec<_> = jobs.iter().map(|job| put(job).unwrap()).collect();
        queue.close();
        let mut calls = Vec::new();
        let answer = |(): &(),
                      inputs: &[Input],
                      options: AnswerOptions,
                      _: &mut dyn FnMut(&[ContinuedToken]) -> bool| {
            calls.push((inputs.len(), options.draws));
            assert!(inputs.iter().all(|input| text(input) != "panic 0"), "as asked");
            if inputs.iter().any(|input| text(input) == "odd 1") {
                return Err(Fault::Text("odd".to_owned()));
            }
            let score = || RowAnswer::Score { score: 0.5, interval: None, draws_deviation: None };
            Ok(inputs.iter().map(|_| ModelAnswer::new(given(score()), &[], &[], 0, None)).collect())
        };
        work(&queue, &Metrics::default(), 4, |(), _, _| is_shared, answer);
        let read = |mut reply: Receiver<Reply>| reply.try_recv().unwrap().map(|all| all.len());
        (calls, replies.into_iter().map(read).collect())
    }

    #[test]
    fn requests_with_equal_options_share_calls_and_the_oldest_is_never_passed_over() {
        let jobs =
            [("a", 2, MEAN), ("b", 1, DRAWN), ("c", 3, MEAN), ("d", 1, MEAN), ("e", 9, DRAWN)];
        let (calls, replies) = worked(&jobs, true);
        // `a d`; `b`; `c`, which has no room beside `a`; `e` in parts, which is larger than a batch.
        assert_eq!(calls, [(3, 0), (1, 3), (3, 0), (4, 3), (4, 3), (1, 3)]);
        assert_eq!(replies, [Ok(2), Ok(1), Ok(3), Ok(1), Ok(9)]);
        let (calls, replies) = worked(&[("a", 1, MEAN), ("b", 2, MEAN)], false);
        assert_eq!((calls, replies), (vec![(1, 0); 3], vec![Ok(1), Ok(2)]));
    }

    /// Typed questions count each, and share no pass, not even with texts of their options.
    #[test]
    fn typed_questions_count_as_texts_and_are_asked_alone() {
        let asked = |n: usize| {
            let question = answers::Question {
                kind: answers::QuestionKind::YesNo,
                instructions: String::new(),
                options: Vec::new(),
            };
            Input::Decision { state: "s".to_owned(), questions: vec![question; n] }
        };
        let queue = Queue::new(4);
        let _text = push(&queue, "a", 1, MEAN).unwrap();
        let mut replies = Vec::new();
        let mut decide = |n| {
            let (reply, receiver) = channel();
            replies.push(receiver);
            let model = Arc::clone(&ONLY);
            let inputs = vec![asked(n)];
            let job = Job { model, inputs, options: MEAN, reply, tokens: None };
            queue.push(job).map_err(|problem| problem.code)
        };
        assert_eq!(decide(2), Ok(()));
        assert_eq!(queue.texts(), 3);
        assert_eq!(decide(2), Err(Code::Unavailable));
        assert_eq!(decide(1), Ok(()));
        let is_shared = |(): &(), input: &Input, _| matches!(input, Input::Text(_));
        let taken = || queue.take(9, is_shared).unwrap().iter().map(Job::texts).collect::<Vec<_>>();
        assert_eq!([taken(), taken(), taken()], [[1], [2], [1]]);
    }

    #[test]
    fn requests_to_two_models_share_no_pass() {
        let queue = Queue::new(9);
        let other = Arc::default();
        let _replies = [(&*ONLY, "a"), (&other, "b"), (&*ONLY, "c"), (&other, "d")]
            .map(|(model, name)| push_to(&queue, model, name, 1, MEAN).unwrap());
        let taken = || {
            let jobs = queue.take(9, |(), _, _| true).unwrap();
            jobs.iter().map(|job| text(&job.inputs[0]).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!([taken(), taken()], [["a 0", "c 0"], ["b 0", "d 0"]]);
    }

    /// The client of the first job leaves in its first call: neither this is made again nor another one made for it.
    #[test]
    fn what_no_client_waits_for_any_more_ends_and_the_next_is_answered() {
        let queue = Queue::new(100);
        let mut gone = Some(push(&queue, "a", 9, MEAN).unwrap());
        let mut next = push(&queue, "b", 1, DRAWN).unwrap();
        queue.close();
        let mut calls = Vec::new();
        let answer = |(): &(),
                      inputs: &[Input],
                      _: AnswerOptions,
                      continues: &mut dyn FnMut(&[ContinuedToken]) -> bool| {
            calls.push((text(&inputs[0]).to_owned(), inputs.len()));
            assert!(continues(&[]));
            drop(gone.take());
            if !continues(&[]) {
                return Err(Fault::Model);
            }
            let score = RowAnswer::Score { score: 0.5, interval: None, draws_deviation: None };
            Ok(vec![ModelAnswer::new(given(score), &[], &[], 0, None)])
        };
        work(&queue, &Metrics::default(), 4, |(), _, _| true, answer);
        assert_eq!(calls, [("a 0".to_owned(), 4), ("b 0".to_owned(), 1)]);
        assert!(next.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_text_that_fails_costs_its_own_request_alone() {
        let (calls, replies) = worked(&[("a", 1, MEAN), ("odd", 2, MEAN), ("c", 1, MEAN)], true);
        assert_eq!(calls, [(4, 0), (1, 0), (1, 0), (1, 0), (1, 0)]);
        assert_eq!(replies, [Ok(1), Err((1, Fault::Text("odd".to_owned()))), Ok(1)]);
        let (_, replies) = worked(&[("panic", 1, MEAN), ("b", 1, MEAN)], true);
        assert_eq!(replies, [Err((0, Fault::Model)), Ok(1)]);
    }
}
