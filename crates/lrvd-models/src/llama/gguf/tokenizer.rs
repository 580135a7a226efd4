//! `tokenizer.ggml.*` keys as the files of a Hugging Face tokenizer.

use std::collections::BTreeSet;

use lrvd_burn::files::GgufFile;
use serde_json::{Map, Value, json};

use super::config::architecture;
use crate::error::{Error, Result};
use crate::tokenizer::{Piece, PieceKind, SpmModel, template_json, tokenizer_json};

/// Key of the way in which a text is cut into words.
const PRE: &str = "tokenizer.ggml.pre";
const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

/// Special parts: the key in the file and in `tokenizer_config.json`.
const ROLES: [(&str, &str); 4] = [
    ("tokenizer.ggml.bos_token_id", "bos_token"),
    ("tokenizer.ggml.eos_token_id", "eos_token"),
    ("tokenizer.ggml.unknown_token_id", "unk_token"),
    ("tokenizer.ggml.padding_token_id", "pad_token"),
];

/// Names that llama.cpp gives to Llama 3's way of cutting.
const LLAMA_3: [&str; 3] = ["llama-bpe", "llama3", "llama-v3"];

/// Llama 3's words.
const LLAMA_3_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Words of Qwen2 to Qwen3: every digit is a word.
const QWEN_2_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The texts of a tokenizer's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerFiles {
    /// `tokenizer.json`.
    pub tokenizer: String,
    /// `tokenizer_config.json`.
    pub settings: String,
}

/// Tokens by id, and the special tokens around every text.
struct Vocabulary<'a> {
    tokens: &'a [String],
    /// Kinds of the tokens; SentencePiece has the same numbers.
    kinds: Vec<PieceKind>,
    /// Tokens before and after every text, with their ids.
    special_ends: [Option<(String, u32)>; 2],
}

/// The texts of the tokenizer's files.
pub(super) fn tokenizer_files(file: &GgufFile) -> Result<TokenizerFiles> {
    let model = file.text(MODEL)?.ok_or_else(|| file.missing(MODEL))?;
    let pre = file.text(PRE)?;
    let vocabulary =
        vocabulary(file, model == "llama" || pre.is_some_and(|pre| LLAMA_3.contains(&pre)))?;
    let tokenizer = match model {
        "gpt2" => {
            let pre = pre.ok_or_else(|| file.missing(PRE))?;
            let merges = file.texts(MERGES)?.ok_or_else(|| file.missing(MERGES))?;
            byte_level(&vocabulary, merges, pre, file)?
        }
        "llama" => sentence_piece(file, &vocabulary)?,
        other => {
            return Err(Error::unsupported(file.path(), MODEL, other, "gpt2, llama"));
        }
    };
    Ok(TokenizerFiles { tokenizer, settings: settings(file, &vocabulary)? })
}

fn vocabulary(file: &GgufFile, add_bos_by_default: bool) -> Result<Vocabulary<'_>> {
    let tokens = file.texts(TOKENS)?.ok_or_else(|| file.missing(TOKENS))?;
    let kinds = file.integers(TYPES)?.ok_or_else(|| file.missing(TYPES))?;
    if kinds.len() != tokens.len() {
        return Err(file.unexpected(TYPES, "one kind for each of `tokenizer.ggml.tokens`").into());
    }
    let kind = |&kind: &i64| PieceKind::try_from(i32::try_from(kind).ok()?).ok();
    let kinds: Option<Vec<PieceKind>> = kinds.iter().map(kind).collect();
    let mut kinds = kinds.ok_or_else(|| file.unexpected(TYPES, "a list of numbers from 1 to 6"))?;
    // Rows of the embedding that no text has are filled up with names.
    let used = kinds.iter().rposition(|&kind| kind != PieceKind::Unused).map_or(0, |last| last + 1);
    kinds.truncate(used);
    let tokens = &tokens[..used];
    if tokens.iter().collect::<BTreeSet<_>>().len() != used || used == 0 {
        return Err(file.unexpected(TOKENS, "a list of different texts").into());
    }
    let mut ends = [None, None];
    for (place, (key, _)) in ROLES.into_iter().enumerate() {
        let Some(id) = file.count(key)? else { continue };
        let token = tokens.get(id as usize);
        let token = token.ok_or_else(|| file.unexpected(key, "the number of a token"))?;
        if let Some(end) = ends.get_mut(place) {
            *end = Some((token.clone(), id as u32));
        }
    }
    let adds = [
        ("tokenizer.ggml.add_bos_token", add_bos_by_default),
        ("tokenizer.ggml.add_eos_token", false),
    ];
    for (end, (key, default)) in ends.iter_mut().zip(adds) {
        if !file.boolean(key)?.unwrap_or(default) {
            *end = None;
        }
    }
    Ok(Vocabulary { tokens, kinds, special_ends: ends })
}

/// Byte-level byte pairs (`tokenizer.ggml.model = gpt2`). The file holds tokens and merges, and only a name for the way
/// in which a text is cut into words first: known are those of the published `tokenizer.json` of the models that
/// llama.cpp's converter gives the name to.
fn byte_level(
    vocabulary: &Vocabulary<'_>,
    merges: &[String],
    pre: &str,
    file: &GgufFile,
) -> Result<String> {
    let bytes = |words: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words});
    let split = |pattern: &str| {
        let words = json!({
            "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
        });
        json!({"type": "Sequence", "pretokenizers": [words, bytes(false)]})
    };
    let mut normalizer = Value::Null;
    let (cut, whole_words) = match pre {
        "gpt-2" => (bytes(true), false),
        "smollm" => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            (json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]}), false)
        }
        "qwen2" => {
            normalizer = json!({"type": "NFC"});
            (split(QWEN_2_WORDS), false)
        }
        _ if LLAMA_3.contains(&pre) => (split(LLAMA_3_WORDS), true),
        other => {
            return Err(Error::unsupported(
                file.path(),
                PRE,
                other,
                "gpt-2, smollm, llama-bpe, qwen2",
            ));
        }
    };
    let ids = (0_u32..).zip(vocabulary.tokens);
    let vocab: Map<String, Value> = ids.map(|(id, token)| (token.clone(), id.into())).collect();
    // Tokens that are cut out of a text before anything else.
    let added = (0_u32..).zip(vocabulary.tokens).zip(&vocabulary.kinds);
    let added =
        added.filter(|(_, kind)| [PieceKind::Control, PieceKind::UserDefined].contains(kind));
    let added = added.map(|((id, token), kind)| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": *kind == PieceKind::Control,
        })
    });
    let [bos, eos] = &vocabulary.special_ends;
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer, "pre_tokenizer": cut, "decoder": bytes(true),
        "post_processor": template_json(bos.as_ref(), eos.as_ref(), true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": whole_words, "vocab": vocab, "merges": merges,
        },
    });
    Ok(format!("{tokenizer:#}\n"))
}

/// SentencePiece's byte pairs (`tokenizer.ggml.model = llama`).
fn sentence_piece(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<String> {
    let scores = file.floats(SCORES)?.ok_or_else(|| file.missing(SCORES))?;
    if scores.len() < vocabulary.tokens.len() {
        return Err(file
            .unexpected(SCORES, "one number for each of `tokenizer.ggml.tokens`")
            .into());
    }
    let own: Vec<u32> = (0_u32..)
        .zip(&vocabulary.kinds)
        .filter_map(|(id, kind)| (*kind == PieceKind::UserDefined).then_some(id))
        .collect();
    let pieces = vocabulary.tokens.iter().zip(&vocabulary.kinds).zip(scores);
    let piece = |((text, &kind), &score): ((&String, &PieceKind), &f32)| {
        // Tokens that were added to the vocabulary are cut out first, as control tokens are.
        let kind = if kind == PieceKind::UserDefined { PieceKind::Control } else { kind };
        Piece { text: text.clone(), score, kind: kind.into() }
    };
    let path = file.path();
    let mut model = SpmModel::byte_pairs(pieces.map(piece).collect(), path)?;
    model.normalizer.add_dummy_prefix =
        file.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let ends =
        vocabulary.special_ends.each_ref().map(|end| end.as_ref().map(|(token, _)| &**token));
    tokenizer_json(&model, path, ends, &own)
}

/// The text of a `tokenizer_config.json`.
fn settings(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<String> {
    let mut map = Map::new();
    let mut set = |key: &str, value: Value| map.insert(key.to_owned(), value);
    set("add_bos_token", vocabulary.special_ends[0].is_some().into());
    set("add_eos_token", vocabulary.special_ends[1].is_some().into());
    if let Some(length) = file.count(&format!("{}.context_length", architecture(file)?))? {
        set("model_max_length", length.into());
    }
    for (key, role) in ROLES {
        let token = file.count(key)?.and_then(|id| vocabulary.tokens.get(id as usize));
        if let Some(token) = token {
            set(role, token.as_str().into());
        }
    }
    if let Some(template) = file.text("tokenizer.chat_template")? {
        set("chat_template", template.into());
    }
    set("tokenizer_class", "PreTrainedTokenizerFast".into());
    Ok(format!("{:#}\n", Value::Object(map)))
}
