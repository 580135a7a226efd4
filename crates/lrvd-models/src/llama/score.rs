//! A number instead of a next token.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::Names;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;

use super::causal_lm::{check_load, is_spare};
use super::config::LlamaConfig;
use super::model::LlamaModel;
use crate::batch::TokenBatch;
use crate::error::Result;
use crate::source::{Init, Layout, Loaded, Precision, WeightSource};

/// Module path of the head.
const HEAD: &str = "score";

/// A Llama that predicts a number: `score · h`, with `h` the normed hidden state of each row's last real token.
///
/// It is the `LlamaForSequenceClassification` of Hugging Face's transformers with one label, whose names it has: no
/// bias, and no head over the vocabulary. Where the decoder is held in half precision, the head is in single.
#[derive(Module, Debug)]
pub struct LlamaScore {
    names: Names,
    model: LlamaModel,
    score: AdaptedLinear,
}

impl LlamaScore {
    /// Builds decoder and head from `source`.
    pub fn load(source: &mut WeightSource<'_>, config: &LlamaConfig) -> Self {
        let model = LlamaModel::load(source, config);
        let (name, shape) = (format!("{HEAD}.weight"), [config.hidden_size, 1]);
        let init = Init::Normal(config.initializer_range);
        let dtype = model.compute_dtype();
        let weight = source.tensor_of(&name, shape, Layout::Transposed, init, dtype);
        let names = Names::below("").with_groups(&[(HEAD, Group::Head)]);
        Self { names, model, score: AdaptedLinear::new(weight, None) }
    }

    /// Builds the model from a checkpoint: the decoder strictly, the head where the checkpoint has one of one label,
    /// and from `seed` where it has none. A head over the vocabulary may stay unused.
    pub fn from_pretrained(
        store: &WeightStore,
        config: &LlamaConfig,
        seed: NoiseKey,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        let precision = precision.into();
        check_load(store, config, device, precision.dtype)?;
        let fresh = |name: &str| name.starts_with(HEAD);
        let ignored = |name: &str| is_spare(name) || name.starts_with("lm_head.");
        let mut source = WeightSource::checkpoint(store, &fresh, &ignored, seed, device, precision);
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

    /// Scores `[batch, 1]` after each row's last real token. Segment ids are not read.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.score.forward_with(self.model.last_hidden(input, pass), pass).squeeze_dim(1)
    }
}
