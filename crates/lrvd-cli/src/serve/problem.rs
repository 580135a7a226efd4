//! Why a request gets no answer, by a code that does not change.

use std::fmt::Display;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// Seconds after which a client that found the queue full may come back.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
const SCHEME: HeaderValue = HeaderValue::from_static("Bearer");

/// What kind of error it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Code {
    NotFound,
    OtherKind,
    MethodNotAllowed,
    UnsupportedMediaType,
    UnreadableBody,
    BodyTooLarge,
    MalformedJson,
    InvalidField,
    NoText,
    EmptyText,
    TooManyTexts,
    PairMissing,
    PairUnwanted,
    ChoicesOutOfRange,
    ChoicesUnwanted,
    DrawsOutOfRange,
    MaxTokensOutOfRange,
    SeedOutOfRange,
    UnreadableText,
    Internal,
    QueueFull,
    Stopping,
    Timeout,
    HostHeader,
    WrongHost,
    Unauthorized,
}

impl Code {
    fn status(self) -> StatusCode {
        match self {
            Self::NotFound | Self::OtherKind => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnreadableText => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::QueueFull | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// A request without an answer, as its body says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
pub(super) struct Problem {
    /// What kind of error it is: one of a fixed list, for programs.
    pub(super) code: Code,
    /// The same in words, for people; these may change.
    pub(super) message: String,
    /// The field of the request that is to blame, as in `inputs[2].pair`; null where it is none.
    pub(super) field: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct Body {
    error: Problem,
}

impl Problem {
    pub(super) fn new(code: Code, message: impl Display) -> Self {
        Self { code, message: message.to_string(), field: None }
    }

    /// The fault of a field.
    pub(super) fn at(code: Code, field: impl Into<String>, message: impl Display) -> Self {
        Self { field: Some(field.into()), ..Self::new(code, message) }
    }

    /// A number of draws that the model does not answer with.
    pub(super) fn draws(found: usize, expected: &str) -> Self {
        Self::at(Code::DrawsOutOfRange, "draws", format!("{found} draws, expected {expected}"))
    }

    pub(super) fn stopping() -> Self {
        Self::new(Code::Stopping, "the server is being stopped")
    }

    pub(super) fn internal() -> Self {
        Self::new(Code::Internal, "the model failed; see the server's log")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let code = self.code;
        let mut response = json(code.status(), &Body { error: self });
        if matches!(code, Code::QueueFull | Code::Stopping) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if code == Code::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, SCHEME);
        }
        response
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        // No type here has keys that JSON lacks.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
