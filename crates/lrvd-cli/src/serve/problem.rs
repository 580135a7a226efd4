//! Why a request gets no answer, by a code that does not change.

use std::fmt::Display;

use axum::body::Body as Content;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lrvd_bench::answers::Invalid;
use schemars::JsonSchema;
use serde::Serialize;

/// Seconds after which a client that found the queue full may come back.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
const SCHEME: HeaderValue = HeaderValue::from_static("Bearer");

/// Kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Code {
    MalformedJson,
    // The request around the body, or its compression.
    UnreadableRequest,
    InvalidField,
    Unauthorized,
    // Adapters of a server without a key are not changed.
    Forbidden,
    // No such path, model or adapter, or one of another kind.
    NotFound,
    MethodNotAllowed,
    // An adapter that does not fit the base or the others.
    Conflict,
    BodyTooLarge,
    UnsupportedMediaType,
    WrongHost,
    // A text that the model does not read, or a folder without a usable adapter.
    Unprocessable,
    Internal,
    // The queue is full, or the server is being stopped.
    Unavailable,
    Timeout,
}

impl Code {
    fn status(self) -> StatusCode {
        match self {
            Self::MalformedJson | Self::UnreadableRequest | Self::InvalidField => {
                StatusCode::BAD_REQUEST
            }
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// True if the body of the request is at fault, and not the request around it.
    fn is_of_the_body(self) -> bool {
        matches!(self.status(), StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY)
    }
}

/// Whose form the body of an error has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `{"error": {"code", "message", "field"}}`
    Own,
    /// Of `/v1/systemone`: `{"detail": [{"loc", "msg", "type"}]}` with 422 for a wrong body, `{"detail": {"error_type",
    /// "message"}}` for all else.
    Systemone,
    /// Of `OpenAI`: `{"error": {"message", "type", "param", "code"}}`.
    Openai,
}

/// A request without an answer, as its body says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
pub(super) struct Problem {
    /// Kind of the error: one of a fixed list, for programs.
    pub(super) code: Code,
    /// The error in words, for people; these may change.
    pub(super) message: String,
    /// The field of the request that is to blame, as in `inputs[2].pair`; null where it is none.
    pub(super) field: Option<String>,
    /// Its keys, from the outermost.
    #[serde(skip)]
    pub(super) keys: Vec<String>,
    /// True if the field is not there.
    #[serde(skip)]
    pub(super) is_missing: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct Body {
    error: Problem,
}

/// Error in the form of `/v1/systemone`.
#[derive(Serialize, JsonSchema)]
pub(super) struct SystemoneError {
    detail: Details,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Details {
    /// With 422: the body is wrong.
    Body([Detail; 1]),
    Other {
        error_type: &'static str,
        message: String,
    },
}

/// Error in the form of `OpenAI`.
#[derive(Serialize, JsonSchema)]
pub(super) struct OpenaiError {
    pub(super) error: OpenaiDetail,
}

/// Of a value in a body, as `/v1/systemone` says it.
#[derive(Serialize, JsonSchema)]
pub(super) struct Detail {
    /// `body`, and the keys of the value from the outermost.
    loc: Vec<String>,
    msg: String,
    /// `json_invalid`, `missing` or `value_error`.
    #[serde(rename = "type")]
    kind: &'static str,
}

/// As `/v1/decisions` says it.
#[derive(Serialize, JsonSchema)]
pub(super) struct OpenaiDetail {
    message: String,
    /// `authentication_error`, `invalid_request_error` or `server_error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// As in `questions[0].choices[1].value`.
    param: Option<String>,
    code: Code,
}

impl Problem {
    pub(super) fn new(code: Code, message: impl Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            field: None,
            keys: Vec::new(),
            is_missing: false,
        }
    }

    /// The error of a field.
    pub(super) fn at(code: Code, field: impl Into<String>, message: impl Display) -> Self {
        Self { field: Some(field.into()), ..Self::new(code, message) }
    }

    /// The error of a field that is wrong.
    pub(super) fn invalid(field: impl Into<String>, message: impl Display) -> Self {
        Self::at(Code::InvalidField, field, message)
    }

    /// The error of the value at these keys.
    pub(super) fn within(keys: &[&str], message: impl Display) -> Self {
        let keys = keys.iter().map(ToString::to_string).collect();
        Self { keys, ..Self::new(Code::InvalidField, message) }
    }

    /// The error in a question or a state, which is at `outer`.
    pub(super) fn of(outer: &[&str], invalid: &Invalid) -> Self {
        let keys: Vec<&str> =
            outer.iter().copied().chain(invalid.path.iter().map(String::as_str)).collect();
        let problem = Self::within(&keys, &invalid.message);
        Self { is_missing: invalid.missing, ..problem }
    }

    /// The error with the name that its field has in another API, behind `x_`.
    pub(super) fn of_own_field(mut self) -> Self {
        self.field = self.field.map(|field| format!("x_{field}"));
        self
    }

    /// A number of draws that the model does not answer with.
    pub(super) fn draws(found: usize, expected: &str) -> Self {
        Self::invalid("draws", format!("{found} draws, expected {expected}"))
    }

    pub(super) fn stopping() -> Self {
        Self::new(Code::Unavailable, "the server is being stopped")
    }

    pub(super) fn internal() -> Self {
        Self::new(Code::Internal, "the model failed; see the server's log")
    }

    /// As an entry of the list of `/v1/systemone`.
    pub(super) fn detail(&self) -> Detail {
        let named = self.field.iter().filter(|field| self.keys.is_empty() && *field != "body");
        let place = ["body"].into_iter().chain(named.map(String::as_str));
        let loc = place.chain(self.keys.iter().map(String::as_str));
        Detail {
            loc: loc.map(str::to_owned).collect(),
            msg: self.message.clone(),
            kind: match self.code {
                Code::MalformedJson => "json_invalid",
                _ if self.is_missing => "missing",
                _ => "value_error",
            },
        }
    }

    /// In the form of `OpenAI`, behind its status.
    pub(super) fn openai(&self) -> (StatusCode, OpenaiDetail) {
        let status = self.code.status();
        let is_of_the_body = self.code.is_of_the_body();
        let status = if is_of_the_body { StatusCode::BAD_REQUEST } else { status };
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let detail = OpenaiDetail {
            message: self.message.clone(),
            kind,
            param: self.field.clone(),
            code: self.code,
        };
        (status, detail)
    }

    /// Status and body in a form.
    fn body(&self, shape: Shape) -> (StatusCode, String) {
        let status = self.code.status();
        match shape {
            Shape::Own => (status, written(&Body { error: self.clone() })),
            Shape::Systemone if self.code.is_of_the_body() => {
                let detail = Details::Body([self.detail()]);
                (StatusCode::UNPROCESSABLE_ENTITY, written(&SystemoneError { detail }))
            }
            Shape::Systemone => {
                let error_type = match status {
                    StatusCode::UNAUTHORIZED => "authentication_error",
                    StatusCode::NOT_FOUND => "not_found_error",
                    StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
                    StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
                    StatusCode::GATEWAY_TIMEOUT => "timeout_error",
                    StatusCode::INTERNAL_SERVER_ERROR => "api_error",
                    _ => "invalid_request_error",
                };
                let detail = Details::Other { error_type, message: self.message.clone() };
                (status, written(&SystemoneError { detail }))
            }
            Shape::Openai => {
                let (status, error) = self.openai();
                (status, written(&OpenaiError { error }))
            }
        }
    }

    /// The body of an event in place of an answer.
    pub(super) fn event(self) -> Body {
        Body { error: self }
    }
}

fn written(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_default()
}

/// The status alone: the body is written where the path is known, by [`write()`].
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of a response to a request without an answer.
pub(super) fn write(response: &mut Response, shape: Shape) {
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return };
    let (status, body) = problem.body(shape);
    *response.status_mut() = status;
    *response.body_mut() = Content::from(body);
    let headers = response.headers_mut();
    // Of the empty body.
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if problem.code == Code::Unavailable {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    if problem.code == Code::Unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, SCHEME);
    }
}
