//! The conversion that a SentencePiece model file needs.

use std::path::Path;

use tokenizers::Tokenizer;

use super::error::TokenizerError;
use super::settings::Settings;
use super::spm::{ModelType, SpmModel};
use super::{bpe, unigram};

/// Reads a SentencePiece model and converts it.
pub(super) fn load(file: &Path, settings: &Settings) -> Result<Tokenizer, TokenizerError> {
    let bytes =
        std::fs::read(file).map_err(|source| TokenizerError::Read { file: file.into(), source })?;
    let model = SpmModel::parse(&bytes)
        .map_err(|source| TokenizerError::Spm { file: file.into(), source })?;
    match model.trainer.model_type {
        ModelType::Unigram => unigram::convert(&model, file, settings),
        ModelType::Bpe => bpe::convert(&model, file, settings),
        other => Err(TokenizerError::Unsupported {
            file: file.into(),
            key: "trainer_spec.model_type".into(),
            found: other.as_str().into(),
            supported: "UNIGRAM, BPE",
        }),
    }
}
