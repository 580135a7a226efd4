//! What can be wrong with a question in words.

use thiserror::Error;

use crate::data::FrameError;
use crate::text::quoted;

/// Why a task cannot be put to a language model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WordingError {
    /// The tokenizer refused.
    #[error(transparent)]
    Tokenizer(#[from] lrvd_models::Error),
    /// What the tokenizer puts around every text is not known.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// An encoder is given a wording.
    #[error(
        "`{key}` words the prompt of a language model, and the model is an encoder with a head"
    )]
    Encoder {
        /// The setting.
        key: &'static str,
    },
    /// A question with choices is given a wording.
    #[error(
        "`{key}` is the prompt of a question for a class; a question with choices has another prompt and is answered by a \
         letter"
    )]
    Choices {
        /// The setting.
        key: &'static str,
    },
    /// An adapter for a language model does not say how it is asked.
    #[error("classifier `{task}` does not say in which words a language model is asked")]
    Unworded {
        /// Name of the task.
        task: String,
    },
    /// A template does not make a prompt.
    #[error("task `{task}`: `wording.template` is `{}`: {reason}", .template.escape_debug())]
    Template {
        /// Name of the task.
        task: String,
        /// As given.
        template: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There are more or fewer words than classes.
    #[error(
        "task `{task}`: {found} words in `wording.answers`, wanted {}: one each for {}",
        .classes.len(), quoted(.classes)
    )]
    AnswerCount {
        /// Name of the task.
        task: String,
        /// Number of words.
        found: usize,
        /// The classes.
        classes: Vec<String>,
    },
    /// A word is not one token behind the prompt.
    #[error(
        "task `{task}`: the answer `{word}` is {} tokens after the prompt ({}) in tokenizer `{tokenizer}`, \
         wanted one; choose other words with `wording.answers`",
        .pieces.len(), quoted(.pieces)
    )]
    AnswerTokens {
        /// Name of the task.
        task: String,
        /// The word.
        word: String,
        /// Its tokens as the vocabulary writes them.
        pieces: Vec<String>,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// The token of a word is the unknown one or another special one.
    #[error(
        "task `{task}`: the answer `{word}` becomes the special token `{piece}` (id {id}) of tokenizer \
         `{tokenizer}`; choose other words with `wording.answers`"
    )]
    AnswerSpecial {
        /// Name of the task.
        task: String,
        /// The word.
        word: String,
        /// The token as the vocabulary writes it.
        piece: String,
        /// Its id.
        id: u32,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// Two words are one token.
    #[error(
        "task `{task}`: the answers `{first}` and `{second}` are both the token `{piece}` (id {id}); choose other \
         words with `wording.answers`"
    )]
    AnswerTwice {
        /// Name of the task.
        task: String,
        /// A word.
        first: String,
        /// The other word.
        second: String,
        /// The token as the vocabulary writes it.
        piece: String,
        /// Its id.
        id: u32,
    },
    /// A prompt does not fit even without its texts.
    #[error(
        "task `{task}`: the prompt takes {found} tokens without its texts, but `max_length` is {max_length}"
    )]
    PromptLength {
        /// Name of the task.
        task: String,
        /// Fewest tokens.
        found: usize,
        /// The limit.
        max_length: usize,
    },
}
