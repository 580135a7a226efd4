//! A `tokenizer.json` that can be used as it is.
//!
//! The `tokenizers` library reads the file itself. It trusts some parts that a damaged file can hold and then panics
//! while encoding, only warns about ids that do not fit, and can be told to cut text at random. Such files are
//! refused here, before a text is encoded.

use std::path::Path;

use serde_json::Value;
use tokenizers::Tokenizer;

use super::error::TokenizerError;
use super::growth::Growth;

/// Reads and checks a `tokenizer.json`.
pub(super) fn load(file: &Path) -> Result<Tokenizer, TokenizerError> {
    let bytes =
        std::fs::read(file).map_err(|source| TokenizerError::Read { file: file.into(), source })?;
    parse(&bytes, file)
}

/// As [`load`], from the text of a file, which is only named in errors.
pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<Tokenizer, TokenizerError> {
    let root: Value = serde_json::from_slice(bytes)
        .map_err(|source| TokenizerError::Json { file: file.into(), source })?;
    Growth::of(file, &root["normalizer"], &root["pre_tokenizer"])?;
    check_templates(file, &root["post_processor"])?;
    let dropout = &root["model"]["dropout"];
    if dropout.as_f64().is_some_and(|rate| rate > 0.0) {
        return Err(TokenizerError::Unsupported {
            file: file.into(),
            key: "model.dropout".into(),
            found: dropout.to_string(),
            supported: "null or 0: a text has one encoding",
        });
    }
    let tokenizer =
        Tokenizer::from_bytes(bytes).map_err(TokenizerError::library("build a tokenizer", file))?;
    check_ids(file, &root["added_tokens"], &tokenizer)?;
    Ok(tokenizer)
}

/// Every template names only texts and special tokens that it has.
fn check_templates(file: &Path, processor: &Value) -> Result<(), TokenizerError> {
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
                return Err(TokenizerError::Value {
                    file: file.into(),
                    key: format!("post_processor.{name}"),
                    wanted: "texts that are given and tokens listed under `special_tokens`",
                    found: piece.to_string(),
                });
            }
        }
    }
    for part in processor["processors"].as_array().into_iter().flatten() {
        check_templates(file, part)?;
    }
    Ok(())
}

/// Added tokens got the ids that the file gives them.
fn check_ids(file: &Path, added: &Value, tokenizer: &Tokenizer) -> Result<(), TokenizerError> {
    for entry in added.as_array().into_iter().flatten() {
        let (Some(id), Some(token)) = (entry["id"].as_u64(), entry["content"].as_str()) else {
            continue;
        };
        let found = tokenizer.token_to_id(token);
        if let Some(found) = found.filter(|&found| u64::from(found) != id) {
            return Err(TokenizerError::AddedTokenId {
                file: file.into(),
                token: token.into(),
                wanted: id as u32,
                found,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn load_text(text: &str) -> Result<Tokenizer, TokenizerError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokenizer.json");
        std::fs::write(&file, text).unwrap();
        load(&file)
    }

    fn tokenizer(parts: &str) -> String {
        let model =
            r#""model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}"#;
        format!(r#"{{"version": "1.0", {parts}{model}}}"#)
    }

    #[test]
    fn a_plain_file_loads() {
        let loaded = load_text(&tokenizer("")).unwrap();
        assert_eq!(loaded.encode("a", false).unwrap().get_ids(), [1]);
    }

    #[test]
    fn files_that_would_panic_or_mislead_later_are_refused() {
        let template = |piece: &str| {
            tokenizer(&format!(
                r#""post_processor": {{"type": "TemplateProcessing", "single": [{piece}], "pair": [], "special_tokens": {{}}}}, "#
            ))
        };
        let second = template(r#"{"Sequence": {"id": "B", "type_id": 0}}"#);
        assert!(matches!(load_text(&second), Err(TokenizerError::Value { .. })));
        let unlisted = template(r#"{"SpecialToken": {"id": "[X]", "type_id": 0}}"#);
        assert!(matches!(load_text(&unlisted), Err(TokenizerError::Value { .. })));
        // "AQID" is bytes 1, 2, 3: shorter than the header.
        let table = tokenizer(
            r#""normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "AQID"}]}, "#,
        );
        assert!(matches!(load_text(&table), Err(TokenizerError::CharsMap { .. })));
        let added = tokenizer(
            r#""added_tokens": [{"id": 7, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "#,
        );
        assert!(matches!(
            load_text(&added),
            Err(TokenizerError::AddedTokenId { wanted: 7, found: 2, .. })
        ));
        let random = r#"{"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}}"#;
        assert!(matches!(load_text(random), Err(TokenizerError::Unsupported { .. })));
        assert!(matches!(load_text("{"), Err(TokenizerError::Json { .. })));
        assert!(matches!(load_text("{}"), Err(TokenizerError::Library { .. })));
    }
}
