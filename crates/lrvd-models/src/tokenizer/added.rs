//! Special tokens in the engine, with the ids they had.

use std::path::Path;

use tokenizers::{AddedToken, Tokenizer};

use super::error::TokenizerError;
use super::settings::Settings;

/// Adds `tokens`, and refuses if one that the folder lists did not get the id that it lists.
pub(super) fn install(
    tokenizer: &mut Tokenizer,
    tokens: Vec<AddedToken>,
    n_pieces: u32,
    file: &Path,
    settings: &Settings,
) -> Result<(), TokenizerError> {
    tokenizer.add_tokens(tokens).map_err(TokenizerError::library("add special tokens", file))?;
    for (&wanted, (list, token)) in &settings.added {
        let found = tokenizer.token_to_id(&token.content).unwrap_or(n_pieces);
        if found != wanted {
            let token = token.content.clone();
            return Err(TokenizerError::AddedTokenId { file: list.clone(), token, wanted, found });
        }
    }
    Ok(())
}

/// The token that plays `role`, with its id.
pub(super) fn special(
    tokenizer: &Tokenizer,
    token: &str,
    role: &'static str,
    file: &Path,
) -> Result<(String, u32), TokenizerError> {
    let token = token.to_owned();
    match tokenizer.token_to_id(&token) {
        Some(id) => Ok((token, id)),
        None => Err(TokenizerError::MissingToken { file: file.into(), token, role }),
    }
}

/// The engine refused the template.
pub(super) fn template_error(file: &Path, message: String) -> TokenizerError {
    TokenizerError::library("build the template", file)(message.into())
}
