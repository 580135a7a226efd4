//! A classifier reads the first token: nothing else of the last layer is computed, and no number changes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Observer};
use lrvd_burn::model::{AdaptedModel, AdapterTargets, attach_adapters, check_scheme, observe};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier, DebertaConfig};
use lrvd_models::{TokenBatch, WeightSource};

/// `layers` layers on all of which adapters act; `rest` are further settings.
fn model(kind: AdapterKind, layers: usize, rest: &str) -> DebertaClassifier {
    let config = format!(
        r#"{{"model_type": "deberta-v2", "hidden_size": 24, "num_attention_heads": 3,
        "num_hidden_layers": {layers}, "intermediate_size": 40, "vocab_size": 50,
        "position_buckets": 8, "max_position_embeddings": 32, "relative_attention": true,
        "share_att_key": true, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm",
        "position_biased_input": false, "type_vocab_size": 0, "initializer_range": 0.3{rest}}}"#
    );
    let config = DebertaConfig::parse(config.as_bytes(), "config.json".as_ref()).unwrap();
    let device = Device::flex().autodiff();
    let mut source = WeightSource::random(NoiseKey::new(5), &device, DType::F32);
    let mut model = DebertaClassifier::load(&mut source, &config);
    let targets = AdapterTargets::Names(ADAPTER_TARGETS.map(str::to_owned).to_vec());
    let adapter = AdapterConfig { rank: 4, lora_alpha: 6.0, kind, ..AdapterConfig::default() };
    attach_adapters(&mut model, &targets, &adapter, NoiseKey::new(6)).unwrap();
    model
}

fn input() -> TokenBatch {
    let rows: [&[u32]; 3] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3], &[1, 5, 5, 17]];
    let rows = rows.map(|row| (row, &[][..]));
    TokenBatch::padded(&rows, 0, &Device::flex(), DType::F32)
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

/// The logits by the first token alone are those by all of them, and so is every gradient.
#[track_caller]
fn equal(model: &DebertaClassifier, pass: &Pass) {
    let input = input();
    let gradients = |logits: Tensor<2>| {
        let weights = Tensor::<1>::from_floats([1.0, -0.5], &Device::flex()).unsqueeze();
        let gradients = NamedGradients::collect(model, &(logits * weights).sum().backward());
        let mut found = BTreeMap::new();
        model.visit_parameters(&mut |p| {
            if let Some(gradient) = gradients.get(p.name) {
                found.insert(p.name.to_owned(), numbers(gradient.clone()));
            }
        });
        found
    };
    let whole = model.head(model.encoder().forward(&input, pass), pass).1;
    let first = model.forward(&input, pass);
    assert_eq!(numbers(first.clone()), numbers(whole.clone()));
    let (found, wanted) = (gradients(first), gradients(whole));
    assert!(wanted.values().flatten().any(|&value| value != 0.0));
    assert_eq!(found, wanted);
}

#[test]
fn by_every_adapter_and_scheme() {
    let key = NoiseKey::new(12).at_step(5);
    let weights = [DrawPer::Sequence, DrawPer::Batch, DrawPer::Token].map(Scheme::Weights);
    for family in VariationalFamily::ALL {
        let model = model(AdapterKind::Variational { family, initial: -3.0 }, 2, "");
        let by_outputs = [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested];
        for scheme in weights.into_iter().chain(by_outputs).chain([Scheme::Mean]) {
            if check_scheme(&model, scheme).is_ok() {
                equal(&model, &Pass::sampled(scheme, key));
            }
        }
        equal(&model, &Pass::sampled(weights[0], key).with_dropout(key));
    }
    for kind in [AdapterKind::Lora { b_bound: 0.1 }, AdapterKind::CLora { hidden: 5 }] {
        let model = model(kind, 2, "");
        equal(&model, &Pass::mean());
        equal(&model, &Pass::mean().with_adapter_dropout(key));
        equal(&model, &Pass::sampled(weights[0], key));
    }
}

#[test]
fn by_one_layer_with_a_convolution_behind_it() {
    let rest = r#", "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 1"#;
    for (layers, rest) in [(1, ""), (1, rest), (2, rest)] {
        equal(&model(AdapterKind::Lora { b_bound: 0.1 }, layers, rest), &Pass::mean());
    }
}

#[test]
fn an_observer_sees_every_row() {
    let mut model = model(AdapterKind::Lora { b_bound: 0.1 }, 2, "");
    let observer = Observer::of_gradients();
    observe(&mut model, Some(&observer));
    let input = input();
    let _ = model.forward(&input, &Pass::mean());
    let uses = observer.take_uses();
    assert!(uses.len() > 12, "{}", uses.len());
    for used in uses.iter().filter(|used| used.use_index == 0) {
        assert_eq!(used.input.dims()[..2], input.ids.dims());
    }
}
