//! Speed: models and batches that the benches and the comparison with PyTorch share.

pub mod predict;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::error::AdapterError;
use lrvd_burn::model::{AdaptedModel, AdapterTargets, attach_adapters};
use lrvd_burn::parameters::Role;
use lrvd_core::noise::{Draws, NoiseKey};
use lrvd_models::TokenBatch;
use lrvd_models::WeightSource;
use lrvd_models::deberta::{ADAPTER_TARGETS, ConfigError, DebertaClassifier, DebertaConfig};
use mimalloc::MiMalloc;

/// The allocator of the `lrvd` command, so that what is timed is what users run.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Architecture of a benchmarked model; weights are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 4 layers, hidden 192: the shipped tiny model.
    Nano,
    /// 12 layers, hidden 768: DeBERTa-v3-base.
    Base,
}

impl Size {
    /// The size called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "nano" => Some(Self::Nano),
            "base" => Some(Self::Base),
            _ => None,
        }
    }

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nano => "nano",
            Self::Base => "base",
        }
    }

    /// The configuration, without dropout.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the built-in text were wrong.
    pub fn config(self) -> Result<DebertaConfig, ConfigError> {
        let [hidden, heads, layers, wide, vocabulary, buckets] = match self {
            Self::Nano => [192, 3, 4, 768, 8064, 64],
            Self::Base => [768, 12, 12, 3072, 128_100, 256],
        };
        let text = format!(
            r#"{{"model_type": "deberta-v2", "hidden_size": {hidden}, "num_attention_heads": {heads},
            "num_hidden_layers": {layers}, "intermediate_size": {wide}, "vocab_size": {vocabulary},
            "position_buckets": {buckets}, "max_position_embeddings": 512,
            "relative_attention": true, "share_att_key": true, "pos_att_type": ["p2c", "c2p"],
            "norm_rel_ebd": "layer_norm", "position_biased_input": false, "type_vocab_size": 0,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}"#
        );
        DebertaConfig::parse(text.as_bytes(), "config.json".as_ref())
    }
}

/// The six targets of the published configuration.
pub fn targets() -> AdapterTargets {
    AdapterTargets::Names(ADAPTER_TARGETS.map(str::to_owned).to_vec())
}

/// A classifier with random weights and a fresh adapter on the six targets; the head trains.
///
/// # Errors
///
/// [`AdapterError`] for an adapter out of range.
pub fn classifier(
    config: &DebertaConfig,
    adapter: Option<&AdapterConfig>,
    device: &Device,
) -> Result<DebertaClassifier, AdapterError> {
    let mut source = WeightSource::random(NoiseKey::new(1), device, DType::F32);
    let mut model = DebertaClassifier::load(&mut source, config);
    if let Some(adapter) = adapter {
        attach_adapters(&mut model, &targets(), adapter, NoiseKey::new(2))?;
    }
    model.visit_parameters_mut(&mut |p| {
        if matches!(p.role, Role::Head | Role::Pooler) {
            p.value.set_trainable(true);
        }
    });
    Ok(model)
}

/// Random token ids without padding, and one-hot labels `[batch, 2]`.
pub fn batch(
    config: &DebertaConfig,
    batch: usize,
    length: usize,
    device: &Device,
) -> (TokenBatch, Tensor<2>) {
    let mut draws = Draws::new(NoiseKey::new(3));
    let ids: Vec<i64> =
        (0..batch * length).map(|_| i64::from(draws.bounded(config.vocab_size as u32))).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch, length]), device);
    let labels: Vec<f32> =
        (0..batch).flat_map(|i| if i % 2 == 0 { [1.0, 0.0] } else { [0.0, 1.0] }).collect();
    let input =
        TokenBatch { type_ids: ids.zeros_like(), mask: Tensor::ones([batch, length], device), ids };
    (input, Tensor::from_data(TensorData::new(labels, [batch, 2]), device))
}

/// The first page, whose program is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct FirstPage;
