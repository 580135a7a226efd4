//! A classifier reads the first token: nothing else of the last layer is computed, and no number changes.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Observer};
use lrvd_burn::model::{NamedModule, attach_adapters, check_scheme, observe};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::Model as _;
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier};
use lrvd_models::{AutoModel, TokenBatch};

use crate::support::{batch, close, deberta, names, numbers};

/// Adapters act on all layers; `rest` are further settings.
fn model(kind: AdapterKind, rest: &str) -> DebertaClassifier {
    let mut model = deberta(rest, &Device::flex().autodiff(), DType::F32);
    let adapter = AdapterConfig { rank: 4, lora_alpha: 6.0, kind, ..AdapterConfig::default() };
    attach_adapters(&mut model, &names(&ADAPTER_TARGETS), &adapter, NoiseKey::new(6)).unwrap();
    model
}

fn input() -> TokenBatch {
    batch(&[&[1, 7, 9, 30, 12, 2], &[1, 44, 3], &[1, 5, 5, 17]], DType::F32)
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
    let whole = model.head(model.encoder.forward(&input, pass), pass).1;
    let first = model.forward(&input, pass);
    assert_eq!(numbers(first.clone()), numbers(whole.clone()));
    let (found, expected) = (gradients(first), gradients(whole));
    assert!(expected.values().flatten().any(|&value| value != 0.0));
    assert_eq!(found, expected);
}

#[test]
fn by_every_adapter_and_scheme() {
    let key = NoiseKey::new(12).at_step(5);
    let weights = [DrawPer::Sequence, DrawPer::Batch, DrawPer::Token].map(Scheme::Weights);
    for family in VariationalFamily::ALL {
        let model = model(AdapterKind::Variational { family, initial: -3.0 }, "");
        let by_outputs = [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested];
        for scheme in weights.into_iter().chain(by_outputs).chain([Scheme::Mean]) {
            if check_scheme(&model, scheme).is_ok() {
                equal(&model, &Pass::sampled(scheme, key));
            }
        }
        equal(&model, &Pass::sampled(weights[0], key).with_dropout(key));
    }
    for kind in [AdapterKind::Lora { b_bound: 0.1 }, AdapterKind::CLora { hidden: 5 }] {
        let model = model(kind, "");
        equal(&model, &Pass::mean());
        equal(&model, &Pass::mean().with_adapter_dropout(key));
        equal(&model, &Pass::sampled(weights[0], key));
    }
}

#[test]
fn by_one_layer_with_a_convolution_behind_it() {
    let convolution = r#", "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 1"#;
    let one = r#", "num_hidden_layers": 1"#;
    for rest in [one, &format!("{one}{convolution}"), convolution] {
        equal(&model(AdapterKind::Lora { b_bound: 0.1 }, rest), &Pass::mean());
    }
}

#[test]
fn an_observer_sees_every_row() {
    let mut model = model(AdapterKind::Lora { b_bound: 0.1 }, "");
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

/// The logits are the head's weight times the features, plus its bias.
#[test]
fn features_are_what_the_head_reads() {
    let model = AutoModel::Deberta(deberta("", &Device::flex(), DType::F64));
    let input = batch(&[&[1, 7, 9, 30, 12, 2], &[1, 44, 3]], DType::F64);
    let mut head = BTreeMap::new();
    model.visit_parameters(&mut |p| {
        if let Some(name) = p.name.strip_prefix("classifier.") {
            head.insert(name.to_owned(), numbers(p.value.flat()));
        }
    });
    let (features, logits) =
        (numbers(model.features(&input)), numbers(model.logits(&input, &Pass::mean())));
    let (weight, bias) = (&head["weight"], &head["bias"]);
    let column = |o: usize| weight.iter().skip(o).step_by(bias.len());
    let expected = features.chunks(24).flat_map(|row| {
        let logit = |o: usize| bias[o] + row.iter().zip(column(o)).map(|(x, w)| x * w).sum::<f64>();
        (0..bias.len()).map(logit).collect::<Vec<_>>()
    });
    close(&logits, &expected.collect::<Vec<_>>(), 1e-12);
}
