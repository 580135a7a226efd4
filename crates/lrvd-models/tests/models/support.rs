//! Tiny random models, their inputs and their adapters; recorded files.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
pub(crate) use lrvd_burn::host::values as numbers;
use lrvd_burn::model::{AdapterTargets, NamedModule, attach_adapters};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use lrvd_models::{TokenBatch, WeightSource};

/// Tokens that answer a question.
pub(crate) const ANSWERS: [u32; 3] = [30, 4, 17];
/// Texts of several lengths.
pub(crate) const PROMPTS: [&[i64]; 3] = [&[1, 7, 9, 30, 12], &[1, 44], &[1, 5, 5, 17, 40, 2, 8]];

/// 50 tokens, 2 layers, 6 heads of 4 features in 2 groups, hidden 20: no size is a multiple of another by chance.
pub(crate) fn config(tied: bool) -> LlamaConfig {
    let config = format!(
        r#"{{"model_type": "llama", "hidden_size": 20, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": 4, "num_hidden_layers": 2, "intermediate_size": 28,
            "vocab_size": 50, "initializer_range": 0.4, "tie_word_embeddings": {tied}}}"#
    );
    LlamaConfig::parse(config.as_bytes(), "config.json".as_ref()).unwrap()
}

/// The model of that shape with random weights.
pub(crate) fn model(tied: bool, dtype: DType) -> LlamaForCausalLm {
    let device = Device::flex();
    let mut source = WeightSource::random(NoiseKey::new(5), &device, dtype);
    let model = LlamaForCausalLm::load(&mut source, &config(tied));
    source.finish().unwrap();
    model
}

/// The key of most passes.
pub(crate) fn key() -> NoiseKey {
    NoiseKey::new(11).at_step(3)
}

/// A tiny DeBERTa with shared keys and random weights; `rest` are further settings, or other values.
pub(crate) fn deberta(rest: &str, device: &Device, dtype: DType) -> DebertaClassifier {
    let config = format!(
        r#"{{"model_type": "deberta-v2", "hidden_size": 24, "num_attention_heads": 3,
        "num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": 50, "position_buckets": 8,
        "max_position_embeddings": 32, "relative_attention": true, "share_att_key": true,
        "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm",
        "position_biased_input": false, "type_vocab_size": 0, "initializer_range": 0.3{rest}}}"#
    );
    let config = DebertaConfig::parse(config.as_bytes(), "config.json".as_ref()).unwrap();
    DebertaClassifier::load(&mut WeightSource::random(NoiseKey::new(5), device, dtype), &config)
}

/// Layers by the ends of their names.
pub(crate) fn names(names: &[&str]) -> AdapterTargets {
    AdapterTargets::Names(names.iter().map(|&name| name.to_owned()).collect())
}

/// Rows of ids, padded on the right.
pub(crate) fn batch(rows: &[&[u32]], dtype: DType) -> TokenBatch {
    let rows: Vec<(&[u32], &[u32])> = rows.iter().map(|row| (*row, &[][..])).collect();
    TokenBatch::padded(&rows, 0, &Device::flex(), dtype)
}

/// A recorded file or folder.
pub(crate) fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

/// Plain LoRA.
pub(crate) fn lora() -> AdapterConfig {
    AdapterConfig {
        rank: 3,
        lora_alpha: 6.0,
        kind: AdapterKind::Lora { b_bound: 0.5 },
        ..AdapterConfig::default()
    }
}

/// An adapter with a posterior wide enough to show.
pub(crate) fn variational(family: VariationalFamily) -> AdapterConfig {
    let kind = AdapterKind::Variational { family, initial: -3.0 };
    AdapterConfig { rank: 3, lora_alpha: 6.0, kind, ..AdapterConfig::default() }
}

/// `model` with adapters on the layers called `names`, large enough to show.
pub(crate) fn adapted(
    mut model: LlamaForCausalLm,
    config: &AdapterConfig,
    names: &[&str],
) -> LlamaForCausalLm {
    attach_adapters(&mut model, &self::names(names), config, NoiseKey::new(6)).unwrap();
    enlarge(&mut model);
    model
}

/// Makes the up-projections of freshly attached adapters as large as their weights.
pub(crate) fn enlarge(model: &mut LlamaForCausalLm) {
    model.visit_layers_mut(&mut |_, layer| {
        layer.edit(|adapter| {
            let factor = if adapter.posterior().is_some() { 300.0 } else { 1.0 };
            let b = adapter.b.val();
            let trainable = b.is_require_grad();
            let b = if b.device().is_autodiff() { b.inner() } else { b };
            let b = b.mul_scalar(factor);
            let b = if trainable { b.autodiff().require_grad() } else { b };
            adapter.b = burn::module::Param::initialized(adapter.b.id, b);
        });
    });
}

/// Rows of equal length without padding.
pub(crate) fn input(rows: &[&[i64]], dtype: DType) -> TokenBatch {
    padded(rows, true, dtype)
}

/// Rows padded to the longest of them; an id of −1 is padding, too.
pub(crate) fn padded(rows: &[&[i64]], left: bool, dtype: DType) -> TokenBatch {
    let device = Device::flex();
    let tokens = rows.iter().map(|row| row.len()).max().unwrap();
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for row in rows {
        let padding = vec![-1; tokens - row.len()];
        let row = if left { [&padding, *row].concat() } else { [*row, &padding].concat() };
        mask.extend(row.iter().map(|&id| if id < 0 { 0.0_f32 } else { 1.0 }));
        ids.extend(row.iter().map(|&id| if id < 0 { 13 } else { id }));
    }
    let shape = [rows.len(), tokens];
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &device);
    let mask = Tensor::from_data(TensorData::new(mask, shape), (&device, dtype));
    TokenBatch::new(ids.clone(), ids.zeros_like(), mask)
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
