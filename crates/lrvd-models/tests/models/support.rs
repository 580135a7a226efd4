//! Tiny random models, their inputs and their adapters; recorded files.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::Selection;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::{NamedModule, attach_adapters};
pub(crate) use lrvd_burn::parameters::values as numbers;
use lrvd_core::noise::NoiseKey;
use lrvd_core::posterior::VariationalFamily;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use lrvd_models::{TokenBatch, WeightSource};

/// Tokens that answer a question.
pub(crate) const ANSWERS: [u32; 3] = [30, 4, 17];
/// Texts of several lengths.
pub(crate) const PROMPTS: [&[u32]; 3] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3], &[1, 5, 5, 17]];
/// Plain `LoRA`.
pub(crate) const LORA: AdapterKind = AdapterKind::Lora { b_bound: 0.5 };
/// A posterior wide enough to show.
pub(crate) const NOISY: AdapterKind =
    AdapterKind::Variational { family: VariationalFamily::RankVariance, initial: -3.0 };

/// 50 tokens, 2 layers, 6 heads of 4 features in 2 groups, hidden 20: no size is a multiple of another by chance.
pub(crate) fn config() -> LlamaConfig {
    config_of("llama", "")
}

/// Configuration of another family; `rest` are further settings.
fn config_of(model_type: &str, rest: &str) -> LlamaConfig {
    let config = format!(
        r#"{{"model_type": "{model_type}", "hidden_size": 20, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 4, "num_hidden_layers": 2, "intermediate_size": 28,
        "vocab_size": 50, "initializer_range": 0.4, "tie_word_embeddings": true{rest}}}"#
    );
    LlamaConfig::parse(config.as_bytes(), "config.json".as_ref()).unwrap()
}

/// The model of that shape with random weights.
pub(crate) fn llama(dtype: DType) -> LlamaForCausalLm {
    random(&config(), dtype)
}

/// A Qwen3 of that shape with biases, whose second layer sees three tokens.
pub(crate) fn qwen(dtype: DType) -> LlamaForCausalLm {
    let rest = r#", "attention_bias": true, "use_sliding_window": true, "sliding_window": 3,
        "max_window_layers": 1"#;
    random(&config_of("qwen3", rest), dtype)
}

fn random(config: &LlamaConfig, dtype: DType) -> LlamaForCausalLm {
    let device = Device::flex();
    let mut source = WeightSource::random(NoiseKey::new(5), &device, dtype);
    let model = LlamaForCausalLm::load(&mut source, config);
    source.finish().unwrap();
    model
}

/// A tiny DeBERTa with shared keys and random weights; `rest` are further settings, or other values.
pub(crate) fn deberta(rest: &str, dtype: DType) -> DebertaClassifier {
    let config = format!(
        r#"{{"model_type": "deberta-v2", "hidden_size": 24, "num_attention_heads": 3,
        "num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": 50, "position_buckets": 8,
        "max_position_embeddings": 32, "relative_attention": true, "share_att_key": true,
        "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm",
        "position_biased_input": false, "type_vocab_size": 0, "initializer_range": 0.3{rest}}}"#
    );
    encoder(&config, dtype)
}

/// A tiny ModernBERT with random weights, whose second layer sees one token on either side.
pub(crate) fn modernbert(dtype: DType) -> DebertaClassifier {
    let config = r#"{"model_type": "modernbert", "hidden_size": 24, "num_attention_heads": 3,
        "num_hidden_layers": 3, "intermediate_size": 20, "vocab_size": 50, "local_attention": 2,
        "global_attn_every_n_layers": 2, "pad_token_id": 0, "initializer_range": 0.3}"#;
    encoder(config, dtype)
}

fn encoder(config: &str, dtype: DType) -> DebertaClassifier {
    let config = DebertaConfig::parse(config.as_bytes(), "config.json".as_ref()).unwrap();
    let device = Device::flex();
    DebertaClassifier::load(&mut WeightSource::random(NoiseKey::new(5), &device, dtype), &config)
}

/// `model` with adapters on the layers whose paths end with `names`, large enough to show.
pub(crate) fn adapted<M: NamedModule>(mut model: M, kind: AdapterKind, names: &[&str]) -> M {
    let targets = Selection::Names(names.iter().map(|&name| name.to_owned()).collect());
    // The classifier has two outputs, and a rank is at most a layer's smaller width.
    let rank = if names == ["classifier"] { 2 } else { 4 };
    let config = AdapterConfig { rank, lora_alpha: 6.0, kind, dropout: 0.3 };
    attach_adapters(&mut model, &targets, &config, NoiseKey::new(6)).unwrap();
    model.visit_parameters_mut(&mut |p| {
        if let Some(path) = p.name.find(".lora_B") {
            let n = p.value.len();
            let value = |i: usize| ((i * 7 + path) % 11) as f64 * 0.04 - 0.2;
            let data = TensorData::new((0..n).map(value).collect::<Vec<_>>(), [n]);
            let flat = p.value.flat();
            let (device, dtype) = (flat.device(), flat.dtype());
            p.value.set_flat(Tensor::from_data(data.convert_dtype(dtype), (&device, dtype)));
        }
    });
    model
}

/// Rows of ids, padded on the right.
pub(crate) fn batch(rows: &[&[u32]], dtype: DType) -> TokenBatch {
    let rows: Vec<(&[u32], &[u32])> = rows.iter().map(|row| (*row, &[][..])).collect();
    TokenBatch::padded(&rows, 0, &Device::flex(), dtype)
}

/// Rows of ids, padded on the left.
pub(crate) fn left_padded(rows: &[&[u32]], dtype: DType) -> TokenBatch {
    let tokens = rows.iter().map(|row| row.len()).max().unwrap();
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for row in rows {
        let padding = tokens - row.len();
        ids.extend(std::iter::repeat_n(13, padding).chain(row.iter().map(|&id| i64::from(id))));
        mask.extend((0..tokens).map(|column| f64::from(u8::from(column >= padding))));
    }
    let (shape, device) = ([rows.len(), tokens], Device::flex());
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &device);
    let mask = TensorData::new(mask, shape).convert_dtype(dtype);
    TokenBatch::new(ids.clone(), ids.zeros_like(), Tensor::from_data(mask, (&device, dtype)))
}

/// A recorded file or folder.
pub(crate) fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

/// Equal up to `limit`, absolutely for small and relatively for large values.
#[track_caller]
pub(crate) fn close(found: &[f64], expected: &[f64], limit: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let limit = limit * expected.abs().max(1.0);
        assert!((found - expected).abs() <= limit, "{i}: {found} and {expected}");
    }
}
