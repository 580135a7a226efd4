//! Requests to the hub.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body};

use super::environment::{first_set, text, token_file, variable};
use crate::error::{Error, Kind, Result};
use crate::text::head;

const ENDPOINT: &str = "https://huggingface.co";
/// Seconds to wait for a connection, an answer or the next bytes, unless `HF_HUB_DOWNLOAD_TIMEOUT` is set.
const TIMEOUT: u64 = 30;
const REDIRECTS: u32 = 5;
const SHOWN: usize = 200;
/// Bytes a second that a download has at least: a file that drips would never end.
pub(super) const SLOWEST: u64 = 16 << 10;

/// An error that a later start may not meet.
pub(super) fn unavailable(what: String) -> Error {
    Kind::Unavailable.mark(anyhow!(what))
}

#[derive(Deserialize)]
pub(super) struct Listing {
    #[serde(rename = "sha")]
    pub(super) commit: String,
    pub(super) siblings: Vec<Remote>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remote {
    pub(super) rfilename: String,
    /// Git's hash of the content, or of the pointer to a large file.
    pub(super) blob_id: String,
    pub(super) size: u64,
    /// Of a file in the store of large files.
    pub(super) lfs: Option<Large>,
}

#[derive(Deserialize)]
pub(super) struct Large {
    pub(super) sha256: String,
}

impl Remote {
    /// Names the content.
    pub(super) fn hash(&self) -> &str {
        self.lfs.as_ref().map_or(&self.blob_id, |large| &large.sha256)
    }
}

pub(super) struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    /// Deadline for a connection, for an answer, and for the next bytes of a file, which must also come at [`SLOWEST`].
    pub(super) patience: Duration,
}

impl Hub {
    pub(super) fn of_environment() -> Result<Self> {
        let endpoint = variable("HF_ENDPOINT")?.unwrap_or_else(|| ENDPOINT.to_owned());
        let is_address = endpoint.parse().is_ok_and(|uri: Uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
        });
        ensure!(
            is_address,
            "HF_ENDPOINT is `{endpoint}`, expected an address that starts with `https://` or `http://`"
        );
        let token = match first_set(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"], &variable)? {
            Some(token) => Some(token),
            None => token_file(&variable)?.map(|file| text(&file)).transpose()?.flatten(),
        };
        let token = token.map(|token| token.trim().to_owned());
        let seconds = match variable("HF_HUB_DOWNLOAD_TIMEOUT")? {
            None => TIMEOUT,
            Some(text) => text.parse().ok().filter(|&seconds| seconds > 0).ok_or_else(|| {
                anyhow!(
                    "HF_HUB_DOWNLOAD_TIMEOUT is `{text}`, expected a whole number of seconds above 0"
                )
            })?,
        };
        let patience = Duration::from_secs(seconds);
        let each = Some(patience);
        let config = Agent::config_builder()
            .user_agent(concat!("lrvd/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            // The token is for the hub, and not for the store that it redirects to.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_resolve(each)
            .timeout_connect(each)
            .timeout_send_request(each)
            .timeout_recv_response(each)
            .timeout_per_read(each);
        Ok(Self {
            agent: config.build().into(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
            patience,
        })
    }

    /// The bytes at `path` from byte `start` on, or all (status 200) where the server sends no part, within `time`.
    pub(super) fn get(&self, path: &str, start: u64, time: Duration) -> Result<Response<Body>> {
        let url = format!("{}/{path}", self.endpoint);
        let shown = head(url.split('?').next().unwrap_or(&url), SHOWN);
        let request = self.agent.get(&url).config().timeout_recv_body(Some(time)).build();
        let mut request = request.header("Accept-Encoding", "identity");
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answer = request
            .call()
            .map_err(|error| unavailable(format!("`{shown}` did not answer: {error}")))?;
        let status = answer.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(answer);
        }
        let words = answer.headers().get("x-error-message").and_then(|words| words.to_str().ok());
        let words = words.map_or_else(String::new, |words| format!(": {}", head(words, SHOWN)));
        let token = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "; a private or gated repository needs a token with access to it (`HF_TOKEN`, or `hf auth login`)"
            }
            _ => "",
        };
        let what = format!("`{shown}` answered {status}{words}{token}");
        let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        let is_busy = status.is_server_error() || passes.contains(&status);
        Err(if is_busy { unavailable(what) } else { anyhow!(what) })
    }
}
