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
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::Answer;
use super::app::{App, answered};
use super::model::Key;
use super::models::Served;
use super::problem::{Code, Problem};
use super::queue::{Job, Reply};
use super::request::Asked;
use super::response::Summary;

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
    begun: Instant,
) -> Result<Response, Problem> {
    let Asked { inputs, fields, key, .. } = asked;
    let (reply, mut ended) = oneshot::channel();
    let (said, mut tokens) = unbounded_channel();
    let job = Job { model: Arc::clone(&model), inputs, key, reply, tokens: Some(said) };
    app.queue(&model).push(job)?;
    let first = tokens.recv().await;
    let early = match first {
        Some(_) => None,
        None => Some(answered((&mut ended).await, fields.clone())?),
    };
    let (events, body) = channel(EVENTS);
    let telling = Telling { app: Arc::clone(app), events, key, begun };
    tokio::spawn(async move { telling.tell(first, tokens, early, ended, fields).await });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    Ok((StatusCode::OK, headers, Extension(Streamed), Body::new(Events(body))).into_response())
}

struct Telling {
    app: Arc<App>,
    events: Sender<Bytes>,
    key: Key,
    begun: Instant,
}

impl Telling {
    async fn tell(
        &self,
        first: Option<ContinuedToken>,
        mut tokens: UnboundedReceiver<ContinuedToken>,
        early: Option<Vec<Answer>>,
        ended: oneshot::Receiver<Reply>,
        fields: Vec<String>,
    ) {
        let limit = self.app.limits.timeout;
        let late = |_| {
            let message = format!("no further token within {} s", limit.as_secs());
            Problem::new(Code::Timeout, message)
        };
        let mut next = Ok(first);
        while let Ok(Some(token)) = next {
            if self.events.send(event("token", &token)).await.is_err() {
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
                match answers.into_iter().next() {
                    Some(Answer::Text(text)) => event("answer", &Summary::new(text, self.key)),
                    _ => event("error", &Problem::internal().event()),
                }
            }
            Err(problem) => event("error", &problem.event()),
        };
        let _ = self.events.send(last).await;
    }
}

/// One event; the JSON has no line ends.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}
