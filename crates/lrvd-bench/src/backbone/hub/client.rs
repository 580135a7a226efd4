//! Requests to the hub.
//!
//! Redirects are followed here and not by the HTTP library, because the answer that redirects to a store of large files
//! is the one that states the file's hash, and because the token is for the hub's own host.

use std::time::Duration;

use ureq::http::{Method, Request, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::text::head;

/// Redirects in a row.
const REDIRECTS: usize = 5;
/// Characters of a server's message that are shown.
const SHOWN: usize = 200;

pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    origin: Origin,
    token: Option<String>,
}

type Origin = (String, String, u16);

pub(super) struct Remote {
    /// Where its bytes are.
    pub(super) url: String,
    pub(super) commit: String,
    /// Names the content: SHA-256 in hex for files in the store of large files.
    pub(super) etag: String,
    pub(super) size: Option<u64>,
}

impl Client {
    /// Requests to the hub at `endpoint`. The deadline `patience` is for a connection, for an answer, and for the next
    /// bytes of a file.
    pub(super) fn new(
        endpoint: &str,
        token: Option<String>,
        patience: Duration,
    ) -> Result<Self, String> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let patience = Some(patience);
        let config = Agent::config_builder()
            .user_agent(concat!("lrvd/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(patience)
            .timeout_connect(patience)
            .timeout_send_request(patience)
            .timeout_recv_response(patience)
            .timeout_per_read(patience);
        let origin = origin(&endpoint)?;
        Ok(Self { agent: config.build().into(), endpoint, origin, token })
    }

    /// What the hub states of `path`; `None` if it has no such file.
    pub(super) fn ask(&self, path: &str) -> Result<Option<Remote>, String> {
        let mut url = format!("{}/{path}", self.endpoint);
        let (mut commit, mut linked, mut linked_size) = (None, None, None);
        for _ in 0..=REDIRECTS {
            let answer = self.send(Method::HEAD, &url, 0)?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            // A redirect within the hub may state these or leave them to the answer that it leads to.
            commit = commit.or_else(|| text(&answer, "x-repo-commit"));
            linked = linked.or_else(|| text(&answer, "x-linked-etag"));
            linked_size = linked_size.or_else(|| text(&answer, "x-linked-size"));
            let target = redirect(&answer, &url)?;
            if let Some(target) = &target
                && origin(target)? == self.origin
            {
                url.clone_from(target);
                continue;
            }
            let size = match &target {
                None => linked_size.or_else(|| text(&answer, "content-length")),
                Some(_) => linked_size,
            };
            let size = size.map(|size| {
                let wrong = |_| format!("`{}`: the size is `{size}`", shown(&url));
                size.parse().map_err(wrong)
            });
            let needed = |value: Option<String>, header: &str| {
                value.ok_or_else(|| format!("`{}`: the answer has no `{header}`", shown(&url)))
            };
            let etag = needed(linked.or_else(|| text(&answer, "etag")), "etag")?;
            return Ok(Some(Remote {
                commit: needed(commit, "x-repo-commit")?,
                etag: etag.trim_start_matches("W/").trim_matches('"').to_owned(),
                size: size.transpose()?,
                url: target.unwrap_or(url),
            }));
        }
        Err(endless(&url))
    }

    /// The bytes at `url` from byte `start` on, or all of them where the server sends no part: then the status is 200.
    pub(super) fn read(&self, url: &str, start: u64) -> Result<Response<Body>, String> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let answer = self.send(Method::GET, &url, start)?;
            match redirect(&answer, &url)? {
                None => return Ok(answer),
                Some(target) => url = target,
            }
        }
        Err(endless(&url))
    }

    fn send(&self, method: Method, url: &str, start: u64) -> Result<Response<Body>, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("`{}` did not answer: {error}", shown(url));
        let mut request = Request::builder().method(method).uri(url);
        request = request.header("Accept-Encoding", "identity");
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| origin(url) == Ok(self.origin.clone()))
        {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|error| failed(&error))?;
        let answer = self.agent.run(request).map_err(|error| failed(&error))?;
        let status = answer.status();
        let understood = status.is_success()
            || redirects(status)
            || [StatusCode::NOT_FOUND, StatusCode::RANGE_NOT_SATISFIABLE].contains(&status);
        if understood {
            return Ok(answer);
        }
        let words = text(&answer, "x-error-message").unwrap_or_default();
        let words = if words.is_empty() { words } else { format!(": {}", head(&words, SHOWN)) };
        Err(format!("`{}` answered {status}{words}", shown(url)))
    }
}

fn redirects(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn text(answer: &Response<Body>, header: &str) -> Option<String> {
    answer.headers().get(header)?.to_str().ok().map(str::to_owned)
}

/// Where an answer redirects to, if it does.
fn redirect(answer: &Response<Body>, url: &str) -> Result<Option<String>, String> {
    if !redirects(answer.status()) {
        return Ok(None);
    }
    let wrong = |what: &str| format!("`{}` answered {} {what}", shown(url), answer.status());
    let location = text(answer, "location").ok_or_else(|| wrong("without a location"))?;
    let base: Uri = url.parse().map_err(|_| wrong("to what is not a URL"))?;
    let (scheme, host) = match (base.scheme_str(), base.authority()) {
        (Some(scheme), Some(host)) => (scheme, host.as_str()),
        _ => return Err(wrong("to what is not a URL")),
    };
    let target = if location.contains("://") {
        location
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{host}{location}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{host}{folder}/{location}")
    };
    origin(&target).map_err(|why| wrong(&format!("to {why}")))?;
    Ok(Some(target))
}

fn origin(url: &str) -> Result<Origin, String> {
    let wrong = || format!("`{}`, which is not an address of the web", shown(url));
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let scheme = uri.scheme_str().unwrap_or_default().to_owned();
    let usual = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong()),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    Ok((scheme, host.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
}

/// A URL as messages show it: behind a question mark may be a signature.
fn shown(url: &str) -> &str {
    head(url.split('?').next().unwrap_or(url), SHOWN)
}

fn endless(url: &str) -> String {
    format!("`{}`: more than {REDIRECTS} redirects", shown(url))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let own = origin("https://Hub.example/sub").unwrap();
        for same in ["https://hub.example:443/x", "https://user:word@hub.example/x?y=http://a"] {
            assert_eq!(origin(same).unwrap(), own, "{same}");
        }
        for other in [
            "http://hub.example/",
            "https://hub.example:444/",
            "https://hub.example.evil/",
            "https://hub.example@evil.example/",
            "https://evil.example/hub.example",
        ] {
            assert_ne!(origin(other).unwrap(), own, "{other}");
        }
        for bad in ["", "hub", "ftp://hub/", "https://", "/x", "https://[::", "https://a b/"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
