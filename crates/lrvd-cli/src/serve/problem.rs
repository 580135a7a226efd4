//! Why a request gets no answer, by a code that does not change.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// Seconds after which a client that found the queue full may come back.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// How a key is sent.
const SCHEME: HeaderValue = HeaderValue::from_static("Bearer");

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("unknown path; `/openapi.json` lists the paths")]
    NotFound,
    #[error("the model of this server is of another kind: it answers at `{path}`")]
    OtherKind { path: &'static str },
    #[error("method not allowed; the header `Allow` names the allowed one")]
    Method,
    #[error("the content type is {found}, expected `application/json`")]
    MediaType { found: String },
    #[error("the body could not be read: {0}")]
    Body(String),
    #[error("the body is longer than {most} bytes")]
    TooLarge { most: usize },
    #[error("the body is not JSON: {0}")]
    Json(String),
    #[error("{message}")]
    Field { field: String, message: String },
    #[error("expected {expected}")]
    NoText { field: &'static str, expected: &'static str },
    #[error("the text is empty")]
    EmptyText { field: String },
    #[error("{found} texts, expected at most {most}")]
    TooManyTexts { found: usize, most: usize },
    #[error("the model was trained on pairs: expected `pair`, the second text")]
    PairMissing { field: String },
    #[error("the model was trained on single texts: expected no `pair`")]
    PairUnwanted { field: String },
    #[error("{found} choices, expected 2 to {most}")]
    Choices { field: String, found: usize, most: usize },
    #[error("the model was trained on texts without choices: expected no `choices`")]
    ChoicesUnwanted { field: String },
    #[error("{found} draws, expected {expected}")]
    Draws { found: usize, expected: String },
    #[error("{found} new tokens, expected 1 to {most}")]
    Tokens { found: usize, most: usize },
    #[error("seed {found}, expected 0 to {most}")]
    Seed { found: u64, most: u64 },
    #[error("the model cannot read this text: {message}")]
    Unreadable { field: String, message: String },
    #[error("the model failed; see the server's log")]
    Internal,
    #[error("the queue is full ({most} texts): try again later")]
    Full { most: usize },
    #[error("the server is being stopped")]
    Stopping,
    #[error("no answer within {seconds} s")]
    Timeout { seconds: u64 },
    #[error("expected one header `Host` with a name or an address, found {found}")]
    HostHeader { found: String },
    #[error("`{found}` is not known as a name of this server: `--host-name` adds one")]
    WrongHost { found: String },
    #[error("expected the header `Authorization: Bearer KEY` with the key of this server")]
    Unauthorized,
}

/// The body of an error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct Body {
    error: Inner,
}

/// What is wrong.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
struct Inner {
    /// What kind of error it is: one of a fixed list, for programs.
    #[schemars(extend("enum" = Problem::CODES))]
    code: &'static str,
    /// The same in words, for people; these may change.
    message: String,
    /// The field of the request that is to blame, as in `inputs[2].pair`; null where it is none.
    field: Option<String>,
}

impl Problem {
    /// All codes.
    pub(super) const CODES: [&str; 26] = [
        "not_found",
        "other_kind",
        "method_not_allowed",
        "unsupported_media_type",
        "unreadable_body",
        "body_too_large",
        "malformed_json",
        "invalid_field",
        "no_text",
        "empty_text",
        "too_many_texts",
        "pair_missing",
        "pair_unwanted",
        "choices_out_of_range",
        "choices_unwanted",
        "draws_out_of_range",
        "max_tokens_out_of_range",
        "seed_out_of_range",
        "unreadable_text",
        "internal",
        "queue_full",
        "stopping",
        "timeout",
        "host_header",
        "wrong_host",
        "unauthorized",
    ];

    /// Status and place of the code.
    fn kind(&self) -> (StatusCode, usize) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, 0),
            Self::OtherKind { .. } => (StatusCode::NOT_FOUND, 1),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, 2),
            Self::MediaType { .. } => (StatusCode::UNSUPPORTED_MEDIA_TYPE, 3),
            Self::Body(_) => (StatusCode::BAD_REQUEST, 4),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, 5),
            Self::Json(_) => (StatusCode::BAD_REQUEST, 6),
            Self::Field { .. } => (StatusCode::BAD_REQUEST, 7),
            Self::NoText { .. } => (StatusCode::BAD_REQUEST, 8),
            Self::EmptyText { .. } => (StatusCode::BAD_REQUEST, 9),
            Self::TooManyTexts { .. } => (StatusCode::BAD_REQUEST, 10),
            Self::PairMissing { .. } => (StatusCode::BAD_REQUEST, 11),
            Self::PairUnwanted { .. } => (StatusCode::BAD_REQUEST, 12),
            Self::Choices { .. } => (StatusCode::BAD_REQUEST, 13),
            Self::ChoicesUnwanted { .. } => (StatusCode::BAD_REQUEST, 14),
            Self::Draws { .. } => (StatusCode::BAD_REQUEST, 15),
            Self::Tokens { .. } => (StatusCode::BAD_REQUEST, 16),
            Self::Seed { .. } => (StatusCode::BAD_REQUEST, 17),
            Self::Unreadable { .. } => (StatusCode::UNPROCESSABLE_ENTITY, 18),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, 19),
            Self::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, 20),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, 21),
            Self::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, 22),
            Self::HostHeader { .. } => (StatusCode::BAD_REQUEST, 23),
            Self::WrongHost { .. } => (StatusCode::MISDIRECTED_REQUEST, 24),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, 25),
        }
    }

    /// The code of the error.
    pub(super) fn code(&self) -> &'static str {
        Self::CODES[self.kind().1]
    }

    /// The field that is to blame.
    pub(super) fn field(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. }
            | Self::EmptyText { field }
            | Self::PairMissing { field }
            | Self::PairUnwanted { field }
            | Self::Choices { field, .. }
            | Self::ChoicesUnwanted { field }
            | Self::Unreadable { field, .. } => Some(field),
            Self::NoText { field, .. } => Some(field),
            Self::TooManyTexts { .. } => Some("inputs"),
            Self::Draws { .. } => Some("draws"),
            Self::Tokens { .. } => Some("max_tokens"),
            Self::Seed { .. } => Some("seed"),
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let field = self.field().map(str::to_owned);
        let body = Body { error: Inner { code: self.code(), message: self.to_string(), field } };
        let mut response = json(self.kind().0, &body);
        if matches!(self, Self::Full { .. } | Self::Stopping) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self == Self::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, SCHEME);
        }
        response
    }
}

/// A response of JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        // No type here has keys that JSON lacks.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
