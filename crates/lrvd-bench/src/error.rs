//! Errors are chains of messages. A [`Kind`] marks what a caller answers in its own way.

use std::fmt;

pub use anyhow::Error;
use lrvd_models::Error as ModelsError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Burn<T> = Result<T, lrvd_burn::Error>;

/// What an exit code, an HTTP status or a caller's next step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A data directory has no files of a task.
    NotFound,
    /// A merged model's logits are not those of base and adapter.
    Differs,
    /// A stop request ended training, prediction or generation.
    Stopped,
    /// An adapter was trained on another base model, or on one that was held in another way.
    OtherBase,
    /// The model cannot read an input.
    Input,
    /// The model has no chat template, and an input is a conversation.
    NoTemplate,
}

/// An error with a kind. Message and causes are the error's.
#[derive(Debug)]
struct KindError {
    kind: Kind,
    error: Error,
}

impl fmt::Display for KindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for KindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl Kind {
    pub(crate) fn mark(self, error: impl Into<Error>) -> Error {
        Error::new(KindError { kind: self, error: error.into() })
    }
}

/// The kind of the error or of its nearest cause that has one.
pub fn kind_of(error: &Error) -> Option<Kind> {
    let marked = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<KindError>().map(|marked| marked.kind)
    };
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(lrvd_burn::Error::Stopped) => Some(Kind::Stopped),
        _ => marked(cause),
    })
}

/// Why the model cannot read an input, in words that name no place of this machine; `None` if the input did not cause the error.
pub fn unreadable(error: &Error) -> Option<String> {
    match (error.downcast_ref(), kind_of(error)) {
        (Some(ModelsError::Text(text)), _) => Some(text.clone()),
        // Not the tokenizer's file.
        (Some(ModelsError::Tokenizer { .. } | ModelsError::Argument { .. }), _) => {
            Some("the tokenizer cannot encode it".to_owned())
        }
        (_, Some(Kind::Input)) => Some(error.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_kind_is_found_below_context() {
        let marked = || Kind::Input.mark(anyhow!("cause").context("message"));
        assert_eq!(kind_of(&anyhow!("message")), None);
        assert_eq!(format!("{:#}", marked()), "message: cause");
        for error in [marked(), marked().context("outer")] {
            assert_eq!(kind_of(&error), Some(Kind::Input), "{error:#}");
        }
        let stopped = Error::from(lrvd_burn::Error::Stopped);
        assert_eq!(kind_of(&stopped), Some(Kind::Stopped));
    }
}
