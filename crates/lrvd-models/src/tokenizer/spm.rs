//! Contents of a SentencePiece model file.
//!
//! The parts of `ModelProto` that decide how text is cut: the pieces with score and kind, the model type of the
//! trainer's settings, and the normaliser. Field numbers are those of SentencePiece's `sentencepiece_model.proto`, which
//! `prost` decodes; fields that only steer training are skipped. `convert` makes a tokenizer of them.

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message as _;

use crate::error::{Error, Result};

/// Kind of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum PieceKind {
    /// Text.
    Normal = 1,
    /// Text that is not in the vocabulary.
    Unknown = 2,
    /// A control symbol such as `[CLS]`.
    Control = 3,
    /// A symbol that is never split.
    UserDefined = 4,
    /// Kept in the file, never produced.
    Unused = 5,
    /// One byte, `<0x41>`.
    Byte = 6,
}

/// The algorithm that a model was trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ModelType {
    /// Most probable segmentation under a unigram language model.
    Unigram = 1,
    /// Byte-pair encoding.
    Bpe = 2,
    /// Words.
    Word = 3,
    /// Characters.
    Char = 4,
}

/// One entry of the vocabulary; its id is its position.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Piece {
    /// The text, with U+2581 for a space.
    #[prost(string, required, tag = "1")]
    pub text: String,
    /// Log probability (unigram) or merge priority (BPE); finite.
    #[prost(float, required, tag = "2")]
    pub score: f32,
    /// Kind, a [`PieceKind`].
    #[prost(enumeration = "PieceKind", required, tag = "3", default = "Normal")]
    pub kind: i32,
}

/// The trainer's settings that matter for encoding.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TrainerSpec {
    /// The algorithm, a [`ModelType`].
    #[prost(enumeration = "ModelType", required, tag = "3", default = "Unigram")]
    pub model_type: i32,
    /// The space mark ends a word instead of starting it.
    #[prost(bool, required, tag = "24")]
    pub treat_whitespace_as_suffix: bool,
    /// Unknown characters are written as byte pieces.
    #[prost(bool, required, tag = "35")]
    pub byte_fallback: bool,
}

/// Preparation of a text before it is cut.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NormalizerSpec {
    /// Replacement table; empty for none.
    #[prost(bytes = "vec", required, tag = "2")]
    pub precompiled_charsmap: Vec<u8>,
    /// A space is put before the text.
    #[prost(bool, required, tag = "3", default = "true")]
    pub add_dummy_prefix: bool,
    /// Leading, trailing and repeated spaces go.
    #[prost(bool, required, tag = "4", default = "true")]
    pub remove_extra_whitespaces: bool,
    /// Spaces become U+2581.
    #[prost(bool, required, tag = "5", default = "true")]
    pub escape_whitespaces: bool,
}

/// A SentencePiece model: the fields of `ModelProto` that are read, with the schema's defaults.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpmModel {
    /// The vocabulary, by id; not empty, no text twice, exactly one of kind `Unknown`.
    #[prost(message, repeated, tag = "1")]
    pub pieces: Vec<Piece>,
    /// The trainer's settings.
    #[prost(message, required, tag = "2")]
    pub trainer: TrainerSpec,
    /// The normaliser's settings.
    #[prost(message, required, tag = "3")]
    pub normalizer: NormalizerSpec,
}

impl SpmModel {
    /// Reads a model from the bytes of its file; `file` is only named in errors.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Self> {
        let model = Self::decode(bytes)
            .map_err(|error| Error::format(file, "ModelProto", "a SentencePiece model", error))?;
        model.check(file)?;
        Ok(model)
    }

    /// A byte-pair model with byte fallback and the settings of Llama's, for vocabularies that come in another format.
    pub fn byte_pairs(pieces: Vec<Piece>, file: &Path) -> Result<Self> {
        let trainer = TrainerSpec {
            model_type: ModelType::Bpe.into(),
            byte_fallback: true,
            ..TrainerSpec::default()
        };
        let normalizer =
            NormalizerSpec { remove_extra_whitespaces: false, ..NormalizerSpec::default() };
        let model = Self { pieces, trainer, normalizer };
        model.check(file)?;
        Ok(model)
    }

    /// Id of the piece for unknown text.
    pub(super) fn unknown_id(&self) -> usize {
        self.pieces
            .iter()
            .position(|piece| piece.kind() == PieceKind::Unknown)
            .expect("`check` found exactly one piece of this kind")
    }

    fn check(&self, file: &Path) -> Result<()> {
        let wrong = |key: &str, expected: &str, found: String| {
            Err(Error::format(file, key, expected, found))
        };
        let model_type = self.trainer.model_type;
        if !ModelType::is_valid(model_type) {
            let expected = "1 (UNIGRAM), 2 (BPE), 3 (WORD), 4 (CHAR)";
            return wrong("TrainerSpec.model_type", expected, model_type.to_string());
        }
        let mut seen = BTreeMap::new();
        let mut unknown = 0;
        for (index, Piece { text, score, kind }) in self.pieces.iter().enumerate() {
            let key = format!("piece {index}");
            if text.is_empty() {
                return wrong(&key, "a text", "an empty one".to_owned());
            }
            if !score.is_finite() {
                return wrong(&key, "a piece of a finite score", score.to_string());
            }
            if !PieceKind::is_valid(*kind) {
                return wrong(&key, "a piece of a type from 1 to 6", kind.to_string());
            }
            if let Some(first) = seen.insert(text.as_str(), index) {
                let found = format!("`{text}`, the text of piece {first}");
                return wrong(&key, "a text of no other piece", found);
            }
            unknown += usize::from(*kind == PieceKind::Unknown as i32);
        }
        if unknown == 1 {
            return Ok(());
        }
        let found = format!("{unknown} of {}", self.pieces.len());
        wrong("ModelProto.pieces", "a list with exactly 1 piece of type UNKNOWN", found)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(in super::super) fn piece(text: &str, score: f32, kind: PieceKind) -> Piece {
        Piece { text: text.into(), score, kind: kind.into() }
    }

    #[test]
    fn contradictions_are_errors() {
        use PieceKind::{Normal, Unknown};
        let file = Path::new("spm.model");
        let both = [piece("<unk>", 0.0, Unknown), piece("\u{2581}a", -1.5, Normal)];
        let with = |third: Piece| {
            let pieces = [&both[..], &[third]].concat();
            SpmModel { pieces, ..SpmModel::default() }.encode_to_vec()
        };
        for (bytes, text) in [
            (
                with(piece("<unk>", 0.0, Normal)),
                "`piece 2` should be a text of no other piece, found `<unk>`, the text of piece 0",
            ),
            (with(piece("<x>", 0.0, Unknown)), "exactly 1 piece of type UNKNOWN, found 2 of 3"),
            (with(piece("", 0.0, Normal)), "`piece 2` should be a text, found an empty one"),
            (with(piece("b", f32::NAN, Normal)), "should be a piece of a finite score, found NaN"),
            (with(Piece { kind: 7, text: "b".into(), score: 0.0 }), "a type from 1 to 6, found 7"),
            (vec![0x0a, 100], "SpmModel.pieces"),
            (vec![0x0a, 3, 0x0a, 1, 0xff], "Piece.text"),
        ] {
            let error = SpmModel::parse(&bytes, file).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
