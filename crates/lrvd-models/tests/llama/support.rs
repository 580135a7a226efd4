//! A tiny random Llama, its inputs and its adapters.
#![allow(dead_code)]

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::host::values;
use lrvd_burn::model::{AdaptedModel, AdapterTargets, attach_adapters};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use lrvd_models::{TokenBatch, WeightSource};

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
    let targets = AdapterTargets::Names(names.iter().map(|&name| name.to_owned()).collect());
    attach_adapters(&mut model, &targets, config, NoiseKey::new(6)).unwrap();
    enlarge(&mut model);
    model
}

/// Makes the up-projections of freshly attached adapters as large as their weights.
pub(crate) fn enlarge(model: &mut LlamaForCausalLm) {
    model.visit_layers_mut(&mut |_, layer| {
        let Some(adapter) = layer.low_rank_mut() else { return };
        let factor = if adapter.posterior().is_some() { 300.0 } else { 1.0 };
        let b = adapter.b.val();
        let trainable = b.is_require_grad();
        let b = if b.device().is_autodiff() { b.inner() } else { b };
        let b = b.mul_scalar(factor);
        let b = if trainable { b.autodiff().require_grad() } else { b };
        adapter.b = burn::module::Param::initialized(adapter.b.id, b);
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
    TokenBatch {
        type_ids: ids.zeros_like(),
        ids,
        mask: Tensor::from_data(TensorData::new(mask, shape), (&device, dtype)),
        barred: None,
    }
}

/// Values on the host.
pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    values(tensor)
}

/// Equal up to `limit`, absolutely for small and relatively for large values.
#[track_caller]
pub(crate) fn close(found: &[f64], wanted: &[f64], limit: f64) {
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let limit = limit * wanted.abs().max(1.0);
        assert!((found - wanted).abs() <= limit, "{i}: {found} and {wanted}");
    }
}
