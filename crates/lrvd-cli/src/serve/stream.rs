//! A text that is sent token by token, as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lrvd_bench::adapter::ContinuedToken;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::ModelAnswer;
use super::app::{App, answered};
use super::model::AnswerOptions;
use super::models::Served;
use super::problem::{Code, Problem};
use super::queue::{Job, Reply};
use super::request::Asked;
use super::response::{Form, texts};

/// Marks a response whose body continues after it.
#[derive(Clone, Copy)]
pub(super) struct Streamed;

/// Events that wait for a slow reader.
const EVENTS: usize = 16;

/// The events of a response; it ends with its sender.
struct Events(Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// Waits for the first token, so that what has no answer is an error and no stream; then sends events until the answer is complete
/// or the next token takes longer than a request may.
pub(super) async fn stream(
    app: &Arc<App>,
    model: Arc<Served>,
    asked: Asked,
    form: Form,
    begun: Instant,
) -> Result<Response, Problem> {
    let Asked { inputs, fields, options, .. } = asked;
    let (reply, mut ended) = oneshot::channel();
    let (said, mut tokens) = unbounded_channel();
    let job = Job { model: Arc::clone(&model), inputs, options, reply, tokens: Some(said) };
    app.queue(&model).push(job)?;
    let first = tokens.recv().await;
    let early = match first {
        Some(_) => None,
        None => Some(answered((&mut ended).await, fields.clone())?),
    };
    let (events, body) = channel(EVENTS);
    let stream = EventStream { app: Arc::clone(app), events, form, options, begun };
    tokio::spawn(stream.send(first, tokens, early, ended, fields));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    Ok((StatusCode::OK, headers, Extension(Streamed), Body::new(Events(body))).into_response())
}

struct EventStream {
    app: Arc<App>,
    events: Sender<Bytes>,
    form: Form,
    options: AnswerOptions,
    begun: Instant,
}

impl EventStream {
    async fn send(
        mut self,
        first: Option<ContinuedToken>,
        mut tokens: UnboundedReceiver<ContinuedToken>,
        early: Option<Vec<ModelAnswer>>,
        ended: oneshot::Receiver<Reply>,
        fields: Vec<String>,
    ) {
        let limit = self.app.limits.timeout;
        let late = |_| {
            let message = format!("no further token within {} s", limit.as_secs());
            Problem::new(Code::Timeout, message)
        };
        if let Some(start) = self.form.start_event()
            && self.events.send(start).await.is_err()
        {
            return;
        }
        let mut next = Ok(first);
        while let Ok(Some(token)) = next {
            if self.events.send(self.form.token_event(&token)).await.is_err() {
                // The client has gone; so does the reply, which the model checks.
                return;
            }
            next = timeout(limit, tokens.recv()).await.map_err(late);
        }
        let found = match (next, early) {
            (Err(late), _) => Err(late),
            (Ok(_), Some(answers)) => Ok(answers),
            (Ok(_), None) => match timeout(limit, ended).await {
                Ok(ended) => answered(ended, fields),
                Err(elapsed) => Err(late(elapsed)),
            },
        };
        let last = match found {
            Ok(answers) => {
                self.app.count(&answers, self.begun);
                match texts(answers).into_iter().next() {
                    Some(text) => self.form.end_event(text, self.options),
                    None => self.form.error_event(Problem::internal()),
                }
            }
            Err(problem) => self.form.error_event(problem),
        };
        let _ = self.events.send(last).await;
    }
}
