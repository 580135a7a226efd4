//! Loading the classifier of a run.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device};
use lrvd_burn::files::WeightStore;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};
use lrvd_models::tokenizer::TextTokenizer;

use super::locate::ModelLocation;
use crate::error::BenchError;
use crate::report::sha256_file;

/// Configuration, tokenizer and identity of a pretrained model.
pub struct Backbone {
    /// Where it is.
    pub location: ModelLocation,
    /// Its configuration.
    pub config: DebertaConfig,
    /// Its tokenizer.
    pub tokenizer: TextTokenizer,
    /// SHA-256 of every weight file, by file name.
    pub hashes: BTreeMap<String, String>,
}

impl Backbone {
    /// Reads everything but the weights.
    ///
    /// # Errors
    ///
    /// [`BenchError`] naming the file that is missing or wrong.
    pub fn open(location: ModelLocation) -> Result<Self, BenchError> {
        let config = DebertaConfig::read(&location.folder.join("config.json"))?;
        let tokenizer = TextTokenizer::from_dir(&location.folder)?;
        tokenizer.check_vocab(config.vocab_size)?;
        let store = WeightStore::open(&location.folder)?;
        let mut hashes = BTreeMap::new();
        for file in store.files() {
            let name = file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
            hashes.insert(name, sha256_file(file)?);
        }
        Ok(Self { location, config, tokenizer, hashes })
    }

    /// The configuration with another head and, if `dropout` is off, without dropout.
    pub fn config_for(&self, labels: usize, dropout: bool) -> DebertaConfig {
        let names = (0..labels).map(|i| format!("LABEL_{i}")).collect();
        let mut config = self.config.clone().with_labels(names);
        if !dropout {
            config.hidden_dropout_prob = 0.0;
            config.attention_probs_dropout_prob = 0.0;
            config.pooler_dropout = 0.0;
            config.cls_dropout = 0.0;
        }
        config
    }
}

/// Builds the classifier of `backbone` with `labels` outputs: encoder from the checkpoint, head
/// from the checkpoint where it fits and from `seed` where the checkpoint has none.
///
/// # Errors
///
/// [`BenchError::Load`] listing every tensor that is missing, left over, mis-shaped or not finite.
pub fn load_classifier(
    backbone: &Backbone,
    labels: usize,
    dropout: bool,
    seed: u64,
    device: &Device,
    dtype: DType,
) -> Result<DebertaClassifier, BenchError> {
    let config = backbone.config_for(labels, dropout);
    let store = WeightStore::open(&backbone.location.folder)?;
    Ok(DebertaClassifier::from_pretrained(&store, &config, NoiseKey::new(seed), device, dtype)?.0)
}
