//! Why a tokenizer could not be loaded or used.

use std::path::{Path, PathBuf};

use super::charsmap::CharsMapError;
use super::spm::SpmError;

/// A tokenizer's files cannot be used, or a text cannot be encoded as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The folder holds no vocabulary.
    #[error("folder `{folder}` has no tokenizer: wanted one of {wanted:?}")]
    NoTokenizer {
        /// The folder looked into.
        folder: PathBuf,
        /// File names that would do.
        wanted: &'static [&'static str],
    },
    /// A file could not be read.
    #[error("cannot read `{file}`")]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is not JSON of the expected form.
    #[error("`{file}` is not the JSON that was expected")]
    Json {
        /// The file.
        file: PathBuf,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// A key of a JSON file has a value of the wrong kind.
    #[error("`{file}`: `{key}` should be {wanted}, found `{found}`")]
    Value {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// What may stand there.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// A SentencePiece model file is malformed.
    #[error("`{file}` is not a usable SentencePiece model")]
    Spm {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: SpmError,
    },
    /// A normaliser table is malformed.
    #[error("`{file}`: `precompiled_charsmap` cannot be used")]
    CharsMap {
        /// The file that holds the table.
        file: PathBuf,
        /// What is wrong with it.
        source: CharsMapError,
    },
    /// A file asks for something that this crate does not reproduce.
    #[error("`{file}`: `{key}` is `{found}`, supported: {supported}")]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The setting, in the file's spelling.
        key: String,
        /// Its value.
        found: String,
        /// Values that are supported.
        supported: &'static str,
    },
    /// A special token is named but not in the vocabulary.
    #[error("`{file}` names `{token}` as `{role}`, which is not in the vocabulary")]
    MissingToken {
        /// The file that names it, or the vocabulary that should hold it.
        file: PathBuf,
        /// Its text.
        token: String,
        /// What it is for, as `tokenizer_config.json` spells it.
        role: &'static str,
    },
    /// A special token is asked for and not named.
    #[error("`{file}`: the settings put a `{role}` around every text, but name none")]
    NoToken {
        /// The tokenizer's file.
        file: PathBuf,
        /// What is asked for, as `tokenizer_config.json` spells it.
        role: &'static str,
    },
    /// An added token cannot have the id that its file gives it.
    #[error(
        "`{file}` gives token `{token}` the id {wanted}, but its place in the vocabulary is {found}"
    )]
    AddedTokenId {
        /// The file.
        file: PathBuf,
        /// The token's text.
        token: String,
        /// Id in the file.
        wanted: u32,
        /// Id that follows from the vocabulary.
        found: u32,
    },
    /// The tokenizer can produce ids for which the model has no embedding.
    #[error(
        "tokenizer `{file}` has ids up to {largest_id}, but the model embeds only {vocab_size} ids"
    )]
    Vocabulary {
        /// The tokenizer's file.
        file: PathBuf,
        /// Largest id of the tokenizer.
        largest_id: u32,
        /// Rows of the model's word embedding.
        vocab_size: usize,
    },
    /// `max_length` leaves no room even for the special tokens.
    #[error("`max_length` is {max_length}, but the special tokens alone take {special}")]
    MaxLength {
        /// The limit asked for.
        max_length: usize,
        /// Tokens that the template adds.
        special: usize,
    },
    /// Only one text may be cut and it is too short (or absent).
    #[error("truncation `{strategy}` must remove {remove} tokens from a text that has {available}")]
    TooShort {
        /// The strategy.
        strategy: &'static str,
        /// Tokens to remove.
        remove: usize,
        /// Tokens in the text that may be cut, 0 if there is no such text.
        available: usize,
    },
    /// A text is so long that the tokenizer's replacements may fill the memory.
    #[error("a text has {bytes} bytes, tokenizer `{file}` reads at most {most}")]
    TextLength {
        /// The tokenizer's file.
        file: PathBuf,
        /// Bytes of the text.
        bytes: usize,
        /// Bytes that it reads.
        most: usize,
    },
    /// Padding was asked for but no padding token is known.
    #[error("tokenizer `{file}` has no padding token: name one as `pad_token`, or set its id")]
    NoPadToken {
        /// The tokenizer's file.
        file: PathBuf,
    },
    /// An id stands for no token.
    #[error("id {id} is not in the vocabulary of `{file}` (largest id {largest_id})")]
    UnknownId {
        /// The tokenizer's file.
        file: PathBuf,
        /// The id.
        id: u32,
        /// Largest id of the tokenizer.
        largest_id: u32,
    },
    /// The `tokenizers` library refused.
    #[error("the `tokenizers` library cannot {action} with `{file}`")]
    Library {
        /// What was tried.
        action: &'static str,
        /// The tokenizer's file.
        file: PathBuf,
        /// The library's own words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl TokenizerError {
    /// What the library says of an `action` on a file.
    pub(super) fn library(
        action: &'static str,
        file: &Path,
    ) -> impl Fn(tokenizers::Error) -> Self + Copy {
        move |source| Self::Library { action, file: file.into(), source }
    }
}
