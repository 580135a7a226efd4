//! A SentencePiece byte-pair model as the engine's byte-pair model.
//!
//! As Hugging Face converts Llama tokenizers (`LlamaConverter` of transformers 4):
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
//! the list of the published Llama-2 `tokenizer.json`.
//!
//! One consequence differs from SentencePiece's own encoder: control tokens that a text spells out (`<s>`) become
//! those tokens, and the text after one gets another space mark. Settings under which ordinary text would be cut
//! differently are errors.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use tokenizers::{AddedToken, Tokenizer};

use super::settings::Settings;
use super::special::{add_tokens, special, template};
use super::spm::{Piece, PieceKind, SPACE_MARK, SpmModel, engine};
use crate::error::{Error, Result};

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

/// Converts a model of type BPE.
pub(super) fn convert(model: &SpmModel, file: &Path, settings: &Settings) -> Result<Tokenizer> {
    check_supported(model, file)?;
    let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let mut normalizers = vec![replace(" ", SPACE_MARK)];
    let mut decoders =
        vec![replace(SPACE_MARK, " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    if model.normalizer.add_dummy_prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE_MARK}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let ids = (0_u32..).zip(&model.pieces).map(|(id, piece)| (piece.text.clone(), id.into()));
    let mut tokenizer = engine(
        &json!({
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE", "unk_token": model.pieces[model.unknown_id()].text,
                "fuse_unk": true, "byte_fallback": true,
                "vocab": ids.collect::<Map<String, Value>>(), "merges": merges(&model.pieces),
            },
        }),
        file,
    )?;
    let added = |piece: &Piece| {
        let special = matches!(piece.kind(), PieceKind::Control | PieceKind::Unknown);
        special.then(|| AddedToken::from(piece.text.clone(), true).normalized(false))
    };
    add_tokens(&mut tokenizer, model, file, settings, added, None)?;
    let end = |add: bool, key: &'static str, usual: &str| {
        let token = settings.names.get(key).map_or(usual, |(_, name)| name);
        add.then(|| special(&tokenizer, token, key, file)).transpose()
    };
    let bos = end(settings.add_bos.unwrap_or(true), "bos_token", "<s>")?;
    let eos = end(settings.add_eos.unwrap_or(false), "eos_token", "</s>")?;
    tokenizer.with_post_processor(template(bos.as_ref(), eos.as_ref(), true, file)?);
    Ok(tokenizer)
}

/// Checks that the conversion and SentencePiece cut ordinary text in the same way.
fn check_supported(model: &SpmModel, file: &Path) -> Result<()> {
    let (trainer, normalizer) = (&model.trainer, &model.normalizer);
    let whitespace = normalizer.remove_extra_whitespaces;
    model.check_supported(
        file,
        [
            ("trainer_spec.byte_fallback", trainer.byte_fallback, true),
            ("trainer_spec.treat_whitespace_as_suffix", trainer.treat_whitespace_as_suffix, false),
            ("normalizer_spec.remove_extra_whitespaces", whitespace, false),
            ("normalizer_spec.escape_whitespaces", normalizer.escape_whitespaces, true),
        ],
        &[PieceKind::Normal, PieceKind::Unknown, PieceKind::Control, PieceKind::Byte],
    )?;
    let unsupported =
        |key: &str, found, supported| Err(Error::unsupported(file, key, found, supported));
    let table = normalizer.precompiled_charsmap.len();
    if table > 0 {
        return unsupported(
            "normalizer_spec.precompiled_charsmap",
            format!("{table} bytes"),
            "none",
        );
    }
    let bytes = model.pieces.iter().filter(|piece| piece.kind() == PieceKind::Byte).count();
    if bytes != BYTES {
        return unsupported("pieces.type", format!("Byte {bytes} times"), "256, one for each byte");
    }
    Ok(())
}

/// The pairs that may be merged, best first.
fn merges(pieces: &[Piece]) -> Vec<(String, String)> {
    let normal = |(id, piece): (u32, &Piece)| {
        (piece.kind() == PieceKind::Normal).then_some((piece.text.clone(), id))
    };
    let ids: HashMap<String, u32> = (0..).zip(pieces).filter_map(normal).collect();
    let mut found = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.kind() == PieceKind::Normal) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::spm::tests::piece;
    use super::*;

    /// `<unk> <s> </s>`, 256 bytes, then normal pieces.
    fn model(normal: &[(&str, f32)]) -> SpmModel {
        let mut pieces = vec![
            piece("<unk>", 0.0, PieceKind::Unknown),
            piece("<s>", 0.0, PieceKind::Control),
            piece("</s>", 0.0, PieceKind::Control),
        ];
        pieces.extend((0..256).map(|b| piece(&format!("<0x{b:02X}>"), 0.0, PieceKind::Byte)));
        pieces.extend(normal.iter().map(|(text, score)| piece(text, *score, PieceKind::Normal)));
        SpmModel::byte_pairs(pieces, "spm".as_ref()).unwrap()
    }

    fn small() -> SpmModel {
        model(&[
            ("ab", -1.0),
            ("\u{2581}a", -2.0),
            ("abc", -3.0),
            ("\u{2581}", -9.0),
            ("a", -9.5),
            ("b", -9.75),
            ("c", -10.0),
        ])
    }

    fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.encode(text, true).unwrap().get_ids().to_vec()
    }

    #[test]
    fn the_best_score_is_merged_first() {
        let tokenizer = convert(&small(), "spm".as_ref(), &Settings::default()).unwrap();
        // "▁abc": a+b beats ▁+a, then ab+c.
        assert_eq!(ids(&tokenizer, "abc"), [1, 262, 261]);
        assert_eq!(ids(&tokenizer, "ac"), [1, 260, 265]);
        // é is C3 A9; a space inside is a mark.
        assert_eq!(ids(&tokenizer, "é c"), [1, 262, 3 + 0xc3, 3 + 0xa9, 262, 265]);
        assert_eq!(ids(&tokenizer, ""), [1]);
        let back = tokenizer.decode(&ids(&tokenizer, "é  abc\n"), true).unwrap();
        assert_eq!(back, "é  abc\n");
    }

    #[test]
    fn merges_of_one_piece_stand_together() {
        let pieces = small().pieces;
        let found: Vec<String> = merges(&pieces).iter().map(|(l, r)| format!("{l} {r}")).collect();
        assert_eq!(found, ["a b", "\u{2581} a", "ab c"]);
        let pieces = ["ab", "bc", "abc", "a", "b", "c"]
            .into_iter()
            .zip([-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
        let both = model(&pieces.collect::<Vec<_>>());
        let found: Vec<String> =
            merges(&both.pieces).iter().map(|(l, r)| format!("{l} {r}")).collect();
        assert_eq!(found, ["a b", "b c", "ab c", "a bc"]);
    }

    #[test]
    fn settings_change_the_template() {
        let with = |add_bos, add_eos| {
            let settings = Settings { add_bos, add_eos, ..Settings::default() };
            let tokenizer = convert(&small(), "spm".as_ref(), &settings).unwrap();
            let pair = tokenizer.encode(("a", "c"), true).unwrap();
            (pair.get_ids().to_vec(), pair.get_type_ids().to_vec())
        };
        assert_eq!(with(None, None), (vec![1, 260, 1, 262, 265], vec![0, 0, 1, 1, 1]));
        assert_eq!(with(Some(false), Some(true)).0, [260, 2, 262, 265, 2]);
    }

    #[test]
    fn settings_that_cannot_be_reproduced_are_named() {
        let key_of = |change: fn(&mut SpmModel)| {
            let mut model = small();
            change(&mut model);
            match convert(&model, "spm".as_ref(), &Settings::default()).unwrap_err() {
                Error::Unsupported { key, .. } => key,
                other => panic!("{other}"),
            }
        };
        assert_eq!(key_of(|m| m.trainer.byte_fallback = false), "trainer_spec.byte_fallback");
        let key = "normalizer_spec.remove_extra_whitespaces";
        assert_eq!(key_of(|m| m.normalizer.remove_extra_whitespaces = true), key);
        let key = "normalizer_spec.precompiled_charsmap";
        assert_eq!(key_of(|m| m.normalizer.precompiled_charsmap = vec![0; 8]), key);
        assert_eq!(key_of(|m| m.pieces[259].set_kind(PieceKind::UserDefined)), "pieces.type");
        assert_eq!(key_of(|m| drop(m.pieces.remove(7))), "pieces.type");
    }

    #[test]
    fn the_written_tokenizer_is_the_converted_one() {
        let write = || tokenizer_json(&small(), "spm".as_ref(), [Some("<s>"), None], &[]).unwrap();
        let text = write();
        let read = Tokenizer::from_bytes(text.as_bytes()).unwrap();
        let converted = convert(&small(), "spm".as_ref(), &Settings::default()).unwrap();
        for sample in ["abc", "é  abc\n", "<s>ab", ""] {
            assert_eq!(ids(&read, sample), ids(&converted, sample), "{sample}");
        }
        assert_eq!(text, write());
    }
}
