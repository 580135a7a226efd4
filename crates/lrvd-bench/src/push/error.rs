//! Why an export cannot be put onto the hub.

use std::path::PathBuf;

use crate::io::IoError;

/// An export cannot be put onto the hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The folder is no export.
    #[error(
        "`{dir}` is no export: wanted `adapter_config.json`, `config.json` with weights, or a `.gguf` file, as \
         `lrvd export` writes them"
    )]
    NoExport {
        /// The folder.
        dir: PathBuf,
    },
    /// The repository is not named as hubs do.
    #[error("`{repo}` is no repository: wanted `owner/name` of letters, digits, `-`, `_` and `.`")]
    Repo {
        /// As given.
        repo: String,
    },
    /// A file is larger than the hub takes in one piece.
    #[error("`{file}` has {size} bytes, and the hub takes at most {most} in one piece")]
    TooLarge {
        /// The file.
        file: String,
        /// Its bytes.
        size: u64,
        /// The limit.
        most: u64,
    },
    /// The hub cannot be reached, or the connection broke.
    #[error("cannot {action} at `{url}`: {reason}")]
    Unreachable {
        /// What was tried.
        action: &'static str,
        /// Where, without anything secret.
        url: String,
        /// What the client says.
        reason: String,
    },
    /// The hub says no.
    #[error("the hub would not {action}: status {status} from `{url}`{}", said(.answer))]
    Refused {
        /// What was tried.
        action: &'static str,
        /// Where, without anything secret.
        url: String,
        /// HTTP status.
        status: u16,
        /// The beginning of its answer.
        answer: String,
    },
    /// The hub's answer is not what its protocol says.
    #[error("the hub's answer to `{action}` cannot be used: {reason}")]
    Answer {
        /// What was tried.
        action: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] IoError),
}

fn said(answer: &str) -> String {
    if answer.is_empty() { String::new() } else { format!(": {answer}") }
}
