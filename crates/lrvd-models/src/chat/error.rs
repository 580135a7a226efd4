//! Why a conversation has no text.

use std::path::PathBuf;

/// A template cannot be read, or a conversation cannot be rendered by it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file holds no JSON.
    #[error("`{}` is no JSON: {source}", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The entry is neither a template nor a list of named ones.
    #[error(
        "`{}`: `chat_template` is neither a text nor a list with one that is named `default`",
        file.display()
    )]
    Entry {
        /// The file.
        file: PathBuf,
    },
    /// The template is not valid.
    #[error("the chat template in `{}` cannot be used: {reason}", file.display())]
    Syntax {
        /// Where it comes from.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The template refused a conversation, or asked for what is not there.
    #[error("the chat template refuses the conversation: {reason}")]
    Refused {
        /// The template's own words, or what it failed at.
        reason: String,
    },
    /// A role that no conversation here has.
    #[error("unknown role `{found}`, wanted `system`, `user` or `assistant`")]
    Role {
        /// The role.
        found: String,
    },
    /// A conversation without a message.
    #[error("the conversation has no message")]
    Empty,
    /// A conversation without an answer to learn from.
    #[error("the conversation has no message of the role `assistant`")]
    NoAnswer,
    /// The rendering of a conversation does not begin with that of its beginning.
    #[error(
        "the chat template's output for the start of a conversation changes when the conversation continues: the text up to \
         message {message} is not a prefix of the whole, so the assistant's message cannot be located"
    )]
    Prefix {
        /// The message, counted from 1.
        message: usize,
    },
}
