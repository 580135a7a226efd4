//! Why a GGUF file is no model that can be used.

use crate::config_error::ConfigError;
use crate::tokenizer::TokenizerError;

/// A GGUF file is no model that can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufModelError {
    /// The file is broken, or lacks a setting.
    #[error(transparent)]
    File(#[from] lrvd_burn::Error),
    /// The model is another one, or of sizes that make no model.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tokenizer cannot be reproduced.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}
