//! `/v1/adapters`: the models of the server, and adapters that are added and removed while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use lrvd_bench::{Error, Kind, Result as Loaded, kind_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::SCHEMA_VERSION;
use super::app::App;
use super::body::{json, object, text_of};
use super::card::Card;
use super::models::{Served, check_name};
use super::problem::{Code, Problem};
use super::queue::Fault;

/// Longest time to the answer of a request that adds an adapter, which may come from a cold disk.
pub(super) const LONGEST: Duration = Duration::from_mins(10);

/// An adapter to add, or to answer from now on in place of the one of this name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdapterRequest {
    /// Name in the field `model` of requests: 1 to 64 ASCII letters, digits and `-._/:`.
    name: String,
    /// Output of `lrvd train`, or an adapter folder, on the server's machine.
    folder: PathBuf,
}

/// The models of the server; the first one answers requests that name none.
#[derive(Serialize, JsonSchema)]
pub(super) struct Adapters {
    schema_version: u32,
    adapters: Vec<Card>,
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Response {
    let adapters = app.models.all().iter().map(|model| model.card.clone()).collect();
    json(StatusCode::OK, &Adapters { schema_version: SCHEMA_VERSION, adapters })
}

/// Loads the adapter on a separate thread while others answer, and asks it one question in its turn; then it takes requests.
pub(super) async fn add(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    // What has begun to load is added also if the client does not wait for it.
    let added = tokio::spawn(async move { added(app, &headers, body).await });
    match added.await.unwrap_or_else(|_| Err(Problem::internal())) {
        Ok((status, model)) => json(status, &model.card),
        Err(problem) => problem.into_response(),
    }
}

/// Removes the adapter of this name. Requests that came for it hold it until they are answered.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    let removed = check_key(&app).and_then(|()| {
        let unreadable = |_| Problem::new(Code::NotFound, "the name in the path is not UTF-8");
        app.models.remove(&name.map_err(unreadable)?)
    });
    match removed {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(problem) => problem.into_response(),
    }
}

fn check_key(app: &App) -> Result<(), Problem> {
    if app.access.key.is_some() {
        return Ok(());
    }
    let message =
        "adapters of a server can only be changed with a key: start it with `--api-key-env`";
    Err(Problem::new(Code::Forbidden, message))
}

async fn added(
    app: Arc<App>,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Arc<Served>), Problem> {
    check_key(&app)?;
    let body = text_of(headers, body, app.limits.max_bytes)?;
    let AdapterRequest { name, folder } = object(&body)?;
    check_name(&name).map_err(|message| Problem::invalid("name", message))?;
    // A client that leaves does not let the next one in before this adapter is loaded.
    let turn = Arc::clone(&app.models.turn).lock_owned().await;
    app.models.check_room(&name)?;
    let own = Arc::clone(&app);
    let called = name.clone();
    let load = move || -> (Loaded<Served>, _) {
        let model = (own.models.load)(&folder);
        (model.and_then(|model| Served::new(Some(called), model, &own.limits)), turn)
    };
    let (served, _turn) = spawn_blocking(load).await.map_err(|_| Problem::internal())?;
    let served = Arc::new(served.map_err(|error| unusable(&name, &error))?);
    let first = vec![served.model.first()];
    let ended = app.ask(Arc::clone(&served), first, served.model.options(), None)?;
    let wrong = |reason: &str| {
        let message = format!("adapter `{name}`: the model does not answer: {reason}");
        Err(Problem::at(Code::Unprocessable, "folder", message))
    };
    match ended.await {
        Ok(Ok(_)) => {}
        Ok(Err((_, Fault::Text(reason)))) => return wrong(&reason),
        Ok(Err((_, Fault::Model))) | Err(_) => return wrong("see the server's log"),
    }
    let is_new = app.models.put(Arc::clone(&served));
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, served))
}

fn unusable(name: &str, error: &Error) -> Problem {
    let code = match kind_of(error) {
        Some(Kind::OtherBase) => Code::Conflict,
        _ => Code::Unprocessable,
    };
    Problem::at(code, "folder", format!("adapter `{name}`: {error:#}"))
}
