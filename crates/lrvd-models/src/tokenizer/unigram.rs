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
    use super::super::spm::tests::piece;
    use super::*;

    fn model() -> SpmModel {
        let control = |text| piece(text, 0.0, PieceKind::Control);
        let pieces = vec![
            control("[PAD]"),
            control("[CLS]"),
            control("[SEP]"),
            piece("[UNK]", 0.0, PieceKind::Unknown),
            piece("\u{2581}", -2.0, PieceKind::Normal),
            piece("\u{2581}ab", -1.0, PieceKind::Normal),
            piece("b", -3.0, PieceKind::Normal),
            piece("<u>", 0.0, PieceKind::UserDefined),
        ];
        SpmModel { pieces, ..SpmModel::default() }
    }

    /// The conversion of the changed model.
    fn converted(change: impl FnOnce(&mut SpmModel), settings: &Settings) -> Result<Tokenizer> {
        let mut model = model();
        change(&mut model);
        convert(&model, "spm.model".as_ref(), settings)
    }

    fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.encode(text, true).unwrap().get_ids().to_vec()
    }

    #[test]
    fn pieces_template_and_added_tokens_get_their_ids() {
        let tokenizer = converted(|_| (), &Settings::default()).unwrap();
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
        assert_eq!(ids(&converted(|_| (), &lower).unwrap(), "AB"), [1, 5, 2]);
        let bare = converted(|m| m.normalizer.add_dummy_prefix = false, &Settings::default());
        assert_eq!(ids(&bare.unwrap(), "b"), [1, 6, 2], "no space is put in front");
        let mut listed = Settings::default();
        let mut add = |id, text: &str| {
            listed.added.insert(id, ("added_tokens.json".into(), AddedToken::from(text, true)));
        };
        add(8, "<new>");
        add(9, "[MASK]");
        let tokenizer = converted(|_| (), &listed).unwrap();
        assert_eq!(tokenizer.token_to_id("<new>"), Some(8));
        assert_eq!(tokenizer.token_to_id("[MASK]"), Some(9));
        listed.added.remove(&8);
        let error = converted(|_| (), &listed).unwrap_err().to_string();
        let expected = "`added_tokens.json`: `id of token [MASK]` should be 8, its place in the vocabulary, found 9";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_cannot_be_reproduced_is_named() {
        type Change = Box<dyn FnOnce(&mut SpmModel)>;
        let z = |text, kind| move |m: &mut SpmModel| m.pieces.push(piece(text, 0.0, kind));
        let cases: [(Change, &str); 7] = [
            (
                Box::new(|m| m.trainer.treat_whitespace_as_suffix = true),
                "`trainer_spec.treat_whitespace_as_suffix` is `true`, supported: false",
            ),
            (
                Box::new(|m| m.normalizer.remove_extra_whitespaces = false),
                "`normalizer_spec.remove_extra_whitespaces` is `false`, supported: true",
            ),
            (
                Box::new(|m| m.normalizer.escape_whitespaces = false),
                "`normalizer_spec.escape_whitespaces` is `false`, supported: true",
            ),
            (Box::new(z("z", PieceKind::Unused)), "`pieces.type` is `Unused (`z`)`"),
            (Box::new(z("a\u{2581}b", PieceKind::Normal)), "`pieces.piece` is `a\u{2581}b`"),
            (
                Box::new(|m| m.normalizer.precompiled_charsmap = table(7, "b\0")),
                "`precompiled_charsmap` should",
            ),
            (
                Box::new(|m| drop(m.pieces.remove(2))),
                "`sep_token` should be a token of the vocabulary, found `[SEP]`",
            ),
        ];
        for (change, expected) in cases {
            let error = converted(change, &Settings::default()).unwrap_err().to_string();
            assert!(error.starts_with("`spm.model`: ") && error.contains(expected), "{error}");
        }
        let change = |m: &mut SpmModel| m.normalizer.precompiled_charsmap = table(0, "b\0");
        let tokenizer = converted(change, &Settings::default()).unwrap();
        assert_eq!(ids(&tokenizer, "a"), [1, 4, 6, 2], "`a` is replaced by `b`");
    }
}
