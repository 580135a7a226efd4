//! Bodies of requests and responses as JSON.
//!
//! A request's body may be compressed: `Content-Encoding: zstd`, which clients of decision models send from 1 KiB.

use std::borrow::Cow;
use std::fmt::{Formatter, Result as Written};
use std::io::Read as _;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lrvd_bench::whole_json;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error as Wrong, MapAccess, SeqAccess, Visitor,
};

use super::problem::{Code, Problem};

/// Largest window of a frame, which is held in memory: 8 MiB, the most that RFC 9659 allows in HTTP.
const WINDOW_LOG: u32 = 23;

/// The body of a request, which must be called JSON, without its compression.
pub(super) fn text_of(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    most: usize,
) -> Result<Bytes, Problem> {
    let kind =
        headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let essence = kind.as_deref().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if !essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let found = kind.map_or_else(|| "not given".to_owned(), |kind| format!("`{kind}`"));
        let message = format!("the content type is {found}, expected `application/json`");
        return Err(Problem::new(Code::UnsupportedMediaType, message));
    }
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_long(most),
        _ => {
            let message = format!("the body could not be read: {}", rejection.body_text());
            Problem::new(Code::UnreadableRequest, message)
        }
    })?;
    let decompressed = match decoded(headers, &body, most)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(found) => Some(found.into()),
    };
    Ok(decompressed.unwrap_or(body))
}

/// Rejects a body that says itself that it is too long or in a transfer coding that is not read, before any of it is read.
pub(super) fn check_head(headers: &HeaderMap, most: usize) -> Result<(), Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|own| own > most as u64) {
        return Err(too_long(most));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let message = "the transfer coding is not `chunked` alone";
            Err(Problem::new(Code::UnreadableRequest, message))
        }
    }
}

fn too_long(most: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the body is longer than {most} bytes"))
}

/// Reads an object.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    parsed(body).map(|Object(request)| request)
}

/// Reads a body of JSON.
pub(super) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    whole_json(serde_json::Deserializer::from_slice(body)).map_err(|error| {
        let path = error.path();
        let inner = error.inner();
        if !inner.is_data() {
            return Problem::new(Code::MalformedJson, format!("the body is not JSON: {inner}"));
        }
        let keys: Vec<String> = path.iter().map(ToString::to_string).collect();
        let keys: Vec<&str> = keys.iter().map(|key| key.trim_matches(['[', ']'])).collect();
        let field = if keys.is_empty() { "body".to_owned() } else { path.to_string() };
        Problem { field: Some(field), ..Problem::within(&keys, inner) }
    })
}

/// A `T` by the names of its fields; serde's own structs are read from lists as well.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> Written {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// A text, or several parts.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum Words<T> {
    Text(String),
    Parts(Vec<T>),
}

/// By the form of the value, so that an error names the part.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Words<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = Words<T>;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> Written {
                formatter.write_str("a text or a list")
            }

            fn visit_str<E: Wrong>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Words::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Self::Value, A::Error> {
                let parts: Vec<Object<T>> =
                    Deserialize::deserialize(SeqAccessDeserializer::new(parts))?;
                Ok(Words::Parts(parts.into_iter().map(|Object(part)| part).collect()))
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<T> Words<T> {
    pub(super) fn each(
        &self,
        field: &str,
        mut text: impl FnMut(&T, &str) -> Result<String, Problem>,
    ) -> Result<String, Problem> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Parts(parts) => {
                let part = |(i, part)| text(part, &format!("{field}[{i}]"));
                Ok(parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.join("\n"))
            }
        }
    }
}

pub(super) fn filled(text: &str, field: impl FnOnce() -> String) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::invalid(field(), "the text is empty"));
    }
    Ok(())
}

/// Two fields that exclude each other.
pub(super) fn clash(field: &str, other: &str) -> Problem {
    let message = format!("`{field}` beside `{other}`: expected one of them");
    Problem::invalid(field, message)
}

/// The body as it was before it was compressed, of at most `most` bytes.
fn decoded<'a>(headers: &HeaderMap, body: &'a [u8], most: usize) -> Result<Cow<'a, [u8]>, Problem> {
    let named = headers.get_all(header::CONTENT_ENCODING);
    let named: Vec<_> = named.iter().map(|name| String::from_utf8_lossy(name.as_bytes())).collect();
    let mut encodings = named.iter().flat_map(|names| names.split(',')).map(str::trim);
    let encoding = encodings.next().unwrap_or("identity");
    if encoding.eq_ignore_ascii_case("identity") && encodings.next().is_none() {
        return Ok(body.into());
    }
    if !encoding.eq_ignore_ascii_case("zstd") || encodings.next().is_some() {
        let message =
            format!("the content encoding is `{}`, expected `zstd` or none", named.join(", "));
        return Err(Problem::new(Code::UnsupportedMediaType, message));
    }
    let damaged = |error: std::io::Error| {
        Problem::new(
            Code::UnreadableRequest,
            format!("the body is not compressed by zstd: {error}"),
        )
    };
    let mut decoder = zstd::Decoder::with_buffer(body).map_err(damaged)?;
    decoder.window_log_max(WINDOW_LOG).map_err(damaged)?;
    let mut found = Vec::new();
    decoder.take(most as u64 + 1).read_to_end(&mut found).map_err(damaged)?;
    if found.len() > most {
        let message = format!("the body is longer than {most} bytes once it is decompressed");
        return Err(Problem::new(Code::BodyTooLarge, message));
    }
    Ok(found.into())
}

/// The response with `body`.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        // No type here has keys that JSON lacks.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use axum::http::HeaderValue;

    use super::*;

    fn code(encodings: &[&'static str], body: &[u8], most: usize) -> Result<Vec<u8>, Code> {
        let mut headers = HeaderMap::new();
        for encoding in encodings {
            headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        decoded(&headers, body, most).map(Cow::into_owned).map_err(|problem| problem.code)
    }

    #[test]
    fn bodies_are_decompressed_within_the_limit() {
        let text = "{\"state\": \"I was charged twice\"}".repeat(100);
        let packed = zstd::encode_all(text.as_bytes(), 3).unwrap();
        assert!(packed.len() < 100);
        for encodings in [&["zstd"][..], &["ZSTD"]] {
            assert_eq!(code(encodings, &packed, text.len()), Ok(text.clone().into_bytes()));
        }
        for encodings in [&[][..], &["identity"]] {
            assert_eq!(code(encodings, text.as_bytes(), 1), Ok(text.clone().into_bytes()));
        }
        // Two frames are one body.
        let twice = packed.repeat(2);
        assert_eq!(code(&["zstd"], &twice, 2 * text.len()), Ok(text.repeat(2).into_bytes()));

        for (encodings, body, most, expected) in [
            (&["zstd"][..], &packed[..], text.len() - 1, Code::BodyTooLarge),
            (&["zstd"], &twice, text.len(), Code::BodyTooLarge),
            (&["zstd"], &packed[..packed.len() - 3], text.len(), Code::UnreadableRequest),
            (&["zstd"], text.as_bytes(), text.len(), Code::UnreadableRequest),
            (&["gzip"], &packed, text.len(), Code::UnsupportedMediaType),
            (&["zstd, zstd"], &packed, text.len(), Code::UnsupportedMediaType),
            (&["zstd", "gzip"], &packed, text.len(), Code::UnsupportedMediaType),
        ] {
            assert_eq!(code(encodings, body, most), Err(expected), "{encodings:?}");
        }
    }

    /// A few bytes that ask for a window of 128 MiB.
    #[test]
    fn a_frame_with_a_large_window_is_an_error() {
        let packed = |window_log| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
            encoder.window_log(window_log).unwrap();
            // The head of a frame is written before its length is known.
            encoder.write_all(b"{").unwrap();
            encoder.flush().unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(code(&["zstd"], &packed(27), 100), Err(Code::UnreadableRequest));
        assert_eq!(code(&["zstd"], &packed(WINDOW_LOG), 100), Ok(b"{".to_vec()));
    }
}
