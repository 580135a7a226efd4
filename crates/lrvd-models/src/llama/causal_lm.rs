//! The language model: decoder and head.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::Names;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;

use super::cache::KvCache;
use super::config::LlamaConfig;
use super::head::{answer_logits, indices};
use super::model::LlamaModel;
use crate::batch::TokenBatch;
use crate::error::{Error, Result};
use crate::source::{Loaded, Precision, WeightSource, check_depth};

/// Module path of the head.
const HEAD: &str = "lm_head";
/// Name of its weight in a checkpoint.
const HEAD_WEIGHT: &str = "lm_head.weight";
/// Name of the word embedding.
const EMBEDDINGS: &str = "model.embed_tokens.weight";

/// A Llama with its head over the vocabulary.
///
/// Parameters are called what Hugging Face checkpoints call them, and every linear layer can carry an adapter, the
/// head included. A tied head shares the memory of the word embedding and has no separate parameter; an adapter on
/// it acts on the head's use only, as in PEFT.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | ids, mask | `[batch, tokens]`, padding on either side |
/// | logits | `[batch, tokens, vocab]`; at column `t` those of the token after it |
///
/// # Numerics
///
/// Large weights may be stored as bf16 or f16; activations, norms, adapters and posteriors are then in single
/// precision, and only the base products run in the stored type. Per billion parameters the base takes 2.0 GB so, and
/// 4.1 GB in single precision. Loading goes tensor by tensor and adds a copy of one tensor at a time: 542 million
/// parameters from two bf16 shards took 1.11 GB as bf16 (1.24 GB at the peak) and 2.21 GB as f32 (2.34 GB), by the
/// example `load_llama`.
#[derive(Module, Debug)]
pub struct LlamaForCausalLm {
    names: Names,
    model: LlamaModel,
    lm_head: AdaptedLinear,
    tied: bool,
}

impl LlamaForCausalLm {
    /// Builds decoder and head from `source`.
    pub fn load(source: &mut WeightSource<'_>, config: &LlamaConfig) -> Self {
        let model = LlamaModel::load(source, config);
        let lm_head = if config.tie_word_embeddings {
            // The same id: a walk takes it for the embedding.
            let weight = Param::initialized(model.embeddings_id(), model.embeddings().transpose());
            AdaptedLinear { weight, bias: None }
        } else {
            let (d, vocab) = (config.hidden_size, config.vocab_size);
            source.head(HEAD, d, vocab, false, config.initializer_range)
        };
        Self { names: Names::below(""), model, lm_head, tied: config.tie_word_embeddings }
    }

    /// Builds the model from a checkpoint, strictly; matrices are held in `precision`.
    ///
    /// Stored rotary frequencies of old checkpoints may stay unused, and so may a head that is stored beside a tied
    /// embedding, if it is the same.
    pub fn from_pretrained(
        store: &WeightStore,
        config: &LlamaConfig,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        let precision = precision.into();
        check_load(store, config, device, precision.dtype)?;
        let spare = config.tie_word_embeddings
            && store.contains(HEAD_WEIGHT)
            && store.contains(EMBEDDINGS)
            && store.read(HEAD_WEIGHT)? == store.read(EMBEDDINGS)?;
        let ignored = |name: &str| is_spare(name) || (spare && name == HEAD_WEIGHT);
        let seed = NoiseKey::new(0);
        let mut source =
            WeightSource::checkpoint(store, &|_| false, &ignored, seed, device, precision);
        let model = Self::load(&mut source, config);
        Ok((model, source.finish()?))
    }

    /// Gradient checkpointing; see [`LlamaModel::recompute`].
    pub fn recompute(&mut self, recomputes: bool) {
        self.model.recompute(recomputes);
    }

    /// The decoder.
    pub fn model(&self) -> &LlamaModel {
        &self.model
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &LlamaConfig {
        self.model.config()
    }

    /// Logits of every column, `[batch, tokens, vocab]`.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        self.head(self.model.forward(input, pass), pass)
    }

    /// Logits of a piece of text that follows what `cache` holds; see [`LlamaModel::forward_cached`].
    ///
    /// # Panics
    ///
    /// If the batch is not that of the cache.
    pub fn forward_cached(
        &self,
        ids: Tensor<2, Int>,
        mask: Tensor<2>,
        cache: &mut KvCache,
        pass: &Pass,
    ) -> Tensor<3> {
        self.head(self.model.forward_cached(ids, mask, cache, pass), pass)
    }

    /// Logits of normed hidden states, `[batch, tokens, hidden]` to `[batch, tokens, vocab]`.
    pub fn head(&self, hidden: Tensor<3>, pass: &Pass) -> Tensor<3> {
        self.head_layer().forward_with(hidden, pass)
    }

    /// Logits after each row's last real token, `[batch, vocab]`; with padding on the left that is the last column.
    pub fn last_logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.head(self.model.last_hidden(input, pass), pass).squeeze_dim(1)
    }

    /// As [`Self::last_logits`], for the tokens `answers` only: `[batch, answers]`. Nothing else of the head is
    /// computed, of an adapter on it neither.
    ///
    /// Under a scheme with one weight draw a batch or a sequence the noise is that of the full head. The ids must be below the size of the
    /// vocabulary; [`LlamaChoice`](super::LlamaChoice) checks them once.
    pub fn answer_logits(&self, input: &TokenBatch, answers: &[u32], pass: &Pass) -> Tensor<2> {
        let hidden = self.model.last_hidden(input, pass);
        let ids = indices(answers, &hidden);
        let weight = if self.tied {
            self.model.embeddings().select(0, ids).transpose()
        } else {
            self.lm_head.weight.base().select(1, ids)
        };
        answer_logits(&self.lm_head, weight, hidden, answers, pass)
    }

    /// Whether the head has an adapter.
    pub(super) fn head_draws(&self) -> bool {
        self.lm_head.low_rank().is_some() || self.lm_head.members().is_some()
    }

    /// The head with its weight: a tied one takes it from the embedding at every use, so that it follows it.
    fn head_layer(&self) -> AdaptedLinear {
        let mut head = self.lm_head.clone();
        if self.tied {
            let shared = self.model.embeddings().transpose();
            head.set_weight(shared);
        }
        head
    }
}

/// Checks what can be checked before anything is read.
pub(super) fn check_load(
    store: &WeightStore,
    config: &LlamaConfig,
    device: &Device,
    dtype: DType,
) -> Result<()> {
    if !device.supports_dtype(dtype) {
        return Err(Error::argument(
            "dtype",
            "a float type that the device computes in",
            format_args!("`{dtype:?}`"),
        ));
    }
    check_depth(config.num_hidden_layers, store)
}

/// Stored rotary frequencies of old checkpoints, which are computed here.
pub(super) fn is_spare(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}
