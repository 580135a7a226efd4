//! Text to token ids, exactly as the published tokenizers make them.
//!
//! [`TextTokenizer`] reads a model folder: `tokenizer.json` where there is one, else SentencePiece's `spm.model` (the
//! published DeBERTa-v3 checkpoints hold nothing else) or `tokenizer.model` (Llama's). All end in the same engine, the
//! `tokenizers` crate; this module reads the files, returns an error for what it cannot reproduce, and keeps truncation
//! and padding per call.

mod added;
mod bpe;
mod charsmap;
mod growth;
mod json;
mod sentencepiece;
mod settings;
mod spm;
mod template;
mod text;
mod unigram;

pub use bpe::tokenizer_json;
pub(crate) use bpe::tokenizer_json_of_pieces;
pub use settings::SpecialTokens;
pub use spm::{ModelType, NormalizerSpec, Piece, PieceKind, SpmModel, TrainerSpec};
pub(crate) use template::template_json;
pub use text::{EncodeOptions, Encoding, TextTokenizer};
pub use tokenizers::{PaddingDirection, PaddingStrategy, TruncationDirection, TruncationStrategy};
