//! Llama: the model, PEFT adapters on it, and a user's own checkpoint.
//!
//! | File | What is there |
//! |---|---|
//! | `batch` | inputs, labels and answers, checked before anything is computed |
//! | `model` | hidden states, logits, cache, losses, gradients |
//! | `peft` | a PEFT adapter on a model |
//! | `checkpoint` | a checkpoint without recorded values |

mod batch;
mod checkpoint;
mod model;
mod peft;

use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_burn::files::WeightStore;
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};

pub(super) use checkpoint::{is_llama, verify_checkpoint};
pub(super) use model::verify;
pub(super) use peft::verify as verify_peft;

use super::model::computing_device;
use super::{VerifyError, VerifyOptions};

/// A language model with its configuration, frozen.
struct Base {
    config: LlamaConfig,
    model: LlamaForCausalLm,
    /// Tensors taken from the checkpoint, and those in it.
    tensors: [usize; 2],
    device: Device,
    dtype: DType,
}

impl Base {
    /// Loads `config.json` and the weights of `dir`.
    fn load(dir: &Path, options: &VerifyOptions<'_>) -> Result<Self, VerifyError> {
        let config = LlamaConfig::read(&dir.join("config.json"))?;
        let store = WeightStore::open(dir)?;
        let device = computing_device(options)?;
        let dtype = options.precision.dtype();
        let (model, loaded) = LlamaForCausalLm::from_pretrained(&store, &config, &device, dtype)?;
        let tensors = [loaded.report.applied.len(), store.len()];
        Ok(Self { config, model, tensors, device, dtype })
    }
}
