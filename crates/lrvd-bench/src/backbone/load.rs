//! Loading the classifier of a run.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device};
use lrvd_burn::files::WeightStore;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaChoice, LlamaConfig, LlamaForCausalLm};
use lrvd_models::tokenizer::TextTokenizer;
use serde::Deserialize;

use super::locate::ModelLocation;
use crate::error::BenchError;
use crate::eval::PreparedTask;
use crate::json::read_json;
use crate::report::sha256_file;
use crate::train::TaskModel;

/// What published experiments adapt in a language model, by the end of the path.
pub const LLAMA_TARGETS: [&str; 3] = ["q_proj", "v_proj", "lm_head"];

/// A model's kind, with its configuration.
#[derive(Clone, Debug)]
pub enum Architecture {
    /// DeBERTa-v2 or v3: an encoder that gets a head.
    Deberta(DebertaConfig),
    /// Llama: a decoder that answers by the logits of a few tokens.
    Llama(LlamaConfig),
}

/// Configuration, tokenizer and identity of a pretrained model.
pub struct Backbone {
    /// Where it is.
    pub location: ModelLocation,
    /// Its kind and configuration.
    pub architecture: Architecture,
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
        let file = location.folder.join("config.json");
        let Kind { model_type } = read_json(&file)?;
        let (architecture, vocabulary) = match model_type.as_str() {
            "llama" => {
                let config = LlamaConfig::read(&file)?;
                let vocabulary = config.vocab_size;
                (Architecture::Llama(config), vocabulary)
            }
            // Every other kind is refused by name in there.
            _ => {
                let config = DebertaConfig::read(&file)?;
                let vocabulary = config.vocab_size;
                (Architecture::Deberta(config), vocabulary)
            }
        };
        let tokenizer = TextTokenizer::from_dir(&location.folder)?;
        tokenizer.check_vocab(vocabulary)?;
        let store = WeightStore::open(&location.folder)?;
        let mut hashes = BTreeMap::new();
        for file in store.files() {
            let name = file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
            hashes.insert(name, sha256_file(file)?);
        }
        Ok(Self { location, architecture, tokenizer, hashes })
    }

    /// The configuration of an encoder, which `what` needs.
    ///
    /// # Errors
    ///
    /// [`BenchError::Model`] if the model is no encoder.
    pub fn encoder_for(&self, what: &str) -> Result<&DebertaConfig, BenchError> {
        match &self.architecture {
            Architecture::Deberta(config) => Ok(config),
            Architecture::Llama(_) => Err(BenchError::Model {
                model: self.location.name.clone(),
                reason: format!("{what} needs an encoder (DeBERTa), and this is a Llama"),
            }),
        }
    }

    /// `targets` where they are names of this kind of model, else what is usual for it.
    pub fn target_modules(&self, targets: &[String]) -> Vec<String> {
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (own, other) = match self.architecture {
            Architecture::Deberta(_) => (names(&ADAPTER_TARGETS), names(&LLAMA_TARGETS)),
            Architecture::Llama(_) => (names(&LLAMA_TARGETS), names(&ADAPTER_TARGETS)),
        };
        if targets.iter().all(|name| other.contains(name)) { own } else { targets.to_vec() }
    }

    /// Parameters of embeddings and layers.
    pub fn parameters(&self) -> u64 {
        match &self.architecture {
            Architecture::Deberta(c) => {
                let (d, wide) = (c.hidden_size as u64, c.intermediate_size as u64);
                let layer = 4 * (d * d + d) + 2 * d * wide + wide + d + 4 * d;
                c.vocab_size as u64 * d + c.num_hidden_layers as u64 * layer
            }
            Architecture::Llama(c) => {
                let (d, wide) = (c.hidden_size as u64, c.intermediate_size as u64);
                let heads = 2 * (c.num_attention_heads + c.num_key_value_heads) * c.head_dim;
                let layer = d * heads as u64 + 3 * d * wide + 2 * d;
                let tables = if c.tie_word_embeddings { 1 } else { 2 };
                tables * c.vocab_size as u64 * d + c.num_hidden_layers as u64 * layer + d
            }
        }
    }

    /// The configuration of `encoder` with `labels` outputs and, if `dropout` is off, without dropout.
    fn config_for(encoder: &DebertaConfig, labels: usize, dropout: bool) -> DebertaConfig {
        let names = (0..labels).map(|i| format!("LABEL_{i}")).collect();
        let mut config = encoder.clone().with_labels(names);
        if !dropout {
            config.hidden_dropout_prob = 0.0;
            config.attention_probs_dropout_prob = 0.0;
            config.pooler_dropout = 0.0;
            config.cls_dropout = 0.0;
        }
        config
    }
}

/// The one field that says which configuration to read.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    model_type: String,
}

/// A model that answers `task`, and the names of the parameters that the checkpoint did not have.
///
/// An encoder comes from the checkpoint; its head too where it fits, else from `seed`. A language
/// model answers by the logits of the task's answer tokens.
///
/// # Errors
///
/// [`BenchError::Load`] listing every tensor that is missing, left over, mis-shaped or not finite.
pub fn load_model_reporting(
    backbone: &Backbone,
    task: &PreparedTask,
    dropout: bool,
    seed: u64,
    device: &Device,
    dtype: DType,
) -> Result<(TaskModel, Vec<String>), BenchError> {
    let store = WeightStore::open(&backbone.location.folder)?;
    match &backbone.architecture {
        Architecture::Deberta(encoder) => {
            let config = Backbone::config_for(encoder, task.labels, dropout);
            let seed = NoiseKey::new(seed);
            let (model, report) =
                DebertaClassifier::from_pretrained(&store, &config, seed, device, dtype)?;
            Ok((TaskModel::Deberta(model), report.fresh))
        }
        Architecture::Llama(config) => {
            let (model, _) = LlamaForCausalLm::from_pretrained(&store, config, device, dtype)?;
            let model = LlamaChoice::new(model, task.answers.clone())?;
            Ok((TaskModel::Llama(model), Vec::new()))
        }
    }
}

/// [`load_model_reporting`] without the names.
///
/// # Errors
///
/// As there.
pub fn load_model(
    backbone: &Backbone,
    task: &PreparedTask,
    dropout: bool,
    seed: u64,
    device: &Device,
    dtype: DType,
) -> Result<TaskModel, BenchError> {
    Ok(load_model_reporting(backbone, task, dropout, seed, device, dtype)?.0)
}
