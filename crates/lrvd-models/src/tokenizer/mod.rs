//! Text to token ids, exactly as the published tokenizers make them.
//!
//! [`TextTokenizer`] reads a model folder: `tokenizer.json` where there is one, else SentencePiece's `spm.model` (the
//! published DeBERTa-v3 checkpoints hold nothing else) or `tokenizer.model` (Llama's). All end in the same engine, the
//! `tokenizers` crate; this module reads the files, refuses what it cannot reproduce, and keeps truncation and padding
//! per call.
//!
//! | File | What it answers |
//! |---|---|
//! | `text` | the tokenizer itself: encode, batch, decode |
//! | `options` | how to truncate and pad one call, and what comes back |
//! | `settings` | what the small JSON files beside the vocabulary say |
//! | `json` | which `tokenizer.json` can be used as it is |
//! | `spm` | what a SentencePiece model file holds |
//! | `sentencepiece` | which conversion it needs |
//! | `unigram`, `bpe` | how it becomes the engine's unigram or byte-pair model |
//! | `added` | how special tokens get into the engine with their ids |
//! | `template` | which tokens stand before and behind every text |
//! | `charsmap` | whether a normaliser table is safe to look up in |
//! | `growth` | how much longer a text can become |

mod added;
mod bpe;
mod charsmap;
mod error;
mod growth;
mod json;
mod options;
mod sentencepiece;
mod settings;
mod spm;
mod template;
mod text;
mod unigram;

pub use bpe::tokenizer_json;
pub(crate) use bpe::tokenizer_json_of_pieces;
pub use charsmap::CharsMapError;
pub use error::TokenizerError;
pub use options::{
    EncodeOptions, Encoding, PaddingSide, PaddingSpec, Truncation, TruncationSide,
    TruncationStrategy,
};
pub use settings::SpecialTokens;
pub use spm::{ModelType, NormalizerSpec, Piece, PieceKind, SpmError, SpmModel, TrainerSpec};
pub use text::TextTokenizer;
