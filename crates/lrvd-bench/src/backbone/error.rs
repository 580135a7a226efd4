//! What can go wrong with a pretrained model.

use crate::data::WordingError;
use crate::io::IoError;
use crate::reasoning::ReasoningError;

/// A pretrained model cannot be found, read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackboneError {
    /// The model is neither a folder nor a reachable repository, or not of the kind that is wanted.
    #[error("model `{model}`: {reason}")]
    Model {
        /// As given.
        model: String,
        /// What was looked for and what to do.
        reason: String,
    },
    /// Texts longer than the model has positions for.
    #[error(
        "`max_length` is {found}, but the model has positions for {most} tokens: set `--max-length {most}` or less"
    )]
    Length {
        /// The setting.
        found: usize,
        /// Positions.
        most: usize,
    },
    /// Files.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Weight files.
    #[error(transparent)]
    File(#[from] lrvd_burn::Error),
    /// Weights, configuration, tokenizer, answer tokens.
    #[error(transparent)]
    Models(#[from] lrvd_models::Error),
    /// The question in words to a language model.
    #[error(transparent)]
    Wording(#[from] WordingError),
    /// The question with choices.
    #[error(transparent)]
    Question(Box<ReasoningError>),
}

impl From<ReasoningError> for BackboneError {
    fn from(error: ReasoningError) -> Self {
        Self::Question(Box::new(error))
    }
}
