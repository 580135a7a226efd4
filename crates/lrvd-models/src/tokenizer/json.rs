//! A `tokenizer.json` that can be used as it is.
//!
//! The `tokenizers` library reads the file itself. It trusts some parts that a damaged file can hold and then panics
//! while encoding, only warns about ids that do not fit, and can cut text at random. Such files are errors here,
//! before a text is encoded.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizerWrapper, Tokenizer,
};

use super::added::wrong_id;
use super::growth::Growth;
use crate::config_reader::quoted;
use crate::error::{Error, Result};

/// Reads and checks a `tokenizer.json`.
pub(super) fn load(file: &Path) -> Result<Tokenizer> {
    parse(&std::fs::read(file).map_err(Error::read(file))?, file)
}

/// As [`load`], from the text of a file, which is only named in errors.
pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<Tokenizer> {
    let root: Value = serde_json::from_slice(bytes).map_err(Error::json(file))?;
    Growth::of(file, &root["normalizer"], &root["pre_tokenizer"])?;
    check_templates(file, &root["post_processor"])?;
    let dropout = &root["model"]["dropout"];
    if dropout.as_f64().is_some_and(|rate| rate > 0.0) {
        let supported = "null or 0: a text has one encoding";
        return Err(Error::unsupported(file, "model.dropout", dropout, supported));
    }
    let tokenizer =
        Tokenizer::from_bytes(bytes).map_err(|error| unreadable(file, &root, &error))?;
    check_ids(file, &root["added_tokens"], &tokenizer)?;
    Ok(tokenizer)
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
                other => quoted(other),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn load_text(text: &str) -> Result<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokenizer.json");
        std::fs::write(&file, text).unwrap();
        load(&file)
    }

    fn tokenizer(parts: &str) -> String {
        let model =
            r#""model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}"#;
        format!("{{{parts}{model}}}")
    }

    #[test]
    fn a_plain_file_loads() {
        let loaded = load_text(&tokenizer("")).unwrap();
        assert_eq!(loaded.encode("a", false).unwrap().get_ids(), [1]);
    }

    #[test]
    fn files_that_would_panic_or_mislead_later_are_errors() {
        let template = |piece: &str| {
            tokenizer(&format!(
                r#""post_processor": {{"type": "TemplateProcessing", "single": [{piece}], "pair": [], "special_tokens": {{}}}}, "#
            ))
        };
        let steps = |step: &str| {
            tokenizer(&format!(
                r#""normalizer": {{"type": "Sequence", "normalizers": [{step}]}}, "#
            ))
        };
        let added = r#""added_tokens": [{"id": 7, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "#;
        for (text, expected) in [
            (
                template(r#"{"Sequence": {"id": "B", "type_id": 0}}"#),
                "`post_processor.single` should",
            ),
            (
                template(r#"{"SpecialToken": {"id": "[X]", "type_id": 0}}"#),
                "`post_processor.single` should",
            ),
            // "AQID" is bytes 1, 2, 3: shorter than the header.
            (
                steps(r#"{"type": "Precompiled", "precompiled_charsmap": "AQID"}"#),
                "`precompiled_charsmap` should",
            ),
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
            (steps(r#"{"type": "Translate"}"#), "`normalizer` should be one"),
            (tokenizer(r#""decoder": 7, "#), "`decoder` should be one"),
            (tokenizer(r#""version": "9", "#), "cannot build a tokenizer: "),
            ("{".into(), "is not the JSON that was expected"),
        ] {
            let error = load_text(&text).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json`") && error.contains(expected), "{error}");
        }
    }
}
