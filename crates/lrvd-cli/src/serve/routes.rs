//! Which path does what, how long it may take, and the line in the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, post};
use serde::Serialize;
use tokio::sync::oneshot::channel;

use super::app::{App, answered};
use super::encoding::decoded;
use super::metrics::CONTENT_TYPE;
use super::model::{Card, Input};
use super::problem::{Code, Problem, Shape, json, write};
use super::queue::Job;
use super::request::{Asked, ClassifyRequest, GenerateRequest, object};
use super::response::{document, respond};
use super::share::share;
use super::stream::stream;
use super::systemone::Models;
use super::{ASKED, CLASSIFY, DECISIONS, GENERATE, MODELS, SYSTEMONE};
use super::{decisions, systemone};

/// The paths, as they are counted.
const PATHS: [&str; 11] = [
    "/",
    CLASSIFY,
    GENERATE,
    SYSTEMONE,
    DECISIONS,
    "/v1/model",
    MODELS,
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/metrics",
];

/// The page; it sends requests to this server alone, and its policy makes browsers hold it to that.
const PAGE: &str = include_str!("page.html");
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Texts and draws of a request, for its line in the log.
#[derive(Clone, Copy)]
struct Size(usize, usize);

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

pub(super) fn router(app: Arc<App>) -> Router {
    let own = app.card.paths();
    let elsewhere = move || async move {
        let places = own.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
        let message =
            format!("the model of this server is of another kind: it answers at {places}");
        Problem::new(Code::OtherKind, message)
    };
    let asked = ASKED.into_iter().fold(Router::new(), |router, path| {
        router.route(path, if own.contains(&path) { post(ask) } else { any(elsewhere) })
    });
    asked
        .route("/", get(page))
        .route(
            MODELS,
            get(|State(app): State<Arc<App>>| async move {
                json(StatusCode::OK, &Models::new(&app.card, app.created))
            }),
        )
        .route(
            "/v1/model",
            get(|State(app): State<Arc<App>>| async move { json(StatusCode::OK, &app.card) }),
        )
        .route(
            "/openapi.json",
            get(|State(app): State<Arc<App>>| async move {
                json(StatusCode::OK, &document(&app.card))
            }),
        )
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async {
            Problem::new(Code::NotFound, "unknown path; `/openapi.json` lists the paths")
        })
        .method_not_allowed_fallback(|| async {
            let message = "method not allowed; the header `Allow` names the allowed one";
            Problem::new(Code::MethodNotAllowed, message)
        })
        .layer(DefaultBodyLimit::max(app.limits.max_bytes))
        .layer(from_fn_with_state(Arc::clone(&app), admit))
        .layer(from_fn_with_state(Arc::<[String]>::from(&*app.access.origins), share))
        .layer(from_fn_with_state(Arc::clone(&app), observe))
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

async fn ready(State(app): State<Arc<App>>) -> Response {
    if app.stop.load(Ordering::Relaxed) {
        return Problem::stopping().into_response();
    }
    "ready\n".into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let page = app.metrics.page(app.queue.texts(), app.queue.most);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page)
}

async fn ask(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let begun = Instant::now();
    let asked = match asked(&app, uri.path(), &headers, body) {
        Ok(asked) => asked,
        Err(problem) => return problem.into_response(),
    };
    let texts = asked.inputs.iter().map(Input::texts).sum();
    let size = Size(texts, asked.key.draws);
    let answered = if asked.stream {
        stream(&app, asked, begun).await
    } else {
        whole(&app, asked, begun).await
    };
    let mut response = answered.unwrap_or_else(Problem::into_response);
    response.extensions_mut().insert(size);
    response
}

/// The response to a request, once its answer is complete. A client that stops waiting closes the reply, which the model checks.
async fn whole(app: &App, asked: Asked, begun: Instant) -> Result<Response, Problem> {
    let Asked { inputs, fields, key, form, .. } = asked;
    let (reply, ended) = channel();
    app.queue.push(Job { inputs, key, reply, tokens: None })?;
    let answers = answered(ended.await, fields)?;
    app.count(&answers, begun);
    Ok(respond(&app.card, form, answers, key))
}

/// Reads the body of a request for `path` to the model of `card`; nothing in it is passed over but what other APIs pass over.
fn read(path: &str, body: &[u8], card: &Card) -> Result<Asked, Problem> {
    match card {
        Card::Classifier(card) if path == SYSTEMONE => systemone::read(body, card),
        Card::Classifier(card) if path == DECISIONS => decisions::read(body, card),
        Card::Classifier(card) => object::<ClassifyRequest>(body)?.check(card),
        Card::Language(card) => object::<GenerateRequest>(body)?.check(card),
    }
}

fn asked(
    app: &App,
    path: &str,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Asked, Problem> {
    let kind =
        headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let essence = kind.as_deref().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if !essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let found = kind.map_or_else(|| "not given".to_owned(), |kind| format!("`{kind}`"));
        let message = format!("the content type is {found}, expected `application/json`");
        return Err(Problem::new(Code::UnsupportedMediaType, message));
    }
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let most = app.limits.max_bytes;
            Problem::new(Code::BodyTooLarge, format!("the body is longer than {most} bytes"))
        }
        _ => {
            let message = format!("the body could not be read: {}", rejection.body_text());
            Problem::new(Code::UnreadableBody, message)
        }
    })?;
    read(path, &decoded(headers, &body, app.limits.max_bytes)?, &app.card)
}

async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Bounds a request in time, writes an error in the form of its path, counts the request and writes its line.
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let limit = app.limits.timeout;
    let mut response = match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let message = format!("no answer within {} s", limit.as_secs());
            Problem::new(Code::Timeout, message).into_response()
        }
    };
    write(&mut response, Shape::of(&path));
    let known = PATHS.into_iter().find(|known| *known == path).unwrap_or("other");
    let labels =
        vec![("path", known.to_owned()), ("status", response.status().as_str().to_owned())];
    app.metrics.requests.get_or_create(&labels).inc();
    let size = response.extensions().get::<Size>();
    let line = Line {
        time: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |d| d.as_millis() as f64 / 1e3),
        method: method.as_str(),
        path: &path,
        status: response.status().as_u16(),
        milliseconds: begun.elapsed().as_micros() as f64 / 1e3,
        texts: size.map(|size| size.0),
        draws: size.map(|size| size.1),
    };
    if let Ok(line) = serde_json::to_string(&line) {
        app.printer.note(&line);
    }
    response
}
