//! `tokenizer.ggml.*` keys as the files of a Hugging Face tokenizer.

use std::collections::BTreeSet;

use lrvd_burn::files::GgufFile;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::tokenizer::{Piece, PieceKind, SpmModel, template_json, tokenizer_json_of_pieces};

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

/// Names that llama.cpp gives to a way of cutting.
const GPT_2: [&str; 1] = ["gpt-2"];
const SMOLLM: [&str; 1] = ["smollm"];
const LLAMA_3: [&str; 3] = ["llama-bpe", "llama3", "llama-v3"];

/// Llama 3's words.
const LLAMA_3_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

// Kinds of token.
const NORMAL: i64 = 1;
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;
const BYTE: i64 = 6;

/// The texts of a tokenizer's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerFiles {
    /// `tokenizer.json`.
    pub tokenizer: String,
    /// `tokenizer_config.json`.
    pub settings: String,
}

/// Tokens by id, with their kinds and roles.
struct Vocabulary<'a> {
    tokens: &'a [String],
    kinds: &'a [i64],
    bos: Option<usize>,
    eos: Option<usize>,
    add_bos: bool,
    add_eos: bool,
}

impl Vocabulary<'_> {
    /// Ids of the tokens that are cut out of a text before anything else, and whether they are special.
    fn added(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        self.kinds.iter().enumerate().filter_map(|(id, &kind)| match kind {
            CONTROL => Some((id, true)),
            USER_DEFINED => Some((id, false)),
            _ => None,
        })
    }
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

fn vocabulary(file: &GgufFile, begins: bool) -> Result<Vocabulary<'_>> {
    let tokens = file.texts(TOKENS)?.ok_or_else(|| file.missing(TOKENS))?;
    let kinds = file.integers(TYPES)?.ok_or_else(|| file.missing(TYPES))?;
    if kinds.len() != tokens.len() {
        return Err(file.unexpected(TYPES, "one kind for each of `tokenizer.ggml.tokens`").into());
    }
    if kinds.iter().any(|kind| !(NORMAL..=BYTE).contains(kind)) {
        return Err(file.unexpected(TYPES, "a list of numbers from 1 to 6").into());
    }
    // Rows of the embedding that no text has are filled up with names.
    let used = kinds.iter().rposition(|&kind| kind != UNUSED).map_or(0, |last| last + 1);
    let (tokens, kinds) = (&tokens[..used], &kinds[..used]);
    if tokens.iter().collect::<BTreeSet<_>>().len() != used || used == 0 {
        return Err(file.unexpected(TOKENS, "a list of different texts").into());
    }
    let id = |key: &str| -> Result<Option<usize>> {
        match file.count(key)?.map(|id| id as usize) {
            Some(id) if id >= used => Err(file.unexpected(key, "the number of a token").into()),
            found => Ok(found),
        }
    };
    for (key, _) in ROLES {
        id(key)?;
    }
    Ok(Vocabulary {
        tokens,
        kinds,
        bos: id(ROLES[0].0)?,
        eos: id(ROLES[1].0)?,
        add_bos: file.boolean("tokenizer.ggml.add_bos_token")?.unwrap_or(begins),
        add_eos: file.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
    })
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
    let (cut, whole_words) = match pre {
        _ if GPT_2.contains(&pre) => (bytes(true), false),
        _ if SMOLLM.contains(&pre) => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            (json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]}), false)
        }
        _ if LLAMA_3.contains(&pre) => {
            let words = json!({
                "type": "Split", "pattern": {"Regex": LLAMA_3_WORDS}, "behavior": "Isolated",
                "invert": false,
            });
            (json!({"type": "Sequence", "pretokenizers": [words, bytes(false)]}), true)
        }
        other => {
            return Err(Error::unsupported(file.path(), PRE, other, "gpt-2, smollm, llama-bpe"));
        }
    };
    let vocab: Map<String, Value> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), id.into()))
        .collect();
    let added: Vec<Value> = vocabulary
        .added()
        .map(|(id, special)| {
            json!({
                "id": id, "content": vocabulary.tokens[id], "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": special,
            })
        })
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": cut, "post_processor": template(vocabulary),
        "decoder": bytes(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": whole_words, "vocab": vocab, "merges": merges,
        },
    });
    Ok(format!("{tokenizer:#}\n"))
}

/// The tokens before and behind every text.
fn template(vocabulary: &Vocabulary<'_>) -> Value {
    let named = |id: Option<usize>, add: bool| {
        id.filter(|_| add).map(|id| (vocabulary.tokens[id].clone(), id as u32))
    };
    let bos = named(vocabulary.bos, vocabulary.add_bos);
    let eos = named(vocabulary.eos, vocabulary.add_eos);
    template_json(bos.as_ref(), eos.as_ref(), true)
}

/// SentencePiece's byte pairs (`tokenizer.ggml.model = llama`).
fn sentence_piece(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<String> {
    let scores = file.floats(SCORES)?.ok_or_else(|| file.missing(SCORES))?;
    if scores.len() < vocabulary.tokens.len() {
        return Err(file
            .unexpected(SCORES, "one number for each of `tokenizer.ggml.tokens`")
            .into());
    }
    let pieces = vocabulary.tokens.iter().zip(vocabulary.kinds).zip(scores);
    let piece = |((text, kind), score): ((&String, &i64), &f32)| {
        let kind = match *kind {
            UNKNOWN => PieceKind::Unknown,
            // Tokens that were added to the vocabulary are cut out first, as control tokens are.
            CONTROL | USER_DEFINED => PieceKind::Control,
            UNUSED => PieceKind::Unused,
            BYTE => PieceKind::Byte,
            _ => PieceKind::Normal,
        };
        Piece { text: text.clone(), score: *score, kind: kind.into() }
    };
    let path = file.path();
    let mut model = SpmModel::byte_pairs(pieces.map(piece).collect(), path)?;
    model.normalizer.add_dummy_prefix =
        file.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let text = |id: Option<usize>| id.map(|id| vocabulary.tokens[id].as_str());
    let ends = [
        text(vocabulary.bos).filter(|_| vocabulary.add_bos),
        text(vocabulary.eos).filter(|_| vocabulary.add_eos),
    ];
    let own: Vec<u32> =
        vocabulary.added().filter_map(|(id, special)| (!special).then_some(id as u32)).collect();
    tokenizer_json_of_pieces(&model, path, ends, &own)
}

/// The text of a `tokenizer_config.json`.
fn settings(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<String> {
    let mut map = Map::new();
    let mut set = |key: &str, value: Value| map.insert(key.to_owned(), value);
    set("add_bos_token", (vocabulary.add_bos && vocabulary.bos.is_some()).into());
    set("add_eos_token", (vocabulary.add_eos && vocabulary.eos.is_some()).into());
    if let Some(length) = file.count("llama.context_length")? {
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
