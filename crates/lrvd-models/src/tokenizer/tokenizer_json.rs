//! A `tokenizer.json` that can be used as it is.
//!
//! The `tokenizers` library reads the file itself. It trusts some parts that a damaged file can hold and then panics
//! while encoding, only warns about ids that do not fit, and can cut text at random. Such files are errors here,
//! before a text is encoded.
//!
//! Steps of `normalizer` and `pre_tokenizer` may replace a character by a longer text, one step after the other: forty
//! that each double a letter would fill any memory. [`Growth`] bounds what they make of a text by the product of what
//! one byte can become.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizerWrapper, Tokenizer,
};

use super::charsmap;
use super::settings::wrong_id;
use crate::error::{Error, Result};
use crate::json::shown;

/// Reads and checks the text of a `tokenizer.json`; `file` is only named in errors.
pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<(Tokenizer, Growth)> {
    engine(&serde_json::from_slice(bytes).map_err(Error::json(file))?, bytes, file)
}

/// As [`parse`], with the text as JSON beside it.
pub(super) fn engine(root: &Value, bytes: &[u8], file: &Path) -> Result<(Tokenizer, Growth)> {
    let growth = Growth::of(file, &root["normalizer"], &root["pre_tokenizer"])?;
    check_templates(file, &root["post_processor"])?;
    let dropout = &root["model"]["dropout"];
    if dropout.as_f64().is_some_and(|rate| rate > 0.0) {
        let supported = "null or 0: a text has one encoding";
        return Err(Error::unsupported(file, "model.dropout", dropout, supported));
    }
    let tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| unreadable(file, root, &error))?;
    check_ids(file, &root["added_tokens"], &tokenizer)?;
    Ok((tokenizer, growth))
}

/// The part of a file that the library cannot read.
fn unreadable(file: &Path, root: &Value, error: &tokenizers::Error) -> Error {
    fn of<T: DeserializeOwned>(part: &Value) -> Option<serde_json::Error> {
        T::deserialize(part).err()
    }
    type Read = fn(&Value) -> Option<serde_json::Error>;
    let parts: [(&str, Read); 6] = [
        ("model", of::<ModelWrapper>),
        ("added_tokens", of::<Option<Vec<AddedToken>>>),
        ("normalizer", of::<Option<NormalizerWrapper>>),
        ("pre_tokenizer", of::<Option<PreTokenizerWrapper>>),
        ("post_processor", of::<Option<PostProcessorWrapper>>),
        ("decoder", of::<Option<DecoderWrapper>>),
    ];
    for (key, read) in parts {
        if let Some(reason) = read(&root[key]) {
            let found = match &root[key] {
                Value::Null => "nothing".to_owned(),
                Value::Object(part) if part.contains_key("type") => {
                    format!("one of type {}", part["type"])
                }
                other => shown(other),
            };
            let expected = format!("one that the `tokenizers` library can read ({reason})");
            return Error::format(file, key, expected, found);
        }
    }
    Error::library("build a tokenizer", file)(error)
}

/// Every template names only texts and special tokens that it has.
fn check_templates(file: &Path, processor: &Value) -> Result<()> {
    for (name, texts) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        for piece in processor[name].as_array().into_iter().flatten() {
            let text = &piece["Sequence"]["id"];
            let token = &piece["SpecialToken"]["id"];
            let known_text = text.as_str().is_none_or(|id| texts.contains(&id));
            let known_token = token.as_str().is_none_or(|id| {
                let special = &processor["special_tokens"][id];
                let count = |key: &str| special[key].as_array().map(Vec::len);
                count("ids").is_some() && count("ids") == count("tokens")
            });
            if !known_text || !known_token {
                let expected = "texts that are given and tokens listed under `special_tokens`";
                let (key, found) = (format!("post_processor.{name}"), format!("`{piece}`"));
                return Err(Error::format(file, key, expected, found));
            }
        }
    }
    for part in processor["processors"].as_array().into_iter().flatten() {
        check_templates(file, part)?;
    }
    Ok(())
}

/// Added tokens got the ids that the file gives them.
fn check_ids(file: &Path, added: &Value, tokenizer: &Tokenizer) -> Result<()> {
    for entry in added.as_array().into_iter().flatten() {
        let (Some(id), Some(token)) = (entry["id"].as_u64(), entry["content"].as_str()) else {
            continue;
        };
        let found = tokenizer.token_to_id(token);
        if let Some(found) = found.filter(|&found| u64::from(found) != id) {
            return Err(wrong_id(file, token, id, found));
        }
    }
    Ok(())
}

/// Steps of a tokenizer.
const STEPS: usize = 64;
/// Times that a text may become longer.
const FACTOR: f64 = 10_000.0;
/// Bytes that may be put in front of a text.
const ADDED: f64 = 65_536.0;
/// Bytes that a text may become.
const BYTES: f64 = (256 << 20) as f64;

/// A text of `n` bytes has at most `factor · n + added` bytes after some steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Growth {
    factor: f64,
    added: f64,
    steps: usize,
}

impl Growth {
    const NONE: Self = Self { factor: 1.0, added: 0.0, steps: 0 };

    /// That of the steps in a `tokenizer.json`'s form.
    pub(super) fn of(file: &Path, normalizer: &Value, pre_tokenizer: &Value) -> Result<Self> {
        let growth = then(file, then(file, Self::NONE, normalizer)?, pre_tokenizer)?;
        let Self { factor, added, steps } = growth;
        if factor <= FACTOR && added <= ADDED && steps <= STEPS {
            return Ok(growth);
        }
        let found = format!(
            "{steps} steps that make a text up to {factor:.0} times as long and add up to {added:.0} bytes"
        );
        Err(Error::unsupported(file, "normalizer", found, "64 steps, 10000 times, 65536 bytes"))
    }

    /// Bytes of the longest text that stays short enough.
    pub(super) fn longest(&self) -> usize {
        ((BYTES - self.added) / self.factor) as usize
    }

    /// Checks that `text` stays short enough.
    pub(super) fn check(&self, file: &Path, text: &str) -> Result<()> {
        let (bytes, most) = (text.len(), self.longest());
        if bytes <= most {
            return Ok(());
        }
        Err(Error::tokenizer(file, format!("reads at most {most} bytes, a text has {bytes}")))
    }
}

/// `before`, followed by the steps of `part`.
fn then(file: &Path, before: Growth, part: &Value) -> Result<Growth> {
    let mut growth = before;
    for list in ["normalizers", "pretokenizers"] {
        for step in part[list].as_array().into_iter().flatten() {
            growth = then(file, growth, step)?;
        }
    }
    let length = |key: &str| part[key].as_str().map_or(0.0, |text| text.len() as f64);
    let (factor, added) = match part["type"].as_str().unwrap_or_default() {
        _ if part["content"].is_string() => replace(&part["pattern"], length("content")),
        _ if part["prepend"].is_string() => (1.0, length("prepend")),
        _ if part["replacement"].is_string() => {
            (length("replacement").max(1.0), length("replacement"))
        }
        _ if part["precompiled_charsmap"].is_string() => {
            let table = part["precompiled_charsmap"].as_str().unwrap_or_default();
            (charsmap::check(&charsmap::decode_base64(table, file)?, file)?, 0.0)
        }
        // The largest factors of Unicode's normal forms in UTF-8.
        "NFKC" | "NFKD" => (11.0, 0.0),
        "NFC" | "NFD" => (3.0, 0.0),
        "Lowercase" => (2.0, 0.0),
        "ByteLevel" => (2.0, 1.0),
        // Spaces around Chinese characters, NFD, lower case.
        "BertNormalizer" => (10.0, 0.0),
        _ => (1.0, 0.0),
    };
    Ok(Growth {
        factor: growth.factor * factor,
        added: growth.added * factor + added,
        steps: growth.steps + usize::from(part.is_object()),
    })
}

/// The growth by replacing a pattern by `content` bytes. A regular expression may match a byte, or nothing before it.
fn replace(pattern: &Value, content: f64) -> (f64, f64) {
    match pattern["String"].as_str().filter(|text| !text.is_empty()) {
        Some(text) => ((content / text.len() as f64).max(1.0), 0.0),
        None => (1.0 + content, content),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn tokenizer(parts: &str) -> String {
        let model =
            r#""model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}"#;
        format!("{{{parts}{model}}}")
    }

    #[test]
    fn files_that_would_panic_or_mislead_later_are_errors() {
        let template = |piece: &str| {
            tokenizer(&format!(
                r#""post_processor": {{"type": "TemplateProcessing", "single": [{piece}], "pair": [], "special_tokens": {{}}}}, "#
            ))
        };
        let table = |base64: &str| {
            tokenizer(&format!(
                r#""normalizer": {{"type": "Precompiled", "precompiled_charsmap": "{base64}"}}, "#
            ))
        };
        let (text, special) = (
            r#"{"Sequence": {"id": "B", "type_id": 0}}"#,
            r#"{"SpecialToken": {"id": "[X]", "type_id": 0}}"#,
        );
        let added = r#""added_tokens": [{"id": 7, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "#;
        for (text, expected) in [
            (template(text), "`post_processor.single` should"),
            (template(special), "`post_processor.single` should"),
            // "AQID" is bytes 1, 2, 3: shorter than the header.
            (table("AQID"), "`precompiled_charsmap` should be a trie"),
            (table("Zm9*"), "`precompiled_charsmap` should be base64, found Invalid symbol 42"),
            (
                tokenizer(added),
                "`id of token <x>` should be 2, its place in the vocabulary, found 7",
            ),
            (
                r#"{"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}}"#.into(),
                "`model.dropout` is `0.1`",
            ),
            // Parts that the library cannot read.
            ("{}".into(), "`model` should be one that the `tokenizers` library can read"),
            (r#"{"model": {"type": "WordPiece"}}"#.into(), "found one of type \"WordPiece\""),
            (tokenizer(r#""normalizer": {"type": "Translate"}, "#), "`normalizer` should be one"),
            (tokenizer(r#""decoder": 7, "#), "`decoder` should be one"),
            (tokenizer(r#""version": "9", "#), "cannot build a tokenizer: "),
            ("{".into(), "is not the JSON that was expected"),
        ] {
            let error = parse(text.as_bytes(), "tokenizer.json".as_ref()).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json`") && error.contains(expected), "{error}");
        }
    }

    fn growth(steps: &[Value]) -> Result<Growth> {
        let sequence = json!({"type": "Sequence", "normalizers": steps});
        Growth::of(Path::new("tokenizer.json"), &sequence, &Value::Null)
    }

    #[test]
    fn steps_that_grow_without_end_are_errors_and_texts_have_a_longest_length() {
        let double = json!({"type": "Replace", "pattern": {"String": "H"}, "content": "HH"});
        let pattern = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"});
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let found = growth(&[double.clone(), prepend, double.clone(), pattern]).unwrap();
        // By hand: 1 -> 2n -> 2n + 3 -> 4n + 6 -> four times that and three more.
        assert_eq!((found.factor, found.added, found.steps), (16.0, 27.0, 5));
        let huge = json!({"type": "Prepend", "prepend": "x".repeat(1 << 20)});
        let trim = json!({"type": "Strip", "strip_left": true, "strip_right": true});
        let decompose = json!({"type": "NFKD"});
        for (step, count) in [(&double, 40), (&huge, 50), (&trim, 1000), (&decompose, 5)] {
            let text = growth(&vec![step.clone(); count]).unwrap_err().to_string();
            assert!(text.contains("`tokenizer.json`: `normalizer` is"), "{text}");
        }
        let found = growth(&vec![double; 13]).unwrap();
        // 256 MiB over 8192.
        let (file, long) = (Path::new("x"), "a".repeat(32_769));
        found.check(file, &long[1..]).unwrap();
        let error = found.check(file, &long).unwrap_err().to_string();
        assert_eq!(error, "tokenizer `x` reads at most 32768 bytes, a text has 32769");
    }
}
