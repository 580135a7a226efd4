//! The file, and its weights under Hugging Face's names.

use std::path::Path;

use lrvd_burn::files::{GgufFile, WeightStore};

use super::config::{ROPE_FACTORS, config_json};
use super::names::{heads, hugging_face_name, rows_in_pairs};
use super::tokenizer::{TokenizerFiles, tokenizer_files};
use crate::error::Result;
use crate::llama::config::LlamaConfig;
use crate::tokenizer::TextTokenizer;

/// A Llama in a GGUF file. Weights are read at first use.
#[derive(Debug)]
pub struct GgufModel {
    file: GgufFile,
    config: LlamaConfig,
    config_json: String,
}

impl GgufModel {
    /// Whether `path` is a file with the ending `.gguf`.
    pub fn is_at(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending == "gguf") && path.is_file()
    }

    /// Opens the file and reads its configuration.
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let config_json = config_json(&file)?;
        let config = LlamaConfig::parse(config_json.as_bytes(), path)?;
        Ok(Self { file, config, config_json })
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The text of a `config.json` for this model.
    pub fn config_json(&self) -> &str {
        &self.config_json
    }

    /// The texts of the tokenizer's files.
    pub fn tokenizer_files(&self) -> Result<TokenizerFiles> {
        tokenizer_files(&self.file)
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Result<TextTokenizer> {
        let files = self.tokenizer_files()?;
        let (text, settings) = (files.tokenizer.as_bytes(), files.settings.as_bytes());
        TextTokenizer::from_texts(text, settings, self.file.path())
    }

    /// The weights under Hugging Face's names, quantised ones in single precision.
    pub fn weights(&self) -> Result<WeightStore> {
        let place = |name: &str, shape: &[usize]| {
            let name = (name != ROPE_FACTORS).then(|| hugging_face_name(name))?;
            let path = name.strip_suffix(".weight");
            let heads = path.and_then(|path| heads(path, &self.config));
            let rows = shape.first().zip(heads).and_then(|(&n, heads)| rows_in_pairs(n, heads));
            Some((name, rows))
        };
        Ok(WeightStore::open(self.file.path())?.map(place)?)
    }
}
