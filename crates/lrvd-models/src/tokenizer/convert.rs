//! A SentencePiece model as an engine of the `tokenizers` library, as Hugging Face converts it.
//!
//! Unigram (`DebertaV2Converter` of transformers 4, for DeBERTa-v2/v3):
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
//! with a compatibility character is lost.
//!
//! Byte pairs (`LlamaConverter` of transformers 4):
//!
//! ```text
//! normaliser     U+2581 in front, every space to U+2581; no pre-tokenizer: a text is one word
//! model          merges in the order of the merged piece's score; other characters as byte pieces
//! decoder        U+2581 to a space, byte pieces to text, the space in front removed
//! template       <s> a   and   <s> a <s> b   with type ids 0 and 1; </s> after each with `add_eos_token`
//! added tokens   unknown and control pieces, then what the folder lists
//! ```
//!
//! SentencePiece keeps scores and no merges: a pair can be merged if its text is a piece, and the pair with the best
//! score goes first. The engine wants a list: by falling score, and for one piece by the ids of the two parts. That is
//! the list of the published Llama-2 `tokenizer.json`. One consequence differs from SentencePiece's own encoder: control
//! tokens that a text spells out (`<s>`) become those tokens, and the text after one gets another space mark.
//!
//! Settings under which a conversion would cut ordinary text differently are errors.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use tokenizers::{AddedToken, Tokenizer};

use super::settings::{ROLES, Settings, missing_token, template, wrong_id};
use super::spm::{ModelType, Piece, PieceKind, SpmModel};
use super::tokenizer_json::engine;
use crate::error::{Error, Result};

/// The mark that SentencePiece writes for a space.
const SPACE_MARK: &str = "\u{2581}";
/// Byte pieces of a complete vocabulary.
const BYTES: usize = 256;

/// The text of a `tokenizer.json` for a SentencePiece byte-pair model with byte fallback, with the tokens that stand
/// `before` and `after` every text; `file` is only named in errors. Control pieces whose ids are `ordinary` belong to the
/// text. The same model gives the same text.
pub fn tokenizer_json(
    model: &SpmModel,
    file: &Path,
    [before, after]: [Option<&str>; 2],
    ordinary: &[u32],
) -> Result<String> {
    let named = |role, token: Option<&str>| Some((role, (file.into(), token?.to_owned())));
    let names = [named("bos_token", before), named("eos_token", after)];
    let added = |id: &u32| {
        let piece = model.pieces.get(*id as usize)?;
        let token = AddedToken::from(piece.text.clone(), false).normalized(false);
        Some((*id, (file.into(), token)))
    };
    let settings = Settings {
        add_bos: Some(before.is_some()),
        add_eos: Some(after.is_some()),
        names: names.into_iter().flatten().collect(),
        added: ordinary.iter().filter_map(added).collect(),
        ..Settings::default()
    };
    let tokenizer = convert(model, file, &settings)?;
    let text = tokenizer.to_string(true).map_err(Error::library("write a tokenizer", file))?;
    Ok(text + "\n")
}

/// Converts a model.
pub(super) fn convert(model: &SpmModel, file: &Path, settings: &Settings) -> Result<Tokenizer> {
    let is_unigram = match model.trainer.model_type() {
        ModelType::Unigram => true,
        ModelType::Bpe => false,
        other => {
            let key = "trainer_spec.model_type";
            let found = if other == ModelType::Word { "Word" } else { "Char" };
            return Err(Error::unsupported(file, key, found, "Unigram, Bpe"));
        }
    };
    check_supported(model, file, is_unigram)?;
    let parts = if is_unigram { unigram(model, settings) } else { byte_pairs(model) };
    let mut tokenizer = engine(&parts, parts.to_string().as_bytes(), file)?;
    add_tokens(&mut tokenizer, model, file, settings, is_unigram)?;
    // The usual names of a DeBERTa, else those of a Llama.
    let usual = usize::from(!is_unigram);
    let end = |add: bool, role: &str| {
        let token = settings.name(role, usual).unwrap_or_default().to_owned();
        match tokenizer.token_to_id(&token) {
            _ if !add => Ok(None),
            Some(id) => Ok(Some((token, id))),
            None => Err(missing_token(file, &token, role)),
        }
    };
    let (first, last) = if is_unigram {
        (end(true, "cls_token")?, end(true, "sep_token")?)
    } else {
        let bos = settings.add_bos.unwrap_or(true);
        let eos = settings.add_eos.unwrap_or(false);
        (end(bos, "bos_token")?, end(eos, "eos_token")?)
    };
    let template = template(first.as_ref(), last.as_ref(), !is_unigram, file)?;
    tokenizer.with_post_processor(template);
    Ok(tokenizer)
}

/// Checks that the conversion and SentencePiece cut ordinary text in the same way.
fn check_supported(model: &SpmModel, file: &Path, is_unigram: bool) -> Result<()> {
    use PieceKind::{Byte, Normal, Unused, UserDefined};
    let unsupported = |key: &str, found: String, supported: String| {
        Err(Error::unsupported(file, key, found, supported))
    };
    let SpmModel { trainer, normalizer, .. } = model;
    let whitespace = normalizer.remove_extra_whitespaces;
    for (key, found, supported) in [
        ("trainer_spec.byte_fallback", trainer.byte_fallback || is_unigram, true),
        ("trainer_spec.treat_whitespace_as_suffix", trainer.treat_whitespace_as_suffix, false),
        ("normalizer_spec.remove_extra_whitespaces", whitespace, is_unigram),
        ("normalizer_spec.escape_whitespaces", normalizer.escape_whitespaces, true),
    ] {
        if found != supported {
            return unsupported(key, found.to_string(), supported.to_string());
        }
    }
    let is_other = |kind| kind == Unused || (kind == UserDefined && !is_unigram);
    if let Some(piece) = model.pieces.iter().find(|piece| is_other(piece.kind())) {
        let kind = if piece.kind() == Unused { "unused" } else { "user-defined" };
        let supported =
            if is_unigram { "every other kind" } else { "normal, unknown, control, byte" };
        return unsupported(
            "pieces.type",
            format!("{kind} (`{}`)", piece.text),
            supported.to_owned(),
        );
    }
    if is_unigram {
        let inner_space = |piece: &&Piece| {
            piece.kind() == Normal && piece.text.chars().skip(1).any(|c| SPACE_MARK.starts_with(c))
        };
        return match model.pieces.iter().find(inner_space).map(|piece| piece.text.clone()) {
            None => Ok(()),
            Some(text) => {
                unsupported("pieces.piece", text, "a space mark only in front".to_owned())
            }
        };
    }
    let table = normalizer.precompiled_charsmap.len();
    if table > 0 {
        let key = "normalizer_spec.precompiled_charsmap";
        return unsupported(key, format!("{table} bytes"), "none".to_owned());
    }
    let bytes = model.pieces.iter().filter(|piece| piece.kind() == Byte).count();
    if bytes != BYTES {
        let supported = "256, one for each byte".to_owned();
        return unsupported("pieces.type", format!("Byte {bytes} times"), supported);
    }
    Ok(())
}

/// The parts of a `tokenizer.json` for a unigram model.
fn unigram(model: &SpmModel, settings: &Settings) -> Value {
    let mut normalizers = Vec::new();
    if settings.do_lower_case == Some(true) {
        normalizers.push(json!({"type": "Lowercase"}));
    }
    normalizers.push(json!({"type": "Strip", "strip_left": true, "strip_right": true}));
    let table = &model.normalizer.precompiled_charsmap;
    if !table.is_empty() {
        let table = BASE64_STANDARD.encode(table);
        normalizers.push(json!({"type": "Precompiled", "precompiled_charsmap": table}));
    }
    normalizers.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
    let scheme = if model.normalizer.add_dummy_prefix { "always" } else { "never" };
    let metaspace = json!({
        "type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": scheme, "split": true,
    });
    let mut pre_tokenizers = vec![metaspace.clone()];
    if settings.split_by_punct == Some(true) {
        pre_tokenizers.insert(0, json!({"type": "Punctuation", "behavior": "Isolated"}));
    }
    let vocab = model.pieces.iter().map(|piece| json!([piece.text, f64::from(piece.score)]));
    json!({
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "decoder": metaspace,
        "model": {
            "type": "Unigram", "unk_id": model.unknown_id(), "byte_fallback": false,
            "vocab": vocab.collect::<Vec<_>>(),
        },
    })
}

/// The parts of a `tokenizer.json` for a byte-pair model.
fn byte_pairs(model: &SpmModel) -> Value {
    let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let mut normalizers = vec![replace(" ", SPACE_MARK)];
    let mut decoders =
        vec![replace(SPACE_MARK, " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    if model.normalizer.add_dummy_prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE_MARK}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let ids = (0_u32..).zip(&model.pieces).map(|(id, piece)| (piece.text.clone(), id.into()));
    json!({
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "unk_token": model.pieces[model.unknown_id()].text,
            "fuse_unk": true, "byte_fallback": true,
            "vocab": ids.collect::<Map<String, Value>>(), "merges": merges(&model.pieces),
        },
    })
}

/// The pairs that may be merged, best first.
fn merges(pieces: &[Piece]) -> Vec<(String, String)> {
    let normal = || (0_u32..).zip(pieces).filter(|(_, piece)| piece.kind() == PieceKind::Normal);
    let ids: HashMap<&str, u32> = normal().map(|(id, piece)| (piece.text.as_str(), id)).collect();
    let mut found = Vec::new();
    for (_, piece) in normal() {
        let cuts = piece.text.char_indices().skip(1);
        let mut of_piece: Vec<_> = cuts
            .filter_map(|(at, _)| {
                let (left, right) = piece.text.split_at(at);
                let order = (*ids.get(left)?, *ids.get(right)?);
                Some((order, (left.to_owned(), right.to_owned())))
            })
            .collect();
        of_piece.sort_by_key(|(order, _)| *order);
        found.extend(of_piece.into_iter().map(|(_, pair)| (piece.score, pair)));
    }
    // Stable: pieces of one score stay in their order. Scores are finite.
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().map(|(_, pair)| pair).collect()
}

/// Adds the pieces that are cut out of a text first, then what the folder lists, in the order of their ids, then the mask
/// of a unigram model unless it is among them. An error if a listed token does not get its id.
fn add_tokens(
    tokenizer: &mut Tokenizer,
    model: &SpmModel,
    file: &Path,
    settings: &Settings,
    is_unigram: bool,
) -> Result<()> {
    // Names of the roles' tokens: those of the settings, else those of DeBERTa checkpoints.
    let names = ROLES.each_ref().map(|role| settings.name(role.key, 0).unwrap_or_default());
    let unknown = &model.pieces[model.unknown_id()].text;
    let n_pieces = model.pieces.len() as u32;
    let mut tokens = Vec::new();
    for (id, piece) in (0u32..).zip(&model.pieces) {
        let listed = settings.added.get(&id).filter(|(_, token)| token.content == piece.text);
        let special = matches!(piece.kind(), PieceKind::Control | PieceKind::Unknown)
            || is_unigram && names.contains(&&*piece.text);
        if let Some((_, token)) = listed {
            tokens.push(token.clone());
        } else if special || piece.kind() == PieceKind::UserDefined {
            // Only the unknown token of a unigram model is looked for in the normalised text.
            let token = AddedToken::from(piece.text.clone(), special);
            tokens.push(token.normalized(is_unigram && piece.text == *unknown));
        }
    }
    tokens.extend(settings.added.range(n_pieces..).map(|(_, (_, token))| token.clone()));
    let mask = settings.name("mask_token", 0).unwrap_or_default();
    if is_unigram && tokens.iter().all(|token| token.content != mask) {
        tokens.push(AddedToken::from(mask, true));
    }
    tokenizer.add_tokens(tokens).map_err(Error::library("add special tokens", file))?;
    for (&expected, (list, token)) in &settings.added {
        let found = tokenizer.token_to_id(&token.content).unwrap_or(n_pieces);
        if found != expected {
            return Err(wrong_id(list, &token.content, expected, found));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::charsmap::tests::table;
    use super::super::spm::tests::piece;
    use super::*;

    fn unigram() -> SpmModel {
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

    /// `<unk> <s> </s>`, 256 bytes, then normal pieces.
    fn pairs(normal: &[&str]) -> SpmModel {
        let mut pieces = vec![
            piece("<unk>", 0.0, PieceKind::Unknown),
            piece("<s>", 0.0, PieceKind::Control),
            piece("</s>", 0.0, PieceKind::Control),
        ];
        pieces.extend((0..256).map(|b| piece(&format!("<0x{b:02X}>"), 0.0, PieceKind::Byte)));
        let normal = (1_u8..).zip(normal);
        pieces.extend(normal.map(|(i, text)| piece(text, -f32::from(i), PieceKind::Normal)));
        SpmModel::byte_pairs(pieces, "spm".as_ref()).unwrap()
    }

    fn small() -> SpmModel {
        pairs(&["ab", "\u{2581}a", "abc", "\u{2581}", "a", "b", "c"])
    }

    fn converted(model: &SpmModel, settings: &Settings) -> Result<Tokenizer> {
        convert(model, "spm.model".as_ref(), settings)
    }

    fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.encode(text, true).unwrap().get_ids().to_vec()
    }

    #[test]
    fn the_best_score_is_merged_first() {
        let both = merges(&pairs(&["ab", "bc", "abc", "a", "b", "c"]).pieces);
        let found: Vec<String> = both.iter().map(|(l, r)| format!("{l} {r}")).collect();
        assert_eq!(found, ["a b", "b c", "ab c", "a bc"]);
    }

    #[test]
    fn settings_change_the_conversion() {
        let with = |add_bos, add_eos| {
            let settings = Settings { add_bos, add_eos, ..Settings::default() };
            let pair = converted(&small(), &settings).unwrap().encode(("a", "c"), true).unwrap();
            (pair.get_ids().to_vec(), pair.get_type_ids().to_vec())
        };
        assert_eq!(with(None, None), (vec![1, 260, 1, 262, 265], vec![0, 0, 1, 1, 1]));
        assert_eq!(with(Some(false), Some(true)).0, [260, 2, 262, 265, 2]);
        let lower = Settings { do_lower_case: Some(true), ..Settings::default() };
        let lower = converted(&unigram(), &lower).unwrap();
        assert_eq!(ids(&lower, "AB<u>xyz"), [1, 5, 7, 4, 3, 2]);
        let mut bare = unigram();
        bare.normalizer.add_dummy_prefix = false;
        bare.normalizer.precompiled_charsmap = table(0, "b\0");
        let bare = converted(&bare, &Settings::default()).unwrap();
        assert_eq!(ids(&bare, "a"), [1, 6, 2], "replaced by `b`, without a space in front");
        let mut listed = Settings::default();
        for (id, text) in [(8, "<new>"), (9, "[MASK]")] {
            let token = AddedToken::from(text, true);
            listed.added.insert(id, ("added_tokens.json".into(), token));
        }
        let tokenizer = converted(&unigram(), &listed).unwrap();
        assert_eq!(tokenizer.token_to_id("<new>"), Some(8));
        assert_eq!(tokenizer.token_to_id("[MASK]"), Some(9));
        listed.added.remove(&8);
        let error = converted(&unigram(), &listed).unwrap_err().to_string();
        let expected = "`added_tokens.json`: `id of token [MASK]` should be 8, its place in the vocabulary, found 9";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_cannot_be_reproduced_is_named() {
        type Case = (fn() -> SpmModel, fn(&mut SpmModel), &'static str);
        let cases: [Case; 11] = [
            (unigram, |m| m.trainer.treat_whitespace_as_suffix = true, "_suffix` is `true`"),
            (
                unigram,
                |m| m.normalizer.remove_extra_whitespaces = false,
                "_whitespaces` is `false`",
            ),
            (unigram, |m| m.normalizer.escape_whitespaces = false, "supported: true"),
            (unigram, |m| m.pieces[6].set_kind(PieceKind::Unused), "type` is `unused (`b`)`"),
            (unigram, |m| m.pieces[6].text = "a▁b".into(), "`pieces.piece` is `a▁b`, supported"),
            (unigram, |m| m.normalizer.precompiled_charsmap = table(7, "b\0"), "_charsmap` should"),
            (unigram, |m| drop(m.pieces.remove(2)), "`sep_token` should be a token of the voc"),
            (small, |m| m.trainer.byte_fallback = false, "`trainer_spec.byte_fallback` is `false`"),
            (small, |m| m.normalizer.precompiled_charsmap = vec![0; 8], "is `8 bytes`, supported"),
            (small, |m| m.pieces[259].set_kind(PieceKind::UserDefined), "is `user-defined (`ab`)`"),
            (small, |m| drop(m.pieces.remove(7)), "`pieces.type` is `Byte 255 times`"),
        ];
        for (model, change, expected) in cases {
            let mut model = model();
            change(&mut model);
            let error = converted(&model, &Settings::default()).unwrap_err().to_string();
            assert!(error.starts_with("`spm.model`: ") && error.contains(expected), "{error}");
        }
    }
}
