//! Special tokens: added to the engine under their ids, and put around every text by a template.

use std::fmt::Display;
use std::path::Path;

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Encoding, PostProcessor, Token, Tokenizer};

use super::settings::{Settings, SpecialTokens};
use super::spm::{Piece, SpmModel};
use crate::error::{Error, Result};

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
pub(super) fn with_ends(
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
        Some(own) => adds_ends(own, special, file)?,
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

/// Whether a template puts the start-of-text token before a text, and the end-of-text token after it.
fn adds_ends(
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

/// Adds the pieces that `added` makes tokens of, then what the folder lists, in the order of their ids, then the token
/// `last` unless it is among them. An error if a listed token does not get its id.
pub(super) fn add_tokens(
    tokenizer: &mut Tokenizer,
    model: &SpmModel,
    file: &Path,
    settings: &Settings,
    added: impl Fn(&Piece) -> Option<AddedToken>,
    last: Option<&str>,
) -> Result<()> {
    let n_pieces = model.pieces.len() as u32;
    let mut tokens = Vec::new();
    for (id, piece) in (0u32..).zip(&model.pieces) {
        let listed = settings.added.get(&id).filter(|(_, token)| token.content == piece.text);
        tokens.extend(listed.map(|(_, token)| token.clone()).or_else(|| added(piece)));
    }
    tokens.extend(settings.added.range(n_pieces..).map(|(_, (_, token))| token.clone()));
    let last = last.filter(|last| !tokens.iter().any(|token| token.content == *last));
    tokens.extend(last.map(|last| AddedToken::from(last, true)));
    tokenizer.add_tokens(tokens).map_err(Error::library("add special tokens", file))?;
    for (&expected, (list, token)) in &settings.added {
        let found = tokenizer.token_to_id(&token.content).unwrap_or(n_pieces);
        if found != expected {
            return Err(wrong_id(list, &token.content, expected, found));
        }
    }
    Ok(())
}

/// An added token that cannot have the `id` that its file gives it.
pub(super) fn wrong_id(file: &Path, token: &str, id: impl Display, place: u32) -> Error {
    let expected = format!("{place}, its place in the vocabulary");
    Error::format(file, format!("id of token {token}"), expected, id)
}

/// The token that plays `role`, with its id.
pub(super) fn special(
    tokenizer: &Tokenizer,
    token: &str,
    role: &str,
    file: &Path,
) -> Result<(String, u32)> {
    let token = token.to_owned();
    match tokenizer.token_to_id(&token) {
        Some(id) => Ok((token, id)),
        None => Err(missing_token(file, &token, role)),
    }
}

/// A token that is named for a role and is not in the vocabulary.
pub(super) fn missing_token(file: &Path, token: &str, role: &str) -> Error {
    Error::format(file, role, "a token of the vocabulary", format_args!("`{token}`"))
}
