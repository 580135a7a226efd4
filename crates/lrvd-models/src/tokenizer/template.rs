//! What stands before and behind every text.

use std::path::Path;

use tokenizers::processors::PostProcessorWrapper;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{Encoding, PostProcessor, Token, Tokenizer};

use super::added::template_error;
use super::error::TokenizerError;
use super::settings::{Settings, SpecialTokens};

/// `<s> a </s>` and `<s> a </s> <s> b </s>` with type ids 0 and 1, without what is none.
pub(super) fn framed(
    bos: Option<(String, u32)>,
    eos: Option<(String, u32)>,
    file: &Path,
) -> Result<TemplateProcessing, TokenizerError> {
    let part = |text: &str, kind: u32| {
        let token = |token: &Option<(String, u32)>| {
            token.as_ref().map(|(name, _)| format!("{name}:{kind}"))
        };
        let parts = [token(&bos), Some(format!("{text}:{kind}")), token(&eos)];
        parts.into_iter().flatten().collect::<Vec<String>>()
    };
    let (single, second) = (part("$A", 0), part("$B", 1));
    let library = |message| template_error(file, message);
    // Pieces are given one by one, so that a token with a colon or a space in its name is not taken apart.
    let pair = [single.clone(), second].concat();
    TemplateProcessing::builder()
        .try_single(pieces(&single))
        .map_err(&library)?
        .try_pair(pieces(&pair))
        .map_err(&library)?
        .special_tokens(bos.into_iter().chain(eos).collect::<Vec<_>>())
        .build()
        .map_err(|e| library(e.to_string()))
}

fn pieces(parts: &[String]) -> Vec<&str> {
    parts.iter().map(String::as_str).collect()
}

/// The template of a `tokenizer.json` with what `tokenizer_config.json` says of it: `add_bos_token` and
/// `add_eos_token`, where they are stated, decide whether a text starts and ends with these tokens, as in
/// transformers. What is not stated stays, and a template that does as stated already is kept as it is.
pub(super) fn stated(
    own: Option<PostProcessorWrapper>,
    engine: &Tokenizer,
    settings: &Settings,
    special: SpecialTokens,
    file: &Path,
) -> Result<Option<PostProcessorWrapper>, TokenizerError> {
    if settings.add_bos.is_none() && settings.add_eos.is_none() {
        return Ok(own);
    }
    let found = match &own {
        Some(template) => frame(template, special, file)?,
        None => [false, false],
    };
    let wanted = [settings.add_bos.unwrap_or(found[0]), settings.add_eos.unwrap_or(found[1])];
    if wanted == found {
        return Ok(own);
    }
    let token = |wanted: bool, id: Option<u32>, role: &'static str| {
        if !wanted {
            return Ok(None);
        }
        let named = id.and_then(|id| Some((engine.id_to_token(id)?, id)));
        named.map(Some).ok_or_else(|| TokenizerError::NoToken { file: file.into(), role })
    };
    let bos = token(wanted[0], special.bos, "bos_token")?;
    let eos = token(wanted[1], special.eos, "eos_token")?;
    if bos.is_none() && eos.is_none() {
        return Ok(None);
    }
    Ok(Some(framed(bos, eos, file)?.into()))
}

/// Whether a template puts the beginning-of-text token before a text, and the end-of-text token behind it.
fn frame(
    template: &PostProcessorWrapper,
    special: SpecialTokens,
    file: &Path,
) -> Result<[bool; 2], TokenizerError> {
    /// Of no token.
    const TEXT: u32 = u32::MAX;
    let text = Encoding::from_tokens(vec![Token::new(TEXT, "a".to_owned(), (0, 1))], 0);
    let whole = template
        .process(text, None, true)
        .map_err(TokenizerError::library("try the template", file))?;
    let ids = whole.get_ids();
    let at = ids.iter().position(|&id| id == TEXT).unwrap_or(0);
    let has = |ids: &[u32], token: Option<u32>| token.is_some_and(|token| ids.contains(&token));
    Ok([has(&ids[..at], special.bos), has(ids.get(at + 1..).unwrap_or(&[]), special.eos)])
}
