//! What every request needs, and the way from a request that is read to its response, whole or as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lrvd_bench::adapter::{Continuation, ContinuedToken};
use lrvd_bench::{Error, Kind, kind_of, unreadable};
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::timeout;

use super::access::Access;
use super::metrics::Metrics;
use super::model::{AnswerOptions, Input, Limits, Model, ModelAnswer};
use super::models::{Models, Served};
use super::problem::{Code, Problem};
use super::queue::{Fault, Job, Queue, Reply, work};
use crate::printer::Printer;

/// Events that wait for a slow reader.
const EVENTS: usize = 16;

/// A request that can be answered.
pub(super) struct Asked {
    pub(super) model: Arc<Served>,
    /// At least one.
    pub(super) inputs: Vec<Input>,
    /// The field of each of them, as the client wrote it.
    pub(super) fields: Vec<String>,
    pub(super) options: AnswerOptions,
    pub(super) form: Form,
}

/// Form of a response, with the parts of the request that are written into it.
pub(super) enum Form {
    Whole(Box<dyn FnOnce(Vec<ModelAnswer>) -> Result<Response, Problem> + Send>),
    /// One text, token by token.
    Events(Box<dyn Events>),
}

impl Form {
    pub(super) fn whole(
        write: impl FnOnce(Vec<ModelAnswer>) -> Result<Response, Problem> + Send + 'static,
    ) -> Self {
        Self::Whole(Box::new(write))
    }
}

/// The events of a text in the form of an API.
pub(super) trait Events: Send {
    /// Before the first token.
    fn start(&self) -> Option<Bytes>;
    fn token(&mut self, token: &ContinuedToken) -> Bytes;
    /// Behind the last token.
    fn end(&self, text: Continuation) -> Bytes;
    /// In place of the end.
    fn error(&self, problem: Problem) -> Bytes;
}

/// Marks a response whose body continues after it.
#[derive(Clone, Copy)]
pub(super) struct Streamed;

pub(super) struct App {
    pub(super) models: Models,
    pub(super) limits: Limits,
    pub(super) access: Access,
    /// Texts and typed questions for classifiers.
    pub(super) queue: Queue,
    /// Prompts for language models, which take long: they are answered beside the others.
    pub(super) prompts: Queue,
    pub(super) metrics: Metrics,
    /// Set when the server is to end.
    pub(super) stop: Arc<AtomicBool>,
    pub(super) printer: Printer,
}

impl App {
    /// Queues a request to `model`. A client that stops waiting drops the receiver, which the model checks.
    pub(super) fn ask(
        &self,
        model: Arc<Served>,
        inputs: Vec<Input>,
        options: AnswerOptions,
        tokens: Option<UnboundedSender<ContinuedToken>>,
    ) -> Result<oneshot::Receiver<Reply>, Problem> {
        let queue = match model.model {
            Model::Classifier { .. } => &self.queue,
            Model::Language { .. } => &self.prompts,
        };
        let (reply, ended) = oneshot::channel();
        queue.push(Job { model, inputs, options, reply, tokens })?;
        Ok(ended)
    }

    /// Answers what waits in `queue` until it is closed and empty.
    pub(super) fn work(&self, queue: &Queue) {
        work(
            queue,
            &self.metrics,
            self.limits.batch_size,
            |served: &Served, input, options| served.model.is_shared(input, options),
            |served, inputs, options, continues| {
                let answered = served.model.answer(inputs, options, continues);
                answered.map_err(|error| self.fault(&error))
            },
        );
    }

    /// The error for the client, in words that name no place of this machine; one that its text did not cause is
    /// printed here.
    fn fault(&self, error: &Error) -> Fault {
        match (unreadable(error), kind_of(error)) {
            (Some(text), _) => Fault::Text(text),
            (None, Some(Kind::NoTemplate)) => {
                let text = "the model has no chat template: send `prompt` instead of `messages`";
                Fault::Text(text.to_owned())
            }
            (None, Some(Kind::Stopped)) => Fault::Model,
            (None, _) => {
                self.printer.error(error.as_ref());
                Fault::Model
            }
        }
    }

    /// The response to a request that came at `begun`.
    pub(super) async fn answer(
        self: &Arc<Self>,
        asked: Asked,
        begun: Instant,
    ) -> Result<Response, Problem> {
        let Asked { model, inputs, fields, options, form } = asked;
        match form {
            Form::Whole(write) => {
                let ended = self.ask(model, inputs, options, None)?;
                let answers = answered(ended.await, fields)?;
                self.count(&answers, begun);
                write(answers)
            }
            Form::Events(form) => {
                let (said, tokens) = unbounded_channel();
                let ended = self.ask(model, inputs, options, Some(said))?;
                let (events, body) = channel(EVENTS);
                let stream =
                    Stream { app: Arc::clone(self), form, events, tokens, ended, fields, begun };
                stream.start().await?;
                let headers = [
                    (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
                    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
                ];
                let body = Body::new(EventBody(body));
                Ok((StatusCode::OK, headers, Extension(Streamed), body).into_response())
            }
        }
    }

    fn count(&self, answers: &[ModelAnswer], begun: Instant) {
        self.metrics.seconds.observe(begun.elapsed().as_secs_f64());
        let texts: usize = answers.iter().map(ModelAnswer::texts).sum();
        let withheld: usize = answers.iter().map(ModelAnswer::withheld).sum();
        self.metrics.texts.inc_by(texts as u64);
        self.metrics.withheld.inc_by(withheld as u64);
    }
}

/// The answers of a reply to the texts of `fields`.
fn answered(
    reply: Result<Reply, RecvError>,
    mut fields: Vec<String>,
) -> Result<Vec<ModelAnswer>, Problem> {
    match reply {
        Ok(Ok(answers)) => Ok(answers),
        Ok(Err((index, Fault::Text(reason)))) => {
            let field = fields.swap_remove(index);
            let message = format!("the model cannot read this text: {reason}");
            Err(Problem::at(Code::Unprocessable, field, message))
        }
        // Or the worker has ended, which it says itself.
        Ok(Err((_, Fault::Model))) | Err(_) => Err(Problem::internal()),
    }
}

/// The events of a response; it ends with its sender.
struct EventBody(Receiver<Bytes>);

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// A text that is sent token by token.
struct Stream {
    app: Arc<App>,
    form: Box<dyn Events>,
    events: Sender<Bytes>,
    tokens: UnboundedReceiver<ContinuedToken>,
    ended: oneshot::Receiver<Reply>,
    fields: Vec<String>,
    begun: Instant,
}

impl Stream {
    /// Waits for the first token, so that what has no answer is an error and no stream; then sends events until the answer is
    /// complete or the next token takes longer than a request may.
    async fn start(mut self) -> Result<(), Problem> {
        let first = self.tokens.recv().await;
        let early = match first {
            Some(_) => None,
            None => Some(answered((&mut self.ended).await, self.fields.clone())?),
        };
        tokio::spawn(self.send(first, early));
        Ok(())
    }

    async fn send(mut self, first: Option<ContinuedToken>, early: Option<Vec<ModelAnswer>>) {
        let limit = self.app.limits.timeout;
        let late = |_| {
            let message = format!("no further token within {} s", limit.as_secs());
            Problem::new(Code::Timeout, message)
        };
        if let Some(start) = self.form.start()
            && self.events.send(start).await.is_err()
        {
            return;
        }
        let mut next = Ok(first);
        while let Ok(Some(token)) = next {
            if self.events.send(self.form.token(&token)).await.is_err() {
                // The client has gone; so does the reply, which the model checks.
                return;
            }
            next = timeout(limit, self.tokens.recv()).await.map_err(late);
        }
        let found = match (next, early) {
            (Err(late), _) => Err(late),
            (Ok(_), Some(answers)) => Ok(answers),
            (Ok(_), None) => match timeout(limit, self.ended).await {
                Ok(ended) => answered(ended, self.fields),
                Err(elapsed) => Err(late(elapsed)),
            },
        };
        let last = match found {
            Ok(answers) => {
                self.app.count(&answers, self.begun);
                let text = ModelAnswer::into_texts(answers).pop();
                let end = text.map(|text| self.form.end(text));
                end.unwrap_or_else(|| self.form.error(Problem::internal()))
            }
            Err(problem) => self.form.error(problem),
        };
        let _ = self.events.send(last).await;
    }
}
