//! The contents of a SentencePiece model file.
//!
//! A typed view of the parts of `ModelProto` that decide how text is cut: the pieces with score and kind, the model
//! type and unknown id of the trainer's settings, and the normaliser. Field numbers are those of SentencePiece's
//! `sentencepiece_model.proto`, which `prost` decodes; fields that only steer training are skipped. The view is the
//! same for every model type; `unigram` and `bpe` convert it.

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message as _;

use crate::error::{Error, Result};

/// What a piece is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceKind {
    /// Text.
    Normal,
    /// Stands for whatever is not in the vocabulary.
    Unknown,
    /// A control symbol such as `[CLS]`.
    Control,
    /// A symbol that is never split.
    UserDefined,
    /// Kept in the file, never produced.
    Unused,
    /// One byte, `<0x41>`.
    Byte,
}

/// The algorithm that a model was trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelType {
    /// Most probable segmentation under a unigram language model.
    Unigram,
    /// Byte-pair encoding.
    Bpe,
    /// Words.
    Word,
    /// Characters.
    Char,
}

impl ModelType {
    /// The schema's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unigram => "UNIGRAM",
            Self::Bpe => "BPE",
            Self::Word => "WORD",
            Self::Char => "CHAR",
        }
    }
}

/// One entry of the vocabulary; its id is its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The text, with U+2581 for a space.
    pub text: String,
    /// Log probability (unigram) or merge priority (BPE); finite.
    pub score: f32,
    /// What it is for.
    pub kind: PieceKind,
}

/// The trainer's settings that matter for encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainerSpec {
    /// The algorithm.
    pub model_type: ModelType,
    /// Unknown characters are written as byte pieces.
    pub byte_fallback: bool,
    /// The space mark ends a word instead of starting it.
    pub treat_whitespace_as_suffix: bool,
}

/// How text is prepared before it is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalizerSpec {
    /// Replacement table; empty for none.
    pub precompiled_charsmap: Vec<u8>,
    /// A space is put before the text.
    pub add_dummy_prefix: bool,
    /// Leading, trailing and repeated spaces go.
    pub remove_extra_whitespaces: bool,
    /// Spaces become U+2581.
    pub escape_whitespaces: bool,
}

/// A SentencePiece model.
#[derive(Debug, Clone, PartialEq)]
pub struct SpmModel {
    /// The vocabulary, by id; not empty, no text twice, exactly one of kind `Unknown`.
    pub pieces: Vec<Piece>,
    /// The trainer's settings.
    pub trainer: TrainerSpec,
    /// The normaliser's settings.
    pub normalizer: NormalizerSpec,
}

impl SpmModel {
    /// Reads a model from the bytes of its file; `file` is only named in errors.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Self> {
        let message = proto::ModelProto::decode(bytes)
            .map_err(|error| Error::format(file, "ModelProto", "a SentencePiece model", error))?;
        let (trainer, normalizer) =
            (message.trainer_spec.unwrap_or_default(), message.normalizer_spec.unwrap_or_default());
        let model = Self {
            pieces: message
                .pieces
                .into_iter()
                .map(|piece| Piece::read(piece, file))
                .collect::<Result<_>>()?,
            trainer: TrainerSpec {
                model_type: enumeration(
                    file,
                    "TrainerSpec.model_type",
                    trainer.model_type(),
                    &[ModelType::Unigram, ModelType::Bpe, ModelType::Word, ModelType::Char],
                    "1 (UNIGRAM), 2 (BPE), 3 (WORD), 4 (CHAR)",
                )?,
                byte_fallback: trainer.byte_fallback(),
                treat_whitespace_as_suffix: trainer.treat_whitespace_as_suffix(),
            },
            normalizer: NormalizerSpec {
                add_dummy_prefix: normalizer.add_dummy_prefix(),
                remove_extra_whitespaces: normalizer.remove_extra_whitespaces(),
                escape_whitespaces: normalizer.escape_whitespaces(),
                precompiled_charsmap: normalizer.precompiled_charsmap.unwrap_or_default(),
            },
        };
        model.check(file)?;
        Ok(model)
    }

    /// A byte-pair model with byte fallback and the settings of Llama's, for vocabularies that come in another format.
    pub fn byte_pairs(pieces: Vec<Piece>, file: &Path) -> Result<Self> {
        let trainer = TrainerSpec {
            model_type: ModelType::Bpe,
            byte_fallback: true,
            treat_whitespace_as_suffix: false,
        };
        let normalizer = NormalizerSpec {
            precompiled_charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: false,
            escape_whitespaces: true,
        };
        let model = Self { pieces, trainer, normalizer };
        model.check(file)?;
        Ok(model)
    }

    /// Id of the piece for unknown text.
    pub(super) fn unknown_id(&self) -> usize {
        self.pieces
            .iter()
            .position(|piece| piece.kind == PieceKind::Unknown)
            .expect("`check` found exactly one piece of this kind")
    }

    fn check(&self, file: &Path) -> Result<()> {
        let wrong = |key: String, expected: String, found: String| {
            Err(Error::format(file, key, expected, found))
        };
        let mut seen = BTreeMap::new();
        for (index, Piece { text, score, .. }) in self.pieces.iter().enumerate() {
            let key = format!("piece {index}");
            if text.is_empty() {
                return wrong(key, "a text".to_owned(), "an empty one".to_owned());
            }
            if !score.is_finite() {
                return wrong(key, "a piece of a finite score".to_owned(), format!("{score}"));
            }
            if let Some(first) = seen.insert(text.as_str(), index) {
                let expected = "a text of no other piece".to_owned();
                return wrong(key, expected, format!("`{text}`, the text of piece {first}"));
            }
        }
        let found = self.pieces.iter().filter(|piece| piece.kind == PieceKind::Unknown).count();
        if found == 1 {
            return Ok(());
        }
        let expected = "a list with exactly 1 piece of type UNKNOWN".to_owned();
        wrong("ModelProto.pieces".to_owned(), expected, format!("{found} of {}", self.pieces.len()))
    }
}

impl Piece {
    fn read(message: proto::SentencePiece, file: &Path) -> Result<Self> {
        use PieceKind::{Byte, Control, Normal, Unknown, Unused, UserDefined};
        let kinds = [Normal, Unknown, Control, UserDefined, Unused, Byte];
        Ok(Self {
            kind: enumeration(file, "SentencePiece.type", message.kind(), &kinds, "1 to 6")?,
            score: message.score(),
            text: message.piece.unwrap_or_default(),
        })
    }
}

/// The value with a number, counted from 1.
fn enumeration<T: Copy>(
    file: &Path,
    field: &str,
    found: i32,
    values: &[T],
    expected: &str,
) -> Result<T> {
    let index = usize::try_from(found).ok().and_then(|number| number.checked_sub(1));
    let value = index.and_then(|index| values.get(index));
    value.copied().ok_or_else(|| Error::format(file, field, expected, found))
}

/// Checks settings of which a conversion supports one value: the key, the value and the supported value.
pub(super) fn require<const N: usize>(file: &Path, flags: [(&str, bool, bool); N]) -> Result<()> {
    match flags.into_iter().find(|(_, found, supported)| found != supported) {
        None => Ok(()),
        Some((key, found, supported)) => {
            Err(Error::unsupported(file, key, found, supported.to_string()))
        }
    }
}

/// The parts of the schema that are read, with its defaults.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ModelProto {
        #[prost(message, repeated, tag = "1")]
        pub(super) pieces: Vec<SentencePiece>,
        #[prost(message, optional, tag = "2")]
        pub(super) trainer_spec: Option<TrainerSpec>,
        #[prost(message, optional, tag = "3")]
        pub(super) normalizer_spec: Option<NormalizerSpec>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct SentencePiece {
        #[prost(string, optional, tag = "1")]
        pub(super) piece: Option<String>,
        #[prost(float, optional, tag = "2")]
        pub(super) score: Option<f32>,
        #[prost(int32, optional, tag = "3", default = "1")]
        pub(super) kind: Option<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct TrainerSpec {
        #[prost(int32, optional, tag = "3", default = "1")]
        pub(super) model_type: Option<i32>,
        #[prost(bool, optional, tag = "24")]
        pub(super) treat_whitespace_as_suffix: Option<bool>,
        #[prost(bool, optional, tag = "35")]
        pub(super) byte_fallback: Option<bool>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct NormalizerSpec {
        #[prost(bytes = "vec", optional, tag = "2")]
        pub(super) precompiled_charsmap: Option<Vec<u8>>,
        #[prost(bool, optional, tag = "3", default = "true")]
        pub(super) add_dummy_prefix: Option<bool>,
        #[prost(bool, optional, tag = "4", default = "true")]
        pub(super) remove_extra_whitespaces: Option<bool>,
        #[prost(bool, optional, tag = "5", default = "true")]
        pub(super) escape_whitespaces: Option<bool>,
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A field of wire type 2.
    pub(in super::super) fn bytes_field(number: u8, content: &[u8]) -> Vec<u8> {
        assert!(number < 16 && content.len() < 128);
        let mut field = vec![number << 3 | 2, content.len() as u8];
        field.extend_from_slice(content);
        field
    }

    /// A `SentencePiece` as a field of `ModelProto`.
    pub(in super::super) fn piece_field(text: &str, score: f32, kind: u8) -> Vec<u8> {
        let mut content = bytes_field(1, text.as_bytes());
        content.push(0x15);
        content.extend(score.to_le_bytes());
        content.extend([0x18, kind]);
        bytes_field(1, &content)
    }

    fn parse(bytes: &[u8]) -> Result<SpmModel> {
        SpmModel::parse(bytes, "spm.model".as_ref())
    }

    fn small() -> Vec<u8> {
        [piece_field("<unk>", 0.0, 2), piece_field("\u{2581}a", -1.5, 1)].concat()
    }

    #[test]
    fn pieces_and_settings_are_read() {
        let mut bytes = small();
        bytes.extend(piece_field("[CLS]", 0.0, 3));
        bytes.extend(bytes_field(2, &[0x18, 2, 0x98, 0x02, 1])); // model_type 2, byte_fallback
        bytes.extend(bytes_field(3, &[0x12, 2, 7, 8, 0x18, 0, 0x20, 0]));
        let model = parse(&bytes).unwrap();
        let kinds: Vec<_> = model.pieces.iter().map(|piece| piece.kind).collect();
        assert_eq!(kinds, [PieceKind::Unknown, PieceKind::Normal, PieceKind::Control]);
        assert_eq!((model.pieces[1].text.as_str(), model.pieces[1].score), ("\u{2581}a", -1.5));
        assert_eq!(model.trainer.model_type, ModelType::Bpe);
        assert!(model.trainer.byte_fallback);
        assert_eq!(model.normalizer.precompiled_charsmap, [7, 8]);
        assert!(!model.normalizer.add_dummy_prefix);
        assert!(!model.normalizer.remove_extra_whitespaces);
        assert!(model.normalizer.escape_whitespaces, "the schema's default");
        assert_eq!(model.unknown_id(), 0);
    }

    #[test]
    fn contradictions_are_errors() {
        let piece = piece_field;
        for (bytes, text) in [
            (
                piece("<unk>", 0.0, 1),
                "`piece 2` should be a text of no other piece, found `<unk>`, the text of piece 0",
            ),
            (piece("<x>", 0.0, 2), "exactly 1 piece of type UNKNOWN, found 2 of 3"),
            (piece("", 0.0, 1), "`piece 2` should be a text, found an empty one"),
            (piece("b", f32::NAN, 1), "`piece 2` should be a piece of a finite score, found NaN"),
            (piece("b", 0.0, 7), "`SentencePiece.type` should be 1 to 6, found 7"),
            (vec![0x08, 1], "ModelProto.pieces"),
            (bytes_field(1, &bytes_field(1, &[0xff])), "SentencePiece.piece"),
            (vec![0x0a, 100], "ModelProto.pieces"),
        ] {
            let error = parse(&[small(), bytes].concat()).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let error = parse(&[]).unwrap_err().to_string();
        assert!(error.contains("found 0 of 0"), "{error}");
    }

    #[test]
    fn every_prefix_of_a_model_is_an_error_or_a_model() {
        let bytes = [small(), piece_field("b", -2.0, 1)].concat();
        for end in 0..bytes.len() {
            // No assertion on the outcome: a prefix may end between two pieces. It must not panic.
            let _ = parse(&bytes[..end]);
            let mut flipped = bytes.clone();
            flipped[end] ^= 0x81;
            let _ = parse(&flipped);
        }
    }
}
