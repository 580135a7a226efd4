//! The contents of a SentencePiece model file.
//!
//! A typed view of the parts of `ModelProto` that decide how text is cut: the pieces with score and kind, the model
//! type and unknown id of the trainer's settings, and the normaliser. Field numbers are those of SentencePiece's
//! `sentencepiece_model.proto`; fields that only steer training are skipped. The view is the same for every model
//! type; `unigram` and `bpe` convert it.

mod error;

use std::collections::BTreeMap;

pub use self::error::SpmError;
use super::protobuf::{Message, Value};

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
    /// Reads a model from the bytes of its file.
    ///
    /// # Errors
    ///
    /// [`SpmError`] if the bytes are no such message, or the vocabulary is empty or contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, SpmError> {
        let mut model = Self {
            pieces: Vec::new(),
            // Defaults of the schema.
            trainer: TrainerSpec {
                model_type: ModelType::Unigram,
                byte_fallback: false,
                treat_whitespace_as_suffix: false,
            },
            normalizer: NormalizerSpec {
                precompiled_charsmap: Vec::new(),
                add_dummy_prefix: true,
                remove_extra_whitespaces: true,
                escape_whitespaces: true,
            },
        };
        let mut message = Message::new(bytes);
        while let Some((number, value)) = message.next_field()? {
            match number {
                1 => model.pieces.push(piece(as_bytes("ModelProto.pieces", value)?)?),
                2 => model.trainer.merge(as_bytes("ModelProto.trainer_spec", value)?)?,
                3 => model.normalizer.merge(as_bytes("ModelProto.normalizer_spec", value)?)?,
                // Self-test samples and the decoder's own normaliser do not touch encoding.
                _ => {}
            }
        }
        model.check()?;
        Ok(model)
    }

    /// A model from its parts, for vocabularies that come in another format.
    ///
    /// # Errors
    ///
    /// [`SpmError`] if the vocabulary is empty or contradicts itself.
    pub fn from_parts(
        pieces: Vec<Piece>,
        trainer: TrainerSpec,
        normalizer: NormalizerSpec,
    ) -> Result<Self, SpmError> {
        let model = Self { pieces, trainer, normalizer };
        model.check()?;
        Ok(model)
    }

    /// Id of the piece for unknown text.
    pub(super) fn unknown_id(&self) -> usize {
        self.pieces
            .iter()
            .position(|piece| piece.kind == PieceKind::Unknown)
            .expect("`check` found exactly one piece of this kind")
    }

    fn check(&self) -> Result<(), SpmError> {
        if self.pieces.is_empty() {
            return Err(SpmError::NoPieces);
        }
        let mut seen = BTreeMap::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            if piece.text.is_empty() {
                return Err(SpmError::EmptyPiece { index });
            }
            if !piece.score.is_finite() {
                let piece_text = piece.text.clone();
                return Err(SpmError::Score { index, piece: piece_text, found: piece.score });
            }
            if let Some(first) = seen.insert(piece.text.as_str(), index) {
                let piece = piece.text.clone();
                return Err(SpmError::DuplicatePiece { piece, first, second: index });
            }
        }
        let found = self.pieces.iter().filter(|piece| piece.kind == PieceKind::Unknown).count();
        if found == 1 { Ok(()) } else { Err(SpmError::UnknownPieces { found }) }
    }
}

impl TrainerSpec {
    fn merge(&mut self, mut message: Message<'_>) -> Result<(), SpmError> {
        while let Some((number, value)) = message.next_field()? {
            match number {
                3 => {
                    self.model_type = match as_integer("TrainerSpec.model_type", value)? {
                        1 => ModelType::Unigram,
                        2 => ModelType::Bpe,
                        3 => ModelType::Word,
                        4 => ModelType::Char,
                        found => {
                            return Err(SpmError::Enumeration {
                                field: "TrainerSpec.model_type",
                                found,
                                wanted: "1 (UNIGRAM), 2 (BPE), 3 (WORD), 4 (CHAR)",
                            });
                        }
                    }
                }
                24 => {
                    let field = "TrainerSpec.treat_whitespace_as_suffix";
                    self.treat_whitespace_as_suffix = as_integer(field, value)? != 0;
                }
                35 => {
                    self.byte_fallback = as_integer("TrainerSpec.byte_fallback", value)? != 0;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl NormalizerSpec {
    fn merge(&mut self, mut message: Message<'_>) -> Result<(), SpmError> {
        while let Some((number, value)) = message.next_field()? {
            match number {
                2 => {
                    let field = "NormalizerSpec.precompiled_charsmap";
                    self.precompiled_charsmap = as_bytes(field, value)?.bytes().to_vec();
                }
                3 => {
                    let field = "NormalizerSpec.add_dummy_prefix";
                    self.add_dummy_prefix = as_integer(field, value)? != 0;
                }
                4 => {
                    let field = "NormalizerSpec.remove_extra_whitespaces";
                    self.remove_extra_whitespaces = as_integer(field, value)? != 0;
                }
                5 => {
                    let field = "NormalizerSpec.escape_whitespaces";
                    self.escape_whitespaces = as_integer(field, value)? != 0;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn piece(mut message: Message<'_>) -> Result<Piece, SpmError> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
    while let Some((number, value)) = message.next_field()? {
        match number {
            1 => {
                let field = "SentencePiece.piece";
                let text = as_bytes(field, value)?;
                let utf8 = std::str::from_utf8(text.bytes());
                let utf8 = utf8.map_err(|_| SpmError::Utf8 { field, offset: text.offset() })?;
                piece.text = String::from(utf8);
            }
            2 => {
                let Value::Fixed32(bits) = value else {
                    return Err(wrong_type("SentencePiece.score", "32 bits", value));
                };
                piece.score = f32::from_bits(bits);
            }
            3 => {
                piece.kind = match as_integer("SentencePiece.type", value)? {
                    1 => PieceKind::Normal,
                    2 => PieceKind::Unknown,
                    3 => PieceKind::Control,
                    4 => PieceKind::UserDefined,
                    5 => PieceKind::Unused,
                    6 => PieceKind::Byte,
                    found => {
                        return Err(SpmError::Enumeration {
                            field: "SentencePiece.type",
                            found,
                            wanted: "1 to 6",
                        });
                    }
                }
            }
            _ => {}
        }
    }
    Ok(piece)
}

fn as_bytes<'a>(field: &'static str, value: Value<'a>) -> Result<Message<'a>, SpmError> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        other => Err(wrong_type(field, "bytes", other)),
    }
}

fn as_integer(field: &'static str, value: Value<'_>) -> Result<u64, SpmError> {
    match value {
        Value::Varint(integer) => Ok(integer),
        other => Err(wrong_type(field, "an integer", other)),
    }
}

fn wrong_type(field: &'static str, wanted: &'static str, value: Value<'_>) -> SpmError {
    let found = match value {
        Value::Varint(_) => "an integer",
        Value::Fixed64 => "64 bits",
        Value::Bytes(_) => "bytes",
        Value::Fixed32(_) => "32 bits",
    };
    SpmError::FieldType { field, wanted, found }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::protobuf::WireError;
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

    fn small() -> Vec<u8> {
        [piece_field("<unk>", 0.0, 2), piece_field("\u{2581}a", -1.5, 1)].concat()
    }

    #[test]
    fn pieces_and_settings_are_read() {
        let mut bytes = small();
        bytes.extend(piece_field("[CLS]", 0.0, 3));
        bytes.extend(bytes_field(2, &[0x18, 2, 0x98, 0x02, 1])); // model_type 2, byte_fallback
        bytes.extend(bytes_field(3, &[0x12, 2, 7, 8, 0x18, 0, 0x20, 0]));
        let model = SpmModel::parse(&bytes).unwrap();
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
    fn contradictions_are_refused() {
        let parse = |extra: Vec<u8>| SpmModel::parse(&[small(), extra].concat()).unwrap_err();
        assert_eq!(SpmModel::parse(&[]).unwrap_err(), SpmError::NoPieces);
        assert_eq!(
            parse(piece_field("<unk>", 0.0, 1)),
            SpmError::DuplicatePiece { piece: "<unk>".into(), first: 0, second: 2 }
        );
        assert_eq!(parse(piece_field("<x>", 0.0, 2)), SpmError::UnknownPieces { found: 2 });
        assert_eq!(parse(piece_field("", 0.0, 1)), SpmError::EmptyPiece { index: 2 });
        assert!(matches!(parse(piece_field("b", f32::NAN, 1)), SpmError::Score { index: 2, .. }));
        assert!(matches!(
            parse(piece_field("b", 0.0, 7)),
            SpmError::Enumeration { field: "SentencePiece.type", found: 7, .. }
        ));
        assert_eq!(
            parse(vec![0x08, 1]),
            SpmError::FieldType {
                field: "ModelProto.pieces",
                wanted: "bytes",
                found: "an integer"
            }
        );
        let bad_text = bytes_field(1, &bytes_field(1, &[0xff]));
        assert!(matches!(parse(bad_text), SpmError::Utf8 { .. }));
        assert!(matches!(parse(vec![0x0a, 100]), SpmError::Wire(WireError::Truncated { .. })));
    }

    #[test]
    fn every_prefix_of_a_model_is_an_error_or_a_model() {
        let bytes = [small(), piece_field("b", -2.0, 1)].concat();
        for end in 0..bytes.len() {
            // No assertion on the outcome: a prefix may end between two pieces. It must not panic.
            let _ = SpmModel::parse(&bytes[..end]);
            let mut flipped = bytes.clone();
            flipped[end] ^= 0x81;
            let _ = SpmModel::parse(&flipped);
        }
    }
}
