//! HTTP: one call, its status, its answer.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::Agent;

use super::error::PushError;
use crate::io::IoError;
use crate::text::head;

/// Characters of an answer that a message shows.
const SHOWN: usize = 300;
/// Longest wait for a connection and for an answer once everything is sent.
const PATIENCE: Duration = Duration::from_mins(1);
/// Kind of body.
pub(super) const JSON: &str = "application/json";

/// Calls with a token.
pub(super) struct Client {
    agent: Agent,
    root: String,
    token: String,
}

/// One answer.
pub(super) struct Answer {
    action: &'static str,
    url: String,
    pub(super) status: u16,
    text: String,
}

impl Client {
    /// Calls to the hub at `root`; nobody else is shown the token.
    pub(super) fn new(root: &str, token: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE));
        Self { agent: config.build().into(), root: format!("{root}/"), token: token.to_owned() }
    }

    /// Posts a body of kind `kind`.
    pub(super) fn post(
        &self,
        action: &'static str,
        url: &str,
        kind: &str,
        body: &[u8],
    ) -> Result<Answer, PushError> {
        let mut request = self.agent.post(url).header("Accept", kind).header("Content-Type", kind);
        if url.starts_with(&self.root) {
            request = request.header("Authorization", format!("Bearer {}", self.token));
        }
        answer(action, url, request.send(body))
    }

    /// Puts a file where the hub's answer says, with the headers that it says and without the token.
    pub(super) fn put(
        &self,
        action: &'static str,
        url: &str,
        headers: &[(String, String)],
        file: &Path,
        size: u64,
    ) -> Result<Answer, PushError> {
        let body = File::open(file).map_err(IoError::at("open", file))?;
        let mut request = self.agent.put(url).header("Content-Length", size.to_string());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        answer(action, url, request.send(ureq::SendBody::from_owned_reader(body)))
    }
}

fn answer(
    action: &'static str,
    url: &str,
    found: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Answer, PushError> {
    // What is behind a question mark may be a signature.
    let url = url.split('?').next().unwrap_or(url).to_owned();
    let broken = |error: ureq::Error| PushError::Unreachable {
        action,
        url: url.clone(),
        reason: error.to_string(),
    };
    let response = found.map_err(broken)?;
    let status = response.status().as_u16();
    let text = response.into_body().read_to_string().map_err(broken)?;
    Ok(Answer { action, url, status, text })
}

impl Answer {
    /// The answer of a call that went well.
    pub(super) fn done(self) -> Result<Self, PushError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let Self { action, url, status, text } = self;
        let answer = head(text.trim(), SHOWN).to_owned();
        Err(PushError::Refused { action, url, status, answer })
    }

    /// Its JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, PushError> {
        serde_json::from_str(&self.text)
            .map_err(|error| PushError::Answer { action: self.action, reason: error.to_string() })
    }
}
