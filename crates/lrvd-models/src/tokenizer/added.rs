//! Special tokens in the engine, with the ids they had.

use std::fmt::Display;
use std::path::Path;

use tokenizers::{AddedToken, Tokenizer};

use super::settings::Settings;
use super::spm::{Piece, SpmModel};
use crate::error::{Error, Result};

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
