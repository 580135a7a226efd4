//! Reader of a `tokenizer.json`.
//!
//! The `tokenizers` library reads the file itself. It trusts some parts that a damaged file can hold and then panics
//! while encoding, only warns about ids that do not fit, and can cut text at random. Such files are errors here,
//! before a text is encoded.

use std::path::Path;

use serde_json::{Value, json};
use serde_path_to_error::Segment;
use tokenizers::Tokenizer;

use super::charsmap;
use super::settings::wrong_id;
use crate::error::{Error, Result};

/// Times that the steps of a tokenizer may lengthen a text. Published ones have up to 200.
const MAX_EXPANSION: f64 = 10_000.0;
/// Bytes that a text may become.
const MAX_BYTES: f64 = (256 << 20) as f64;

/// Reads and checks the text of a `tokenizer.json`; `file` is only named in errors.
pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<Tokenizer> {
    engine(&serde_json::from_slice(bytes).map_err(Error::json(file))?, bytes, file)
}

/// As [`parse`], with the text as JSON beside it.
pub(super) fn engine(root: &Value, bytes: &[u8], file: &Path) -> Result<Tokenizer> {
    let expansion = total_expansion([&root["normalizer"], &root["pre_tokenizer"]], file)?;
    if expansion > MAX_EXPANSION {
        let found = format!("a list of steps that make a text up to {expansion:.0} times as long");
        return Err(Error::unsupported(file, "normalizer", found, "up to 10000 times"));
    }
    check_templates(file, &root["post_processor"])?;
    let dropout = &root["model"]["dropout"];
    if dropout.as_f64().is_some_and(|rate| rate > 0.0) {
        let supported = "null or 0: a text has one encoding";
        return Err(Error::unsupported(file, "model.dropout", dropout, supported));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let tokenizer: Tokenizer = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let reason = error.inner();
        let Some(Segment::Map { key }) = error.path().iter().next() else {
            return Error::library("build a tokenizer", file)(reason);
        };
        let kind =
            root[key]["type"].as_str().map_or(String::new(), |kind| format!(" of type `{kind}`"));
        let what =
            format!("has a `{key}`{kind} that the `tokenizers` library cannot read: {reason}");
        Error::tokenizer(file, what)
    })?;
    check_ids(file, &root["added_tokens"], &tokenizer)?;
    Ok(tokenizer)
}

/// Bytes of the longest text that the steps of a tokenizer keep short enough.
pub(super) fn longest_text(tokenizer: &Tokenizer, file: &Path) -> Result<usize> {
    let normalizer = json!(tokenizer.get_normalizer());
    let pre_tokenizer = json!(tokenizer.get_pre_tokenizer());
    Ok((MAX_BYTES / total_expansion([&normalizer, &pre_tokenizer], file)?) as usize)
}

fn total_expansion(parts: [&Value; 2], file: &Path) -> Result<f64> {
    Ok(expansion(parts[0], file)? * expansion(parts[1], file)?)
}

/// Times that the steps of a part may lengthen a text: forty that each double a letter would fill any memory.
fn expansion(part: &Value, file: &Path) -> Result<f64> {
    let bytes = |text: &Value| text.as_str().map_or(0.0, |text| text.len() as f64);
    let pattern = bytes(&part["pattern"]["String"]);
    let inserted = bytes(&part["content"]) + bytes(&part["prepend"]);
    let mut times = match part["precompiled_charsmap"].as_str() {
        Some(table) => charsmap::check(table, file)?.max(1) as f64,
        None if part["type"] == "ByteLevel" => 2.0,
        None if pattern > 0.0 => (inserted / pattern).max(1.0),
        // In front of a text, or for a regular expression, which may match a byte or nothing before it.
        None => (1.0 + inserted).max(bytes(&part["replacement"])),
    };
    for list in ["normalizers", "pretokenizers"] {
        for step in part[list].as_array().into_iter().flatten() {
            times *= expansion(step, file)?;
        }
    }
    Ok(times)
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
                let key = format!("post_processor.{name}");
                let found = format!("`{piece}`");
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            ("{}".into(), "cannot build a tokenizer: "),
            (
                r#"{"model": {"type": "WordPiece"}}"#.into(),
                "has a `model` of type `WordPiece` that",
            ),
            (
                tokenizer(r#""normalizer": {"type": "Translate"}, "#),
                "has a `normalizer` of type `Translate` that the `tokenizers` library cannot read",
            ),
            (tokenizer(r#""decoder": 7, "#), "has a `decoder` that"),
            (
                tokenizer(r#""version": "9", "#),
                "cannot build a tokenizer: Unknown tokenizer version",
            ),
            ("{".into(), "invalid JSON in `"),
        ] {
            let error = parse(text.as_bytes(), "tokenizer.json".as_ref()).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json`") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn steps_that_grow_without_end_are_errors_and_texts_have_a_longest_length() {
        let double = r#"{"type": "Replace", "pattern": {"String": "H"}, "content": "HH"}"#;
        let huge = format!(r#"{{"type": "Prepend", "prepend": "{}"}}"#, "x".repeat(1 << 20));
        let read = |step: &str, count: usize| {
            let steps = vec![step; count].join(",");
            let sequence = format!(r#"{{"type": "Sequence", "normalizers": [{steps}]}}"#);
            let text = tokenizer(&format!(r#""normalizer": {sequence}, "#));
            parse(text.as_bytes(), "tokenizer.json".as_ref())
        };
        // 256 MiB over 1024.
        let doubled = read(double, 10).unwrap();
        assert_eq!(longest_text(&doubled, "tokenizer.json".as_ref()).unwrap(), 262_144);
        for (step, count) in [(double, 40), (&*huge, 1), (r#"{"type": "ByteLevel"}"#, 20)] {
            let error = read(step, count).unwrap_err().to_string();
            assert!(error.contains("`normalizer` is `a list of steps that make a text"), "{error}");
        }
    }
}
