//! A text that is sent token by token, as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lrvd_bench::adapter::ContinuedToken;
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::answer::Answer;
use super::app::{App, answered};
use super::model::Key;
use super::models::Served;
use super::problem::{Code, Problem};
use super::queue::{Job, Reply};
use super::request::Asked;
use super::response::Summary;

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
/// or `begun` is longer ago than a request may take.
pub(super) async fn stream(
    app: &Arc<App>,
    model: Arc<Served>,
    asked: Asked,
    begun: Instant,
) -> Result<Response, Problem> {
    let Asked { inputs, fields, key, .. } = asked;
    let (reply, mut ended) = oneshot::channel();
    let (said, mut tokens) = unbounded_channel();
    app.queue.push(Job { model, inputs, key, reply, tokens: Some(said) })?;
    let first = tokens.recv().await;
    let early = match first {
        Some(_) => None,
        None => Some(answered((&mut ended).await, fields.clone())?),
    };
    let (events, body) = channel(EVENTS);
    let telling = Telling { app: Arc::clone(app), events, key, begun };
    tokio::spawn(async move {
        let limit = telling.app.limits.timeout;
        let told = telling.tell(first, tokens, early, ended, fields);
        if timeout_at((begun + limit).into(), told).await.is_err() {
            let message = format!("no complete answer within {} s", limit.as_secs());
            let problem = Problem::new(Code::Timeout, message);
            // A full channel belongs to a client that reads nothing, and its connection ends.
            let _ = telling.events.try_send(event("error", &problem.event()));
        }
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    Ok((StatusCode::OK, headers, Body::new(Events(body))).into_response())
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
        let mut next = first;
        while let Some(token) = next {
            if self.events.send(event("token", &token)).await.is_err() {
                // The client has gone; so does the reply, which the model checks.
                return;
            }
            next = tokens.recv().await;
        }
        let found = match early {
            Some(answers) => Ok(answers),
            None => answered(ended.await, fields),
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
