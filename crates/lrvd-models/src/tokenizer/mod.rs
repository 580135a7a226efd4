//! Text to token ids, exactly as the published tokenizers make them.
//!
//! [`TextTokenizer`] reads a model folder: `tokenizer.json` where there is one, else SentencePiece's `spm.model` (the
//! published DeBERTa-v3 checkpoints hold nothing else) or `tokenizer.model` (Llama's), else `vocab.txt` (BERT's word
//! pieces) or `vocab.json` with `merges.txt` (RoBERTa's byte-level pairs). All end in the same engine, the
//! `tokenizers` crate; this module reads the files, returns an error for what it cannot reproduce, and takes truncation
//! per call.

mod charsmap;
mod convert;
mod settings;
mod spm;
mod stream;
mod text;
mod tokenizer_json;
mod vocab;

pub use convert::tokenizer_json;
pub use settings::SpecialTokens;
pub(crate) use settings::template_json;
pub use spm::{ModelType, NormalizerSpec, Piece, PieceKind, SpmModel, TrainerSpec};
pub use stream::TextStream;
pub use text::TextTokenizer;
pub use tokenizers::Encoding;
