//! Computations of a DeBERTa alone: the first token alone in the last layer, and projections that serve
//! tokens and relative positions alike.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::adapter::{AdapterKind, LowRankAdapter};
use lrvd_burn::model::NamedModule;
use lrvd_burn::ops::standard_normal;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::Model as _;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream};
use lrvd_models::AutoModel;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier};

use crate::support::{LORA, NOISY, PROMPTS, adapted, batch, close, deberta, modernbert, numbers};

fn model(kind: AdapterKind, rest: &str) -> DebertaClassifier {
    adapted(deberta(rest, DType::F32), kind, &ADAPTER_TARGETS)
}

/// Only the first token of the last layer is computed, and neither a logit nor a gradient changes.
#[track_caller]
fn equal(model: &DebertaClassifier, pass: &Pass) {
    let input = batch(&PROMPTS, DType::F32);
    let [found, expected] = [false, true].map(|whole| {
        let logits = if whole {
            model.head(model.encoder.forward(&input, pass), &input, pass).1
        } else {
            model.forward(&input, pass)
        };
        let weights = Tensor::<1>::from_floats([1.0, -0.5], &Device::flex()).unsqueeze();
        let gradients = (logits.clone() * weights).sum().backward();
        let gradients = NamedGradients::collect(model, &gradients);
        let of = |name: &str| numbers(gradients.get(name).unwrap().clone());
        let each = gradients.names().map(|name| (name.to_owned(), of(name)));
        (numbers(logits), each.collect::<BTreeMap<_, _>>())
    });
    assert!(expected.1.values().flatten().any(|&value| value != 0.0));
    assert_eq!(found, expected);
}

#[test]
fn the_first_token_is_answered_as_with_all_of_them() {
    let key = NoiseKey::new(12).at_step(5);
    let noisy = model(NOISY, "");
    for scheme in [Scheme::PerSequence, Scheme::PerBatch] {
        equal(&noisy, &Pass::sampled(scheme, key));
    }
    for scheme in BY_TOKEN {
        equal(&noisy, &Pass::sampled(scheme, key).with_dropout(key));
    }
    let convolution = r#", "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 1"#;
    let one = r#", "num_hidden_layers": 1"#;
    for rest in [one, &format!("{one}{convolution}"), convolution] {
        equal(&model(LORA, rest), &Pass::mean().with_adapter_dropout(key));
    }
    let modern = adapted(modernbert(DType::F32), NOISY, &["Wqkv", "Wo", "Wi"]);
    equal(&modern, &Pass::sampled(Scheme::PerSequence, key));
}

/// Schemes that draw noise for each token.
const BY_TOKEN: [Scheme; 3] =
    [Scheme::PerToken, Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested];

/// Noise drawn for each token has another stream if only the first token is computed, and the same moments.
#[test]
fn the_first_token_has_the_noise_of_one_among_all_of_them() {
    const KEYS: usize = 400;
    let (model, input) = (model(NOISY, ""), batch(&PROMPTS, DType::F32));
    for scheme in BY_TOKEN {
        let [alone, among] = [false, true].map(|whole| {
            let logits = (0..KEYS).map(|step| {
                let pass = Pass::sampled(scheme, NoiseKey::new(12).at_step(step as u32));
                numbers(if whole {
                    model.head(model.encoder.forward(&input, &pass), &input, &pass).1
                } else {
                    model.forward(&input, &pass)
                })
            });
            let logits: Vec<_> = logits.collect();
            let of_keys = |f: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
                let values = |i| logits.iter().map(move |row: &Vec<f64>| f(i, row[i]));
                (0..logits[0].len()).map(|i| values(i).sum::<f64>() / KEYS as f64).collect()
            };
            let mean = of_keys(&|_, value| value);
            let variance = of_keys(&|i, value| (value - mean[i]).powi(2));
            (logits[0].clone(), mean, variance)
        });
        assert_ne!(alone.0, among.0);
        for i in 0..alone.1.len() {
            // Five standard errors of the difference of two means, and of two variances of normal numbers.
            let variance = 0.5 * (alone.2[i] + among.2[i]);
            let n = KEYS as f64;
            assert!(variance > 0.0);
            assert!((alone.1[i] - among.1[i]).abs() < 5.0 * (2.0 * variance / n).sqrt());
            assert!((alone.2[i] - among.2[i]).abs() < 5.0 * variance * (4.0 / n).sqrt());
        }
    }
}

/// The logits are the head's weight times the features, plus its bias.
#[test]
fn features_are_what_the_head_reads() {
    let model = AutoModel::Deberta(deberta("", DType::F64));
    let input = batch(&PROMPTS, DType::F64);
    let mut head = BTreeMap::new();
    model.visit_parameters(&mut |p| {
        if let Some(name) = p.name.strip_prefix("classifier.") {
            head.insert(name.to_owned(), numbers(p.value.flat()));
        }
    });
    let (weight, bias) = (&head["weight"], &head["bias"]);
    let features = numbers(model.features(&input));
    let expected = features.chunks(24).flat_map(|row| {
        let column = |o: usize| weight.iter().skip(o).step_by(bias.len());
        let logit = |o: usize| bias[o] + row.iter().zip(column(o)).map(|(x, w)| x * w).sum::<f64>();
        (0..bias.len()).map(logit).collect::<Vec<_>>()
    });
    let logits = numbers(model.logits(&input, &Pass::mean()));
    close(&logits, &expected.collect::<Vec<_>>(), 1e-12);
}

/// The model with every adapter replaced by draw `index` of `n` under `key`, as a plain one.
fn drawn(model: &DebertaClassifier, key: NoiseKey, n: usize, index: usize) -> DebertaClassifier {
    let mut model = model.clone();
    model.visit_layers_mut(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let key = key.for_module(layer.noise_id());
        let (a, b) = (adapter.a.val(), adapter.b.val());
        let (std_a, std_b) = adapter.posterior().unwrap().deviations(&a, &b);
        let draw = |mean: Tensor<2>, std: Tensor<2>, stream: u32| {
            let [rows, columns] = mean.dims();
            let eps = standard_normal(&mean, [n, rows, columns], key.on_stream(stream));
            let drawn = mean + eps.narrow(0, index, 1).squeeze_dim::<2>(0) * std;
            Param::from_tensor(drawn.inner())
        };
        let plain = LowRankAdapter::new(
            draw(a, std_a, Stream::WEIGHT_A),
            draw(b, std_b.unwrap(), Stream::WEIGHT_B),
            adapter.scaling,
        );
        layer.attach(path, plain, 4).unwrap();
    });
    model
}

#[test]
fn one_draw_serves_tokens_and_positions() {
    let names = ["query_proj", "key_proj", "value_proj", "output.dense", "intermediate.dense"];
    let model = adapted(deberta("", DType::F64), NOISY, &names);
    let rows: [&[u32]; 3] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3, 8, 21, 2], &[1, 5, 5, 17, 40, 2]];
    let key = NoiseKey::new(11).at_step(3);
    for (scheme, draws) in [(Scheme::PerSequence, rows.len()), (Scheme::PerBatch, 1)] {
        let pass = Pass::sampled(scheme, key);
        let together = numbers(model.forward(&batch(&rows, DType::F64), &pass));
        for (s, row) in rows.iter().enumerate() {
            let alone = drawn(&model, key, draws, s % draws);
            let alone = numbers(alone.forward(&batch(&[row], DType::F64), &Pass::mean()));
            close(&together[s * alone.len()..][..alone.len()], &alone, 1e-9);
            let mean = numbers(model.forward(&batch(&[row], DType::F64), &Pass::mean()));
            assert!(alone.iter().zip(&mean).all(|(a, b)| (a - b).abs() > 1e-4));
        }
    }
}
