//! A SentencePiece unigram model as the engine's unigram model.
//!
//! As Hugging Face converts DeBERTa-v2/v3 tokenizers (`DebertaV2Converter` of transformers 4):
//!
//! ```text
//! normaliser     [lower case] → strip → replacement table → runs of spaces to one space
//! pre-tokenizer  [punctuation] → spaces to U+2581, one put in front, cut before each
//! model          all pieces with their scores, unknown runs fused
//! template       [CLS] a [SEP]   and   [CLS] a [SEP] b [SEP]   with type ids 0 and 1
//! added tokens   control and user-defined pieces, unknown, then [MASK] after the last piece
//! ```
//!
//! Three consequences differ from SentencePiece's own encoder and are kept, because checkpoints are used with the
//! converted tokenizer. Characters outside the vocabulary become the unknown token even where the model was trained
//! with byte fallback (DeBERTa-v3 was). A trailing character that the table maps to a space leaves a lone U+2581
//! behind. A short grapheme whose first character is in the table is replaced as a whole, so that a mark combined
//! with a compatibility character is lost. Settings under which the conversion would cut ordinary text differently
//! are errors.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokenizers::{AddedToken, Tokenizer};

use super::charsmap;
use super::settings::{ROLES, Settings};
use super::special::{add_tokens, special, template};
use super::spm::{Piece, PieceKind, SPACE_MARK, SpmModel, engine};
use crate::error::{Error, Result};

/// Converts a model of type UNIGRAM.
pub(super) fn convert(model: &SpmModel, file: &Path, settings: &Settings) -> Result<Tokenizer> {
    check_supported(model, file)?;
    let mut normalizers = Vec::new();
    if settings.do_lower_case {
        normalizers.push(json!({"type": "Lowercase"}));
    }
    normalizers.push(json!({"type": "Strip", "strip_left": true, "strip_right": true}));
    let table = &model.normalizer.precompiled_charsmap;
    if !table.is_empty() {
        charsmap::check(table, file)?;
        let table = BASE64_STANDARD.encode(table);
        normalizers.push(json!({"type": "Precompiled", "precompiled_charsmap": table}));
    }
    normalizers.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
    let scheme = if model.normalizer.add_dummy_prefix { "always" } else { "never" };
    let metaspace = json!({
        "type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": scheme, "split": true,
    });
    let mut pre_tokenizers = vec![metaspace.clone()];
    if settings.split_by_punct {
        pre_tokenizers.insert(0, json!({"type": "Punctuation", "behavior": "Isolated"}));
    }
    let vocab = model.pieces.iter().map(|piece| json!([piece.text, f64::from(piece.score)]));
    let mut tokenizer = engine(
        &json!({
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
            "decoder": metaspace,
            "model": {
                "type": "Unigram", "unk_id": model.unknown_id(), "byte_fallback": false,
                "vocab": vocab.collect::<Vec<_>>(),
            },
        }),
        file,
    )?;
    let unknown = &model.pieces[model.unknown_id()].text;
    let added = |piece: &Piece| {
        let is_role = ROLES.iter().any(|role| name(settings, role.key) == piece.text);
        let special = is_role || matches!(piece.kind(), PieceKind::Control | PieceKind::Unknown);
        // Only the unknown token is looked for in the normalised text.
        let token = AddedToken::from(piece.text.clone(), special);
        (special || piece.kind() == PieceKind::UserDefined)
            .then(|| token.normalized(piece.text == *unknown))
    };
    let mask = Some(name(settings, "mask_token"));
    add_tokens(&mut tokenizer, model, file, settings, added, mask)?;
    let special = |key: &'static str| special(&tokenizer, name(settings, key), key, file);
    let (cls, sep) = (special("cls_token")?, special("sep_token")?);
    let template = template(Some(&cls), Some(&sep), false, file)?;
    tokenizer.with_post_processor(template);
    Ok(tokenizer)
}

/// Checks that the conversion and SentencePiece cut ordinary text in the same way.
fn check_supported(model: &SpmModel, file: &Path) -> Result<()> {
    use PieceKind::{Byte, Control, Normal, Unknown, UserDefined};
    let (trainer, normalizer) = (&model.trainer, &model.normalizer);
    let whitespace = normalizer.remove_extra_whitespaces;
    model.check_supported(
        file,
        [
            ("trainer_spec.treat_whitespace_as_suffix", trainer.treat_whitespace_as_suffix, false),
            ("normalizer_spec.remove_extra_whitespaces", whitespace, true),
            ("normalizer_spec.escape_whitespaces", normalizer.escape_whitespaces, true),
        ],
        &[Normal, Unknown, Control, UserDefined, Byte],
    )?;
    let inner_space = |piece: &&Piece| {
        piece.kind() == Normal && piece.text.chars().skip(1).any(|c| SPACE_MARK.starts_with(c))
    };
    match model.pieces.iter().find(inner_space) {
        None => Ok(()),
        Some(piece) => {
            let supported = "a space mark only in front";
            Err(Error::unsupported(file, "pieces.piece", &piece.text, supported))
        }
    }
}

/// Name of a role's token: that of the settings, else that of DeBERTa checkpoints.
fn name<'a>(settings: &'a Settings, key: &'static str) -> &'a str {
    let usual = ROLES.iter().find(|role| role.key == key).map_or("", |role| role.usual[0]);
    settings.names.get(key).map_or(usual, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::charsmap::tests::table;
    use super::super::spm::tests::{bytes_field, piece_field};
    use super::*;

    fn pieces() -> Vec<u8> {
        let control = |text| piece_field(text, 0.0, 3);
        [
            control("[PAD]"),
            control("[CLS]"),
            control("[SEP]"),
            piece_field("[UNK]", 0.0, 2),
            piece_field("\u{2581}", -2.0, 1),
            piece_field("\u{2581}ab", -1.0, 1),
            piece_field("b", -3.0, 1),
            piece_field("<u>", 0.0, 4),
        ]
        .concat()
    }

    fn load_bytes(bytes: &[u8], settings: &Settings) -> Result<Tokenizer> {
        let file = Path::new("spm.model");
        convert(&SpmModel::parse(bytes, file)?, file, settings)
    }

    fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.encode(text, true).unwrap().get_ids().to_vec()
    }

    #[test]
    fn pieces_template_and_added_tokens_get_their_ids() {
        let tokenizer = load_bytes(&pieces(), &Settings::default()).unwrap();
        assert_eq!(ids(&tokenizer, "  ab  b "), [1, 5, 4, 6, 2]);
        assert_eq!(ids(&tokenizer, "xyz"), [1, 4, 3, 2], "an unknown run is one token");
        assert_eq!(ids(&tokenizer, "ab[MASK]"), [1, 5, 8, 2]);
        assert_eq!(ids(&tokenizer, "ab<u>"), [1, 5, 7, 2]);
        let pair = tokenizer.encode(("ab", "b"), true).unwrap();
        assert_eq!(pair.get_ids(), [1, 5, 2, 4, 6, 2]);
        assert_eq!(pair.get_type_ids(), [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn settings_change_the_conversion() {
        let lower = Settings { do_lower_case: true, ..Settings::default() };
        assert_eq!(ids(&load_bytes(&pieces(), &lower).unwrap(), "AB"), [1, 5, 2]);
        let bare = [pieces(), bytes_field(3, &[0x18, 0])].concat();
        let tokenizer = load_bytes(&bare, &Settings::default()).unwrap();
        assert_eq!(ids(&tokenizer, "b"), [1, 6, 2], "no space is put in front");
        let mut listed = Settings::default();
        let mut add = |id, text: &str| {
            listed.added.insert(id, ("added_tokens.json".into(), AddedToken::from(text, true)));
        };
        add(8, "<new>");
        add(9, "[MASK]");
        let tokenizer = load_bytes(&pieces(), &listed).unwrap();
        assert_eq!(tokenizer.token_to_id("<new>"), Some(8));
        assert_eq!(tokenizer.token_to_id("[MASK]"), Some(9));
        listed.added.remove(&8);
        let error = load_bytes(&pieces(), &listed).unwrap_err().to_string();
        let expected = "`added_tokens.json`: `id of token [MASK]` should be 8, its place in the vocabulary, found 9";
        assert_eq!(error, expected);
    }

    #[test]
    fn settings_that_cannot_be_reproduced_are_named() {
        let unsupported = |extra: Vec<u8>| {
            let bytes = [pieces(), extra].concat();
            match load_bytes(&bytes, &Settings::default()).unwrap_err() {
                Error::Unsupported { key, .. } => key,
                other => panic!("{other}"),
            }
        };
        let spec = |content: &[u8]| unsupported(bytes_field(2, content));
        assert_eq!(spec(&[0xc0, 1, 1]), "trainer_spec.treat_whitespace_as_suffix");
        let normalizer = |content: &[u8]| unsupported(bytes_field(3, content));
        assert_eq!(normalizer(&[0x20, 0]), "normalizer_spec.remove_extra_whitespaces");
        assert_eq!(normalizer(&[0x28, 0]), "normalizer_spec.escape_whitespaces");
        assert_eq!(unsupported(piece_field("z", 0.0, 5)), "pieces.type");
        assert_eq!(unsupported(piece_field("a\u{2581}b", 0.0, 1)), "pieces.piece");
    }

    #[test]
    fn a_bad_table_or_a_missing_token_is_an_error() {
        let with_table = |table: Vec<u8>| {
            // The table is longer than `bytes_field` can say: lengths of two bytes.
            let length = |n: usize| [n as u8 & 0x7f | 0x80, (n >> 7) as u8];
            let mut spec = vec![0x12];
            spec.extend(length(table.len()));
            spec.extend(table);
            let mut bytes = pieces();
            bytes.push(0x1a);
            bytes.extend(length(spec.len()));
            bytes.extend(spec);
            load_bytes(&bytes, &Settings::default())
        };
        let tokenizer = with_table(table(0, "b\0")).unwrap();
        assert_eq!(ids(&tokenizer, "a"), [1, 4, 6, 2], "`a` is replaced by `b`");
        let error = with_table(table(7, "b\0")).unwrap_err().to_string();
        assert!(error.contains("spm.model`: `precompiled_charsmap` should"), "{error}");
        let few = [piece_field("[UNK]", 0.0, 2), piece_field("[CLS]", 0.0, 3)].concat();
        let error = load_bytes(&few, &Settings::default()).unwrap_err().to_string();
        let expected = "`sep_token` should be a token of the vocabulary, found `[SEP]`";
        assert!(error.ends_with(expected), "{error}");
    }
}
