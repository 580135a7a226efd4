//! Compressed bodies of requests: `Content-Encoding: zstd`, which clients of decision models send from 1 KiB.

use std::borrow::Cow;
use std::io::Read as _;

use axum::http::{HeaderMap, header};

use super::problem::{Code, Problem};

/// Largest window of a frame, which is held in memory: 8 MiB, the most that RFC 9659 allows in HTTP.
const WINDOW_LOG: u32 = 23;

/// The body as it was before it was compressed, of at most `most` bytes.
pub(super) fn decoded<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
    most: usize,
) -> Result<Cow<'a, [u8]>, Problem> {
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
