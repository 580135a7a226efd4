//! With shared keys the query and key projections serve tokens and relative positions alike: one
//! weight draw must act on both, per sequence, and the KL must count once.

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::{AdapterConfig, Extension, LowRankAdapter, Posterior, Prior};
use lrvd_burn::model::{NamedModule, attach_adapters, total_kl};
use lrvd_burn::ops::standard_normal;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::kl::KlReduction;
use lrvd_core::noise::{NoiseKey, Stream};
use lrvd_models::deberta::DebertaClassifier;

use crate::support::{batch, close, deberta, names, numbers};

fn model(device: &Device) -> DebertaClassifier {
    let mut model = deberta("", device, DType::F64);
    let targets =
        names(&["query_proj", "key_proj", "value_proj", "output.dense", "intermediate.dense"]);
    let adapter = AdapterConfig { rank: 4, lora_alpha: 6.0, ..AdapterConfig::default() };
    attach_adapters(&mut model, &targets, &adapter, NoiseKey::new(6)).unwrap();
    // Noise and means large enough that every term shows.
    model.visit_layers_mut(&mut |_, layer| {
        layer.edit(|adapter| {
            adapter.b = adapter.b.clone().map(|b| (b * 200.0).detach());
            if let Some(Extension::Posterior(Posterior::RankVariance(p))) = &mut adapter.extension {
                p.value = p.value.clone().map(|v| (v * 0.0 - 3.0).detach());
            }
        });
    });
    model
}

/// The model with every adapter replaced by draw `index` of `n` under `key`, as a plain one.
fn drawn(model: &DebertaClassifier, key: NoiseKey, n: usize, index: usize) -> DebertaClassifier {
    let mut model = model.clone();
    model.visit_layers_mut(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let key = key.for_module(layer.noise_id());
        let posterior = adapter.posterior().unwrap();
        let (a, b) = (adapter.a.val(), adapter.b.val());
        let (std_a, std_b) = posterior.deviations(&a, &b);
        let draw = |mean: Tensor<2>, std: Tensor<2>, stream: u32| {
            let [rows, columns] = mean.dims();
            let eps = standard_normal(&mean, [n, rows, columns], key.on_stream(stream));
            mean + eps.narrow(0, index, 1).squeeze_dim::<2>(0) * std
        };
        let plain = LowRankAdapter::new(
            burn::module::Param::from_tensor(draw(a, std_a, Stream::WEIGHT_A).inner()),
            burn::module::Param::from_tensor(draw(b, std_b.unwrap(), Stream::WEIGHT_B).inner()),
            adapter.scaling,
        );
        layer.attach(path, plain, 4).unwrap();
    });
    model
}

#[test]
fn one_draw_per_sequence_serves_tokens_and_positions() {
    let device = Device::flex();
    let model = model(&device);
    let rows: [&[u32]; 3] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3, 8, 21, 2], &[1, 5, 5, 17, 40, 2]];
    let key = NoiseKey::new(11).at_step(3);
    let pass = Pass::sampled(Scheme::Weights(DrawPer::Sequence), key);
    let together = numbers(model.forward(&batch(&rows, DType::F64), &pass));
    let mean = numbers(model.forward(&batch(&rows, DType::F64), &Pass::mean()));
    for (s, row) in rows.iter().enumerate() {
        let alone = drawn(&model, key, rows.len(), s);
        let alone = numbers(alone.forward(&batch(&[row], DType::F64), &Pass::mean()));
        for (c, value) in alone.iter().enumerate() {
            let found = together[s * alone.len() + c];
            assert!((found - value).abs() < 1e-9, "sequence {s}, class {c}: {found} and {value}");
            assert!((found - mean[s * alone.len() + c]).abs() > 1e-4, "the draw must show");
        }
    }
}

#[test]
fn one_draw_per_batch_equals_the_drawn_model() {
    let device = Device::flex();
    let model = model(&device);
    let rows: [&[u32]; 2] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3, 8, 21, 2]];
    let key = NoiseKey::new(12).at_step(1);
    let pass = Pass::sampled(Scheme::Weights(DrawPer::Batch), key);
    let found = numbers(model.forward(&batch(&rows, DType::F64), &pass));
    let expected = drawn(&model, key, 1, 0);
    let expected = numbers(expected.forward(&batch(&rows, DType::F64), &Pass::mean()));
    close(&found, &expected, 1e-9);
}

#[test]
fn an_adapter_used_twice_counts_once_in_the_kl() {
    let device = Device::flex();
    let model = model(&device);
    let total = total_kl(&model, Prior::LogUniform, KlReduction::Element).unwrap().unwrap();
    let mut by_layer = 0.0;
    model.visit_layers(&mut |_, layer| {
        if let Some(adapter) = layer.low_rank() {
            let kl = adapter.kl(Prior::LogUniform, KlReduction::Element).unwrap().unwrap();
            by_layer += kl.into_scalar::<f64>();
        }
    });
    let total = total.into_scalar::<f64>();
    assert!((total - by_layer).abs() < 1e-9 * by_layer, "{total} and {by_layer}");
}

#[test]
fn padding_and_batch_company_change_nothing() {
    let device = Device::flex();
    let model = model(&device);
    let short: [&[u32]; 1] = [&[1, 7, 9, 2]];
    let alone = numbers(model.forward(&batch(&short, DType::F64), &Pass::mean()));
    let mut padded = batch(&[&[1, 7, 9, 2, 0, 0, 0], &[1, 4, 8, 15, 16, 23, 2]], DType::F64);
    let mask = vec![1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    padded.mask = Tensor::from_data(TensorData::new(mask, [2, 7]), (&device, DType::F64));
    let together = numbers(model.forward(&padded, &Pass::mean()));
    close(&together[..alone.len()], &alone, 1e-9);
}
