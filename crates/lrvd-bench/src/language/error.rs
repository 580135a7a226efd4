//! Errors between a user's texts and a language model.

use crate::backbone::BackboneError;
use crate::data::{FrameError, Place, TableError};
use crate::eval::EvalError;
use crate::io::IoError;
use crate::method::MethodError;
use crate::run::RunError;
use crate::saved::SavedError;
use crate::settings::SettingError;

/// A language model cannot be trained, saved, loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LanguageError {
    /// Training.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The loop, and answers.
    #[error(transparent)]
    Train(#[from] lrvd_burn::Error),
    /// The method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// The base model.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The adapter's folder.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// Evaluation.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// Settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The core got an argument that it is not defined on.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// Files of ours.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A data file.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Tokenizer, chat template, continuation.
    #[error(transparent)]
    Models(#[from] lrvd_models::Error),
    /// Special tokens that cannot be told from a text's own.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A conversation in a file.
    #[error("{place}: {source}")]
    Chat {
        /// File and line or row.
        place: Place,
        /// What is wrong with it.
        source: Box<lrvd_models::Error>,
    },
    /// A conversation for a model that has no form for one.
    #[error(
        "model `{model}` states no chat template (`chat_template.jinja`, `chat_template` in `tokenizer_config.json`, or \
         `tokenizer.chat_template` in a GGUF file), so a conversation has no text: give prompts and completions, or use a \
         folder with the template of the original model"
    )]
    NoTemplate {
        /// The model.
        model: String,
    },
    /// Nothing is left to learn.
    #[error(
        "{split}: within {max_length} tokens none of its {rows} rows has a token of a completion left; raise \
         `--max-length`"
    )]
    NoTokens {
        /// `train` or `validation`.
        split: &'static str,
        /// Its rows.
        rows: usize,
        /// Longest input.
        max_length: usize,
    },
    /// A prompt leaves no room for an answer.
    #[error(
        "prompt {number} has {found} tokens, and the model was trained on texts of up to {most}"
    )]
    Long {
        /// Prompt, from 1.
        number: usize,
        /// Its tokens.
        found: usize,
        /// The model's own limit.
        most: usize,
    },
    /// Two options exclude or demand each other.
    #[error("{0}")]
    Options(&'static str),
}
