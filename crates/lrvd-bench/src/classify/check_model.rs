//! Whether a checkpoint or an adapter is read in full, is finite, and computes.

use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{PeftAdapter, attach_peft};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;
use lrvd_models::TokenBatch;
use lrvd_models::deberta::DebertaClassifier;
use lrvd_models::llama::LlamaForCausalLm;
use serde::Serialize;

use super::inspect::is_base;
use super::source::AdapterSource;
use crate::backbone::{Architecture, local, open_weights};
use crate::error::Result;

/// Tokens of the longer row of the built-in batch.
const TOKENS: usize = 8;

/// What a check found. A tensor that is missing, left over, of another shape or not finite is an error instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelCheck {
    pub schema_version: u32,
    pub folder: String,
    /// Tensors of the checkpoint that the model holds; `None` where there is only an adapter.
    pub base_tensors: Option<usize>,
    /// Tensors of the checkpoint that the model does not use.
    pub unused_tensors: usize,
    pub fresh: Vec<String>,
    pub adapter_tensors: Option<usize>,
    /// Whether the logits of a built-in batch are finite, without the adapter and with it; `None` without a base model.
    pub finite: Option<bool>,
}

/// Reads everything in `dir` and runs it on a built-in batch: a base checkpoint, or an adapter, with the base checkpoint
/// that lies beside it. With `allow_changed` it may have other hashes than its description has.
pub fn check_model(dir: &Path, device: &Device, allow_changed: bool) -> Result<ModelCheck> {
    let source = AdapterSource::is_at(dir);
    let source = source.then(|| AdapterSource::open(dir, device, allow_changed)).transpose()?;
    let adapter = source.as_ref().map(|source| &source.saved.adapter);
    let mut check = ModelCheck {
        schema_version: 1,
        folder: dir.display().to_string(),
        base_tensors: None,
        unused_tensors: 0,
        fresh: Vec::new(),
        adapter_tensors: adapter.map(tensors),
        finite: None,
    };
    if adapter.is_some() && !is_base(dir) {
        return Ok(check);
    }
    let folder = local(dir)?.unwrap_or_else(|| dir.to_owned());
    let (store, dtype) = (open_weights(&folder)?, DType::F32);
    let loaded = match Architecture::read(&folder)? {
        Architecture::Deberta(config) => {
            let seed = NoiseKey::new(0);
            let (model, loaded) =
                DebertaClassifier::from_pretrained(&store, &config, seed, device, dtype)?;
            let batch = batch(config.vocab_size, config.max_position_embeddings, device);
            let forward = |model: &DebertaClassifier| values(model.forward(&batch, &Pass::mean()));
            check.finite = Some(is_finite(model, adapter, forward)?);
            loaded
        }
        Architecture::Llama(config) => {
            let (model, loaded) =
                LlamaForCausalLm::from_pretrained(&store, &config, device, dtype)?;
            let batch = batch(config.vocab_size, config.max_position_embeddings, device);
            let forward = |model: &LlamaForCausalLm| values(model.forward(&batch, &Pass::mean()));
            check.finite = Some(is_finite(model, adapter, forward)?);
            loaded
        }
    };
    let read = loaded.report.applied.len();
    check.base_tensors = Some(read);
    check.unused_tensors = store.len() - read;
    check.fresh = loaded.fresh;
    Ok(check)
}

fn tensors(adapter: &PeftAdapter) -> usize {
    let factors = adapter.modules.values().map(|module| 2 + usize::from(module.e.is_some()));
    factors.sum::<usize>() + adapter.saved.len()
}

fn batch(vocab_size: usize, positions: usize, device: &Device) -> TokenBatch {
    let n = TOKENS.min(positions);
    let ids: Vec<u32> = (0..n).map(|i| ((1 + 7 * i) % vocab_size) as u32).collect();
    let (types, half) = (vec![0; n], n.div_ceil(2));
    let rows = [(&ids[..], &types[..]), (&ids[..half], &types[..half])];
    TokenBatch::padded(&rows, 0, device, DType::F32)
}

/// Whether the logits are finite without the adapter and with it.
fn is_finite<M: AdaptedModel>(
    mut model: M,
    adapter: Option<&PeftAdapter>,
    forward: impl Fn(&M) -> Vec<f64>,
) -> Result<bool> {
    let mut logits = forward(&model);
    if let Some(adapter) = adapter {
        attach_peft(&mut model, adapter, false)?;
        logits.extend(forward(&model));
    }
    Ok(logits.iter().all(|logit| logit.is_finite()))
}
