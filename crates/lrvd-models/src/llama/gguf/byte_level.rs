//! Byte-level byte-pair tokenizers (`tokenizer.ggml.model = gpt2`) as the text of a `tokenizer.json`.
//!
//! The file holds tokens and merges, and only a name for the way in which a text is cut into words first. The ways
//! that are known here are those of the published `tokenizer.json` of the models that llama.cpp's converter gives the
//! name to.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::tokenizer::{PRE, Vocabulary};
use crate::error::{Error, Result};
use crate::tokenizer::template_json;

/// Names that llama.cpp gives to a way of cutting.
const GPT_2: [&str; 1] = ["gpt-2"];
const SMOLLM: [&str; 1] = ["smollm"];
const LLAMA_3: [&str; 3] = ["llama-bpe", "llama3", "llama-v3"];

/// Llama 3's words.
const LLAMA_3_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Whether texts of this way of cutting start with a special token by default.
pub(super) fn begins(pre: &str) -> bool {
    LLAMA_3.contains(&pre)
}

/// The text of a `tokenizer.json`.
pub(super) fn tokenizer_json(
    vocabulary: &Vocabulary<'_>,
    merges: &[String],
    pre: &str,
    file: &Path,
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
            return Err(Error::unsupported(file, PRE, other, "gpt-2, smollm, llama-bpe"));
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
