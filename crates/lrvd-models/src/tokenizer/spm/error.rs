//! Why a SentencePiece model file cannot be read.

use prost::DecodeError;

/// The file is not a SentencePiece model, or one that contradicts itself.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpmError {
    /// The bytes are not a protocol-buffer message.
    #[error("malformed message")]
    Wire(#[from] DecodeError),
    /// An enumeration has a value that the schema does not know.
    #[error("field `{field}` is {found}, which is not one of {wanted}")]
    Enumeration {
        /// Message and field.
        field: &'static str,
        /// The value.
        found: i32,
        /// The schema's values.
        wanted: &'static str,
    },
    /// The model has no pieces.
    #[error("the model has no pieces")]
    NoPieces,
    /// A piece has no text.
    #[error("piece {index} is empty")]
    EmptyPiece {
        /// Its id.
        index: usize,
    },
    /// Two pieces have the same text.
    #[error("pieces {first} and {second} are both `{piece}`")]
    DuplicatePiece {
        /// The text.
        piece: String,
        /// Id of the first.
        first: usize,
        /// Id of the second.
        second: usize,
    },
    /// A score is infinite or not a number.
    #[error("piece {index} (`{piece}`) has the score {found}, wanted a finite number")]
    Score {
        /// Its id.
        index: usize,
        /// Its text.
        piece: String,
        /// Its score.
        found: f32,
    },
    /// There must be one piece for unknown text.
    #[error("the model has {found} pieces of kind `UNKNOWN`, wanted exactly 1")]
    UnknownPieces {
        /// How many there are.
        found: usize,
    },
}
