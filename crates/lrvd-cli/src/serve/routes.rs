//! Which path does what, how long it may take, and the line in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, post};
use serde::Serialize;
use tokio::sync::oneshot::channel;

use super::access::Access;
use super::classifier::CLASSIFY;
use super::language::GENERATE;
use super::metrics::Metrics;
use super::openapi;
use super::problem::{Problem, json};
use super::queue::{Blame, Job, Queue};
use super::served::{Asked, Card, read};
use crate::printer::Printer;

/// The paths, as they are counted.
const PATHS: [&str; 8] =
    ["/", CLASSIFY, GENERATE, "/v1/model", "/openapi.json", "/healthz", "/readyz", "/metrics"];

/// The page; it sends requests to this server alone, and its policy makes browsers hold it to that.
const PAGE: &str = include_str!("page.html");
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Texts that share a pass.
    pub(crate) batch_size: usize,
    /// Draws that a request may ask for.
    pub(crate) max_draws: usize,
    /// New tokens that a request may ask for.
    pub(crate) max_tokens: usize,
    /// Texts of a request.
    pub(crate) max_texts: usize,
    /// Bytes of a request.
    pub(crate) max_bytes: usize,
    /// Texts that wait.
    pub(crate) queue: usize,
    /// From the head of a request to its answer.
    pub(crate) timeout: Duration,
    /// Connections that are open at a time.
    pub(crate) max_connections: usize,
}

/// What every request sees.
#[derive(Debug)]
pub(super) struct App<C: Card> {
    pub(super) card: C,
    pub(super) limits: Limits,
    pub(super) access: Access,
    pub(super) queue: Queue<C>,
    pub(super) metrics: Metrics,
    /// Set when the server is to end.
    pub(super) stop: Arc<AtomicBool>,
    pub(super) printer: Printer,
}

/// What is said of a request beside its path and status.
#[derive(Clone, Copy)]
struct Size {
    texts: usize,
    draws: usize,
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970.
    time: f64,
    method: &'a str,
    path: &'a str,
    status: u16,
    milliseconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draws: Option<usize>,
}

/// All paths of `app`.
pub(super) fn router<C: Card>(app: Arc<App<C>>) -> Router {
    let elsewhere = if C::PATH == CLASSIFY { GENERATE } else { CLASSIFY };
    Router::new()
        .route("/", get(page))
        .route(C::PATH, post(ask::<C>))
        .route(elsewhere, any(|| async { Problem::OtherKind { path: C::PATH } }))
        .route(
            "/v1/model",
            get(|State(app): State<Arc<App<C>>>| async move { json(StatusCode::OK, &app.card) }),
        )
        .route("/openapi.json", get(|| async { json(StatusCode::OK, &openapi::document::<C>()) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready::<C>))
        .route("/metrics", get(metrics::<C>))
        .fallback(|| async { Problem::NotFound })
        .method_not_allowed_fallback(|| async { Problem::Method })
        .layer(DefaultBodyLimit::max(app.limits.max_bytes))
        .layer(from_fn_with_state(Arc::clone(&app), admit::<C>))
        .layer(from_fn_with_state(Arc::clone(&app), observe::<C>))
        .with_state(app)
}

async fn page() -> impl IntoResponse {
    let policy = [
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (policy, Html(PAGE))
}

async fn ready<C: Card>(State(app): State<Arc<App<C>>>) -> Response {
    if app.stop.load(Ordering::Relaxed) {
        return Problem::Stopping.into_response();
    }
    "ready\n".into_response()
}

async fn metrics<C: Card>(State(app): State<Arc<App<C>>>) -> impl IntoResponse {
    let page = app.metrics.page(app.queue.texts(), app.queue.most());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}

async fn ask<C: Card>(
    State(app): State<Arc<App<C>>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let begun = Instant::now();
    let asked = match asked(&app, &headers, body) {
        Ok(asked) => asked,
        Err(problem) => return problem.into_response(),
    };
    let size = Size { texts: asked.inputs.len(), draws: C::draws(asked.key) };
    let mut response = match answers(&app, asked).await {
        Ok(answers) => {
            app.metrics.answered(size.texts, C::withheld(&answers), begun.elapsed());
            json(StatusCode::OK, &answers)
        }
        Err(problem) => problem.into_response(),
    };
    response.extensions_mut().insert(size);
    response
}

fn asked<C: Card>(
    app: &App<C>,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Asked<C>, Problem> {
    let kind =
        headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let essence = kind.as_deref().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if !essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let found = kind.map_or_else(|| "not given".to_owned(), |kind| format!("`{kind}`"));
        return Err(Problem::MediaType { found });
    }
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::TooLarge { most: app.limits.max_bytes },
        _ => Problem::Body(rejection.body_text()),
    })?;
    read(&body, &app.card)
}

/// Waits for the model; a client that stops waiting closes the reply, which the model checks.
async fn answers<C: Card>(app: &App<C>, asked: Asked<C>) -> Result<C::Answers, Problem> {
    let Asked { inputs, mut fields, key } = asked;
    let (reply, answered) = channel();
    app.queue.push(Job { inputs, key, reply })?;
    match answered.await {
        Ok(Ok(found)) => Ok(app.card.answers(found, key)),
        Ok(Err((index, fault))) => Err(match fault.blame {
            Blame::Text => {
                Problem::Unreadable { field: fields.swap_remove(index), message: fault.message }
            }
            Blame::Model => Problem::Internal,
        }),
        // The worker has ended, which it says itself.
        Err(_) => Err(Problem::Internal),
    }
}

/// Answers only requests that name this server and have its key.
async fn admit<C: Card>(State(app): State<Arc<App<C>>>, request: Request, next: Next) -> Response {
    match app.access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Bounds a request in time, counts it and writes its line.
async fn observe<C: Card>(
    State(app): State<Arc<App<C>>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let limit = app.limits.timeout;
    let response = match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::Timeout { seconds: limit.as_secs() }.into_response(),
    };
    let known = PATHS.into_iter().find(|known| *known == path).unwrap_or("other");
    app.metrics.request(known, response.status().as_u16());
    let size = response.extensions().get::<Size>();
    let line = Line {
        time: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |d| d.as_millis() as f64 / 1e3),
        method: method.as_str(),
        path: &path,
        status: response.status().as_u16(),
        milliseconds: begun.elapsed().as_micros() as f64 / 1e3,
        texts: size.map(|size| size.texts),
        draws: size.map(|size| size.draws),
    };
    if let Ok(line) = serde_json::to_string(&line) {
        app.printer.note(&line);
    }
    response
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
