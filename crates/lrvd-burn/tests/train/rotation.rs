//! Rotation of adapters changes no answer and no noise.

use super::*;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::attach_adapters;
use lrvd_burn::train::{directions, rotate_to_singular_basis};
use lrvd_core::posterior::VariationalFamily;

const RANK: usize = 3;

fn adapted(kind: AdapterKind) -> One {
    let mut model = one();
    let config = AdapterConfig { kind, rank: RANK, lora_alpha: 10.0, dropout: 0.0 };
    let targets = Selection::Names(vec!["layer".into()]);
    attach_adapters(&mut model, &targets, &config, NoiseKey::new(1)).unwrap();
    model
}

#[test]
fn a_rotation_keeps_answers_and_noise() {
    let x = examples(3, 20).inputs;
    let answers = |model: &One| -> Vec<f64> {
        model.logits(&x, &Pass::mean()).into_data().iter::<f64>().collect()
    };
    let noise = |model: &One| {
        model.layer.low_rank().unwrap().host_posterior().unwrap().unwrap().noise().clone()
    };
    for family in VariationalFamily::ALL {
        // B as large as A, a hundredth of it, and zero as in a fresh adapter.
        for scale in [1.0, 0.01, 0.0] {
            let mut model = adapted(AdapterKind::Variational { family, initial: -4.0 });
            model.layer.edit(|adapter| {
                let b = tensor(normal(1, RANK * CLASSES), [RANK, CLASSES]).mul_scalar(scale);
                adapter.b = adapter.b.clone().map(|_| b);
            });
            let before = (answers(&model), noise(&model));
            let spectra = rotate_to_singular_basis(&mut model).unwrap();
            for (before, after) in before.0.iter().zip(answers(&model)) {
                assert!((before - after).abs() < 1e-4 * before.abs().max(1.0), "{before} {after}");
            }
            assert_eq!(before.1, noise(&model), "{family} {scale}");
            for (k, direction) in directions(&model).into_iter().enumerate() {
                let value = spectra["layer"][k];
                assert!((direction.importance - value).abs() <= 1e-5 * spectra["layer"][0], "{k}");
                assert!(scale == 0.0 || direction.index == k);
            }
        }
    }
    let answer = rotate_to_singular_basis(&mut adapted(AdapterKind::AdaLora));
    assert!(answer.unwrap_err().to_string().starts_with("layer `layer` cannot be rotated"));
}
