//! Settings in the JSON files of a tokenizer's folder, and the special tokens that are put around every text.
//!
//! `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` name the special tokens, the padding
//! side, and switches of the conversions from other files than `tokenizer.json`. All are optional. Where two name the same thing, the one
//! listed first wins.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Encoding, PostProcessor, Token, Tokenizer};

use crate::error::{Error, Result};
use crate::json::{JsonObject, ranged};

/// Ids of the tokens with a special part, where the tokenizer has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialTokens {
    /// Begin of a sequence.
    pub bos: Option<u32>,
    /// End of a sequence.
    pub eos: Option<u32>,
    /// First token; its hidden state is classified.
    pub cls: Option<u32>,
    /// Ends a text.
    pub sep: Option<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
    /// Hidden token in masked-language modelling.
    pub mask: Option<u32>,
}

/// A special part, its key in the files, and the usual names of its token.
pub(super) struct Role {
    pub(super) key: &'static str,
    /// Names tried when no file gives one; the first is what a DeBERTa conversion uses.
    pub(super) usual: &'static [&'static str],
}

/// In the order of the fields of [`SpecialTokens`].
pub(super) const ROLES: [Role; 7] = [
    Role { key: "bos_token", usual: &["[CLS]", "<s>"] },
    Role { key: "eos_token", usual: &["[SEP]", "</s>"] },
    Role { key: "cls_token", usual: &["[CLS]"] },
    Role { key: "sep_token", usual: &["[SEP]"] },
    Role { key: "pad_token", usual: &["[PAD]", "<pad>"] },
    Role { key: "unk_token", usual: &["[UNK]", "<unk>"] },
    Role { key: "mask_token", usual: &["[MASK]", "<mask>"] },
];

/// Settings of the files; keys of `tokenizer_config.json` have the names of their fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    /// Lower-case the text first (conversions only).
    pub(super) do_lower_case: Option<bool>,
    /// Take accents off (conversion from `vocab.txt` only).
    pub(super) strip_accents: Option<bool>,
    /// Put spaces around CJK characters (conversion from `vocab.txt` only).
    pub(super) tokenize_chinese_chars: Option<bool>,
    /// Put a space in front of a text (conversion from `vocab.json` only).
    pub(super) add_prefix_space: Option<bool>,
    /// Cut at punctuation (conversion from `spm.model` only).
    pub(super) split_by_punct: Option<bool>,
    /// Prepend the token that starts a text.
    #[serde(rename = "add_bos_token")]
    pub(super) add_bos: Option<bool>,
    /// Append the token that ends a text.
    #[serde(rename = "add_eos_token")]
    pub(super) add_eos: Option<bool>,
    pub(super) truncation_side: Option<Side>,
    #[serde(deserialize_with = "length")]
    pub(super) model_max_length: Option<usize>,
    /// Moved to [`added`](Self::added) after reading.
    pub(super) added_tokens_decoder: BTreeMap<u32, AddedToken>,
    /// Key of the role → file that names it, and the token.
    #[serde(skip)]
    pub(super) names: BTreeMap<&'static str, (PathBuf, String)>,
    /// Added tokens by id, with the file that lists them.
    #[serde(skip)]
    pub(super) added: BTreeMap<u32, (PathBuf, AddedToken)>,
}

/// Side of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    Left,
    Right,
}

/// Reads a length. From 10⁹ on it means "no limit": the files then hold 1e30.
fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let length = ranged(deserializer, 1.0..=f64::MAX, "a number of at least 1")?;
    Ok((length < 1e9).then_some(length as usize))
}

impl Settings {
    /// Reads the files of a folder that are there.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        fn open(file: &Path) -> Result<Option<JsonObject<'_>>> {
            match JsonObject::open(file) {
                Err(Error::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
                object => object.map(Some),
            }
        }
        let names = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];
        let [config, map, added] = names.map(|name| folder.join(name));
        let mut settings = open(&config)?.map_or_else(|| Ok(Self::default()), Self::new)?;
        if let Some(map) = open(&map)? {
            settings.take_names(&map)?;
        }
        if let Some(added) = open(&added)? {
            settings.take_added(&added)?;
        }
        Ok(settings)
    }

    /// Parses the text of a `tokenizer_config.json`; `file` is only named in errors.
    pub(super) fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::new(JsonObject::parse(text, file)?)
    }

    fn new(mut json: JsonObject<'_>) -> Result<Self> {
        json.fill(Value::Null);
        let mut settings: Self = json.parse_map(json.map.clone())?;
        settings.take_names(&json)?;
        let tokens = std::mem::take(&mut settings.added_tokens_decoder);
        settings.added =
            tokens.into_iter().map(|(id, token)| (id, (json.file.into(), token))).collect();
        Ok(settings)
    }

    /// Token of the role `key`: as the files name it, else its usual name number `usual`.
    pub(super) fn name(&self, key: &str, usual: usize) -> Option<&str> {
        let named = self.names.get(key).map(|(_, name)| name.as_str());
        named.or_else(|| ROLES.iter().find(|role| role.key == key)?.usual.get(usual).copied())
    }

    fn take_names(&mut self, json: &JsonObject<'_>) -> Result<()> {
        for Role { key, .. } in &ROLES {
            let Some(token) = json.get(key) else { continue };
            let name = token_text(token).ok_or_else(|| json.wrong(key, "a token"))?;
            self.names.entry(key).or_insert_with(|| (json.file.into(), name.to_owned()));
        }
        Ok(())
    }

    fn take_added(&mut self, json: &JsonObject<'_>) -> Result<()> {
        for (token, id) in &json.map {
            let id = u32::deserialize(id).map_err(|_| json.wrong(token, "an id"))?;
            let special = self.names.values().any(|(_, name)| name == token)
                || ROLES.iter().any(|role| role.usual.contains(&token.as_str()));
            let token = AddedToken::from(token.clone(), special);
            self.added.entry(id).or_insert_with(|| (json.file.into(), token));
        }
        Ok(())
    }
}

fn token_text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// A token and its id.
type Named = (String, u32);

/// `<s> a </s>` and `<s> a </s> <s> b </s>` with type ids 0 and 1 as in a `tokenizer.json`, without absent tokens; null
/// without any. `again` puts the first token before the second text too.
pub(crate) fn template_json(bos: Option<&Named>, eos: Option<&Named>, again: bool) -> Value {
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let part = |text: &str, kind: u32, before: Option<&Named>| {
        let token = |(name, _): &Named| json!({"SpecialToken": {"id": name, "type_id": kind}});
        let own = json!({"Sequence": {"id": text, "type_id": kind}});
        before.map(token).into_iter().chain([own]).chain(eos.map(token)).collect::<Vec<_>>()
    };
    let single = part("A", 0, bos);
    let pair = [single.clone(), part("B", 1, bos.filter(|_| again))].concat();
    let special: Map<String, Value> = bos
        .into_iter()
        .chain(eos)
        .map(|(name, id)| (name.clone(), json!({"id": name, "ids": [id], "tokens": [name]})))
        .collect();
    json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special})
}

/// As [`template_json`], for the engine; none without any token.
pub(super) fn template(
    bos: Option<&Named>,
    eos: Option<&Named>,
    again: bool,
    file: &Path,
) -> Result<Option<PostProcessorWrapper>> {
    let json = template_json(bos, eos, again);
    let template = Option::<TemplateProcessing>::deserialize(json).map_err(Error::json(file))?;
    Ok(template.map(PostProcessorWrapper::from))
}

/// The template of a `tokenizer.json` under the settings of `tokenizer_config.json`: `add_bos_token` and
/// `add_eos_token` decide whether a text starts and ends with these tokens, as in transformers. Without a setting the
/// template stays, as does one that agrees with the settings.
pub(super) fn with_bos_eos(
    own: Option<PostProcessorWrapper>,
    engine: &Tokenizer,
    settings: &Settings,
    special: SpecialTokens,
    file: &Path,
) -> Result<Option<PostProcessorWrapper>> {
    if settings.add_bos.is_none() && settings.add_eos.is_none() {
        return Ok(own);
    }
    let found = match &own {
        Some(own) => adds_bos_eos(own, special, file)?,
        None => [false, false],
    };
    let ends = [settings.add_bos.unwrap_or(found[0]), settings.add_eos.unwrap_or(found[1])];
    if ends == found {
        return Ok(own);
    }
    let token = |add: bool, id: Option<u32>, role: &str| {
        if !add {
            return Ok(None);
        }
        let named = id.and_then(|id| Some((engine.id_to_token(id)?, id)));
        let expected = "a token, which the settings put around every text";
        named.map(Some).ok_or_else(|| Error::format(file, role, expected, "nothing"))
    };
    let bos = token(ends[0], special.bos, "bos_token")?;
    let eos = token(ends[1], special.eos, "eos_token")?;
    template(bos.as_ref(), eos.as_ref(), true, file)
}

/// `[bos, eos]`: `true` if a template puts the start-of-text token before a text, the end-of-text token after it.
fn adds_bos_eos(
    template: &PostProcessorWrapper,
    special: SpecialTokens,
    file: &Path,
) -> Result<[bool; 2]> {
    /// Of no token.
    const TEXT: u32 = u32::MAX;
    let text = Encoding::from_tokens(vec![Token::new(TEXT, "a".to_owned(), (0, 1))], 0);
    let whole =
        template.process(text, None, true).map_err(Error::library("try the template", file))?;
    let ids = whole.get_ids();
    let at = ids.iter().position(|&id| id == TEXT).unwrap_or(0);
    let has = |ids: &[u32], token: Option<u32>| token.is_some_and(|token| ids.contains(&token));
    Ok([has(&ids[..at], special.bos), has(ids.get(at + 1..).unwrap_or(&[]), special.eos)])
}

/// An added token that cannot have the `id` that its file gives it.
pub(super) fn wrong_id(file: &Path, token: &str, id: impl Display, place: u32) -> Error {
    let expected = format!("{place}, its place in the vocabulary");
    Error::format(file, format!("id of token {token}"), expected, id)
}

/// A token that is named for a role and is not in the vocabulary.
pub(super) fn missing_token(file: &Path, token: &str, role: &str) -> Error {
    Error::format(file, role, "a token of the vocabulary", format_args!("`{token}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Settings> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Settings::read(folder.path())
    }

    #[test]
    fn the_configuration_wins_over_the_map() {
        let config = r#"{"pad_token": {"content": "<p>"}, "cls_token": null, "truncation_side": "left",
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
        assert_eq!(settings.truncation_side, Some(Side::Left));
        assert_eq!(settings.model_max_length, None);
        assert_eq!(settings.do_lower_case, Some(true));
        assert!(settings.added[&9].1.lstrip);
        assert_eq!(settings.added[&10].1, AddedToken::from("[MASK]", true));
    }

    #[test]
    fn wrong_values_name_file_and_key() {
        for (text, key) in [
            (r#"{"truncation_side": "up"}"#, "`truncation_side`"),
            (r#"{"do_lower_case": "no"}"#, "`do_lower_case`"),
            (r#"{"model_max_length": -1}"#, "`model_max_length`"),
            (r#"{"pad_token": 3}"#, "`pad_token`"),
            (r#"{"added_tokens_decoder": {"7": {}}}"#, "`added_tokens_decoder.7.content`"),
            (r#"{"added_tokens_decoder": {"x": {}}}"#, "`added_tokens_decoder"),
            ("[]", "invalid JSON in"),
        ] {
            let error = read(&[("tokenizer_config.json", text)]).unwrap_err().to_string();
            assert!(error.contains("tokenizer_config.json`") && error.contains(key), "{error}");
        }
    }
}
