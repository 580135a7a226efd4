//! The small JSON files beside a vocabulary.
//!
//! `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` name the special tokens, the padding
//! side, and switches of the conversion from `spm.model`. All are optional. Where two name the same thing, the one
//! listed first wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::error::TokenizerError;
use super::options::{PaddingSide, TruncationSide};

/// Ids of the tokens with a special part, where the tokenizer has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialTokens {
    /// Begin of a sequence.
    pub bos: Option<u32>,
    /// End of a sequence.
    pub eos: Option<u32>,
    /// Stands first; its hidden state is classified.
    pub cls: Option<u32>,
    /// Ends a text.
    pub sep: Option<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
    /// Stands for unknown text.
    pub unk: Option<u32>,
    /// Stands for a hidden token in masked-language modelling.
    pub mask: Option<u32>,
}

/// A special part, its key in the files, and the usual names of its token.
pub(super) struct Role {
    pub(super) key: &'static str,
    /// Names tried when no file gives one; the first is what a DeBERTa conversion uses.
    pub(super) usual: &'static [&'static str],
}

/// In the order in which [`SpecialTokens::from_list`] takes them.
pub(super) const ROLES: [Role; 7] = [
    Role { key: "bos_token", usual: &["[CLS]", "<s>"] },
    Role { key: "eos_token", usual: &["[SEP]", "</s>"] },
    Role { key: "cls_token", usual: &["[CLS]"] },
    Role { key: "sep_token", usual: &["[SEP]"] },
    Role { key: "pad_token", usual: &["[PAD]", "<pad>"] },
    Role { key: "unk_token", usual: &["[UNK]", "<unk>"] },
    Role { key: "mask_token", usual: &["[MASK]", "<mask>"] },
];

impl SpecialTokens {
    /// Ids in the order of [`ROLES`].
    pub(super) fn from_list(ids: [Option<u32>; 7]) -> Self {
        let [bos, eos, cls, sep, pad, unk, mask] = ids;
        Self { bos, eos, cls, sep, pad, unk, mask }
    }
}

/// What the files say, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// Lower-case the text first (conversion from `spm.model` only).
    pub(super) do_lower_case: bool,
    /// Cut at punctuation (conversion from `spm.model` only).
    pub(super) split_by_punct: bool,
    /// Put the token that starts a text in front.
    pub(super) add_bos: Option<bool>,
    /// Put the token that ends a text behind it.
    pub(super) add_eos: Option<bool>,
    pub(super) padding_side: Option<PaddingSide>,
    pub(super) truncation_side: Option<TruncationSide>,
    pub(super) model_max_length: Option<usize>,
    /// Key of the role → file that names it, and the token.
    pub(super) names: BTreeMap<&'static str, (PathBuf, String)>,
    /// Added tokens by id, with the file that lists them.
    pub(super) added: BTreeMap<u32, (PathBuf, AddedToken)>,
}

/// Lengths from here on stand for "no limit": the files then hold 1e30.
const NO_LIMIT: f64 = 1e9;

impl Settings {
    /// Reads what is there in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, TokenizerError> {
        let mut settings = Self::default();
        let file = folder.join("tokenizer_config.json");
        if let Some(map) = read_object(&file)? {
            settings.take_config(&file, &map)?;
        }
        let file = folder.join("special_tokens_map.json");
        if let Some(map) = read_object(&file)? {
            settings.take_names(&file, &map)?;
        }
        let file = folder.join("added_tokens.json");
        if let Some(map) = read_object(&file)? {
            settings.take_added(&file, &map)?;
        }
        Ok(settings)
    }

    /// Of the text of a `tokenizer_config.json`; `file` is only named in errors.
    pub(super) fn parse(text: &[u8], file: &Path) -> Result<Self, TokenizerError> {
        let map = serde_json::from_slice(text)
            .map_err(|source| TokenizerError::Json { file: file.into(), source })?;
        let mut settings = Self::default();
        settings.take_config(file, &map)?;
        Ok(settings)
    }

    fn take_config(&mut self, file: &Path, map: &Map<String, Value>) -> Result<(), TokenizerError> {
        self.take_names(file, map)?;
        self.do_lower_case = read_bool(file, map, "do_lower_case")?.unwrap_or(false);
        self.split_by_punct = read_bool(file, map, "split_by_punct")?.unwrap_or(false);
        self.add_bos = read_bool(file, map, "add_bos_token")?;
        self.add_eos = read_bool(file, map, "add_eos_token")?;
        self.padding_side =
            read_side(file, map, "padding_side", [PaddingSide::Left, PaddingSide::Right])?;
        self.truncation_side =
            read_side(file, map, "truncation_side", [TruncationSide::Left, TruncationSide::Right])?;
        self.model_max_length = match present(map, "model_max_length") {
            None => None,
            Some(value) => match value.as_f64() {
                Some(length) if length >= 1.0 => (length < NO_LIMIT).then_some(length as usize),
                _ => return Err(wrong(file, "model_max_length", "a positive number", value)),
            },
        };
        if let Some(value) = present(map, "added_tokens_decoder") {
            let wanted = "a map from ids to tokens";
            let tokens = value
                .as_object()
                .ok_or_else(|| wrong(file, "added_tokens_decoder", wanted, value))?;
            for (id, token) in tokens {
                let id = id.parse().map_err(|_| wrong(file, id, "an id", token))?;
                let token = serde_json::from_value(token.clone())
                    .map_err(|source| TokenizerError::Json { file: file.into(), source })?;
                self.added.insert(id, (file.into(), token));
            }
        }
        Ok(())
    }

    fn take_names(&mut self, file: &Path, map: &Map<String, Value>) -> Result<(), TokenizerError> {
        for role in &ROLES {
            let Some(value) = present(map, role.key) else { continue };
            let name = value.as_str().or_else(|| value.get("content")?.as_str());
            let name = name.ok_or_else(|| wrong(file, role.key, "a token", value))?;
            self.names.entry(role.key).or_insert_with(|| (file.into(), name.to_owned()));
        }
        Ok(())
    }

    fn take_added(&mut self, file: &Path, map: &Map<String, Value>) -> Result<(), TokenizerError> {
        for (token, id) in map {
            let found = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = found.ok_or_else(|| wrong(file, token, "an id", id))?;
            let special = self.names.values().any(|(_, name)| name == token)
                || ROLES.iter().any(|role| role.usual.contains(&token.as_str()));
            let token = AddedToken::from(token.clone(), special);
            self.added.entry(id).or_insert_with(|| (file.into(), token));
        }
        Ok(())
    }
}

/// The object in a file, or `None` if there is no such file.
fn read_object(file: &Path) -> Result<Option<Map<String, Value>>, TokenizerError> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TokenizerError::Read { file: file.into(), source }),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| TokenizerError::Json { file: file.into(), source })
}

/// The value of a key, unless it is null.
fn present<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

fn read_bool(
    file: &Path,
    map: &Map<String, Value>,
    key: &str,
) -> Result<Option<bool>, TokenizerError> {
    present(map, key)
        .map(|value| value.as_bool().ok_or_else(|| wrong(file, key, "true or false", value)))
        .transpose()
}

fn read_side<T>(
    file: &Path,
    map: &Map<String, Value>,
    key: &str,
    [left, right]: [T; 2],
) -> Result<Option<T>, TokenizerError> {
    match present(map, key) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some("left") => Ok(Some(left)),
            Some("right") => Ok(Some(right)),
            _ => Err(wrong(file, key, "`left` or `right`", value)),
        },
    }
}

fn wrong(file: &Path, key: &str, wanted: &'static str, found: &Value) -> TokenizerError {
    TokenizerError::Value { file: file.into(), key: key.into(), wanted, found: found.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Settings, TokenizerError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Settings::read(folder.path())
    }

    #[test]
    fn an_empty_folder_says_nothing() {
        let settings = read(&[]).unwrap();
        assert!(settings.names.is_empty() && settings.added.is_empty());
        assert_eq!((settings.padding_side, settings.model_max_length), (None, None));
    }

    #[test]
    fn the_configuration_wins_over_the_map() {
        let config = r#"{"pad_token": {"content": "<p>"}, "cls_token": null, "padding_side": "left",
            "model_max_length": 1e30, "do_lower_case": true,
            "added_tokens_decoder": {"9": {"content": "<x>", "lstrip": true, "rstrip": false,
                "normalized": false, "single_word": false, "special": true}}}"#;
        let settings = read(&[
            ("tokenizer_config.json", config),
            ("special_tokens_map.json", r#"{"pad_token": "<q>", "cls_token": "<c>"}"#),
            ("added_tokens.json", r#"{"<other>": 9, "[MASK]": 10}"#),
        ])
        .unwrap();
        assert_eq!(settings.names["pad_token"].1, "<p>");
        assert_eq!(settings.names["cls_token"].1, "<c>");
        assert_eq!(settings.padding_side, Some(PaddingSide::Left));
        assert_eq!(settings.model_max_length, None);
        assert!(settings.do_lower_case);
        assert!(settings.added[&9].1.lstrip);
        assert_eq!(settings.added[&10].1, AddedToken::from("[MASK]", true));
    }

    #[test]
    fn wrong_values_name_file_and_key() {
        for (text, key) in [
            (r#"{"padding_side": "up"}"#, "padding_side"),
            (r#"{"do_lower_case": "no"}"#, "do_lower_case"),
            (r#"{"model_max_length": -1}"#, "model_max_length"),
            (r#"{"pad_token": 3}"#, "pad_token"),
        ] {
            let message = read(&[("tokenizer_config.json", text)]).unwrap_err().to_string();
            assert!(
                message.contains("tokenizer_config.json") && message.contains(key),
                "{message}"
            );
        }
        assert!(matches!(
            read(&[("tokenizer_config.json", "[]")]),
            Err(TokenizerError::Json { .. })
        ));
    }
}
