//! Which path does what, how long it may take, and the line in the log.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, delete, get};
use hyper::body::Frame;
use serde::Serialize;
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::app::{App, Streamed};
use super::body::{check_head, json, text_of};
use super::metrics::CONTENT_TYPE;
use super::model::Input;
use super::models::ModelList;
use super::openapi::{APIS, Api, api, document, shape};
use super::problem::{Code, Problem, write};
use super::{ADAPTER, ADAPTERS, MODELS, adapters};
use crate::printer::Printer;

/// The paths where no model is asked.
const PATHS: [&str; 8] =
    ["/", "/v1/model", MODELS, ADAPTERS, "/openapi.json", "/healthz", "/readyz", "/metrics"];

/// The page; it sends requests to this server alone, and its policy makes browsers hold it to that.
const PAGE: &str = include_str!("page.html");
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Further fields of the line of a request in the log.
#[derive(Clone, Serialize)]
struct Size {
    model: String,
    texts: usize,
    draws: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970.
    time: f64,
    method: &'a str,
    path: &'a str,
    status: u16,
    milliseconds: f64,
    #[serde(flatten)]
    size: Option<&'a Size>,
}

pub(super) fn router(app: Arc<App>) -> Router {
    let asked = APIS.iter().fold(Router::new(), |router, api| {
        router.route(
            api.path,
            any(move |app, method, headers, body| ask(api, app, method, headers, body)),
        )
    });
    let answered = asked
        .route("/", get(page))
        .route(ADAPTERS, get(adapters::list).post(adapters::add))
        // A name may have slashes.
        .route("/v1/adapters/{*name}", delete(adapters::remove))
        .route(
            MODELS,
            get(|State(app): State<Arc<App>>| async move {
                json(StatusCode::OK, &ModelList::new(&app.models.all()))
            }),
        )
        .route(
            "/v1/model",
            get(|State(app): State<Arc<App>>| async move {
                app.models.first().map(|model| json(StatusCode::OK, &model.card))
            }),
        )
        .route(
            "/openapi.json",
            get(|State(app): State<Arc<App>>| async move {
                json(StatusCode::OK, &document(&app.models))
            }),
        )
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async {
            Problem::new(Code::NotFound, "unknown path; `/openapi.json` lists the paths")
        })
        .method_not_allowed_fallback(|| async { not_allowed() })
        .layer(DefaultBodyLimit::max(app.limits.max_bytes))
        .layer(from_fn_with_state(Arc::clone(&app), admit));
    let answered = match &*app.access.origins {
        [] => answered,
        origins => answered.layer(shared(origins)),
    };
    answered.layer(from_fn_with_state(Arc::clone(&app), observe)).with_state(app)
}

/// Permission of pages of the sites `origins` to send requests (CORS), which browsers keep for ten minutes.
fn shared(origins: &[String]) -> CorsLayer {
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE])
        .expose_headers([header::RETRY_AFTER])
        .max_age(Duration::from_mins(10))
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
    let page = app.metrics.page(app.queue.texts() + app.prompts.texts(), app.queue.most);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page)
}

fn not_allowed() -> Problem {
    let message = "method not allowed; the header `Allow` names the allowed one";
    Problem::new(Code::MethodNotAllowed, message)
}

async fn ask(
    api: &Api,
    State(app): State<Arc<App>>,
    method: Method,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let begun = Instant::now();
    if method != Method::POST {
        // The router would name the method in a 404 of `admit`, too.
        return ([(header::ALLOW, "POST")], not_allowed()).into_response();
    }
    let body = text_of(&headers, body, app.limits.max_bytes);
    let asked = match body.and_then(|body| (api.read)(&body, &app.models)) {
        Ok(asked) => asked,
        Err(problem) => return problem.into_response(),
    };
    let size = Size {
        model: asked.model.card.name().to_owned(),
        texts: asked.inputs.iter().map(Input::texts).sum(),
        draws: asked.options.draws,
    };
    let mut response = app.answer(asked, begun).await.unwrap_or_else(Problem::into_response);
    response.extensions_mut().insert(size);
    response
}

async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let asked = api(request.uri().path()).map(|api| api.path);
    let is_answered = || asked.map_or(Ok(()), |path| app.models.check_path(path));
    let checked = app.access.check(&request).and_then(|()| is_answered());
    let checked = checked.and_then(|()| check_head(request.headers(), app.limits.max_bytes));
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Bounds a request in time, writes an error in the form of its path, counts the request and writes its line: of a stream at its
/// end.
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let is_load = path == ADAPTERS && method == Method::POST;
    let limit = if is_load { adapters::LONGEST } else { app.limits.timeout };
    let mut response = match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let message = format!("no answer within {} s", limit.as_secs());
            Problem::new(Code::Timeout, message).into_response()
        }
    };
    write(&mut response, shape(&path));
    let status = response.status();
    let size = response.extensions().get().cloned();
    let ended = Ended { app, begun, method, path, status, size };
    if response.extensions().get::<Streamed>().is_some() {
        return response.map(|body| Body::new(Observed { body, _ended: ended }));
    }
    response
}

/// A request that has its answer, which is counted and written down when this is dropped.
struct Ended {
    app: Arc<App>,
    begun: Instant,
    method: Method,
    path: String,
    status: StatusCode,
    size: Option<Size>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let Self { app, begun, method, path, status, size } = self;
        let mut paths = APIS.iter().map(|api| api.path).chain(PATHS);
        let one = path.strip_prefix(ADAPTERS).filter(|rest| rest.starts_with('/'));
        let known = paths.find(|known| known == path).or(one.map(|_| ADAPTER)).unwrap_or("other");
        let labels = vec![("path", known.to_owned()), ("status", status.as_str().to_owned())];
        app.metrics.requests.get_or_create(&labels).inc();
        let line = Line {
            time: now(),
            method: method.as_str(),
            path,
            status: status.as_u16(),
            milliseconds: begun.elapsed().as_micros() as f64 / 1e3,
            size: size.as_ref(),
        };
        if let Ok(line) = serde_json::to_string(&line) {
            app.printer.note(&line);
        }
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_millis() as f64 / 1e3)
}

/// Writes the line of a signal into the log.
pub(crate) fn log_signal(printer: Printer, signal: &str, ends: bool) {
    let line = serde_json::json!({ "time": now(), "signal": signal, "ends_server": ends });
    printer.note(&line.to_string());
}

/// The body of a stream, which ends with its last event or its connection.
struct Observed {
    body: Body,
    _ended: Ended,
}

impl hyper::body::Body for Observed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
}
