//! The conversion that a SentencePiece model file needs.

use std::path::Path;

use tokenizers::Tokenizer;

use super::settings::Settings;
use super::spm::{ModelType, SpmModel};
use super::{bpe, unigram};
use crate::error::{Error, Result};

/// Reads a SentencePiece model and converts it.
pub(super) fn load(file: &Path, settings: &Settings) -> Result<Tokenizer> {
    let bytes = std::fs::read(file).map_err(Error::read(file))?;
    let model = SpmModel::parse(&bytes, file)?;
    match model.trainer.model_type {
        ModelType::Unigram => unigram::convert(&model, file, settings),
        ModelType::Bpe => bpe::convert(&model, file, settings),
        other => {
            let key = "trainer_spec.model_type";
            Err(Error::unsupported(file, key, other.as_str(), "UNIGRAM, BPE"))
        }
    }
}
