//! Rotation of adapters changes no answer and no total variance.

use super::*;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Extension, Posterior};
use lrvd_burn::attach_adapters;
use lrvd_burn::gauge::turn;
use lrvd_burn::host::HostAdapter;
use lrvd_burn::train::directions;
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::{CrossTerm, moments};

const RANK: usize = 3;

fn adapted(family: VariationalFamily) -> One {
    let mut model = one();
    let kind = AdapterKind::Variational { family, initial: -4.0 };
    let config = AdapterConfig { kind, rank: RANK, lora_alpha: 10.0, dropout: 0.0 };
    let targets = AdapterTargets::Names(vec!["layer".into()]);
    attach_adapters(&mut model, &targets, &config, NoiseKey::new(1)).unwrap();
    model
}

/// `Σ Var ΔW`: the variance of `ΔW·x`, summed over outputs and over `x` = every unit vector.
fn total_variance(model: &One) -> f64 {
    let host = HostAdapter::read(model.layer.low_rank().unwrap());
    let unit = |i: usize| f64::from(u8::from(i / WIDTH == i % WIDTH));
    let unit: Vec<f64> = (0..WIDTH * WIDTH).map(unit).collect();
    let posterior = host.posterior().unwrap().unwrap();
    moments(&posterior, &unit, CrossTerm::Exact).unwrap().variance.iter().sum()
}

#[test]
fn a_rotation_keeps_answers_and_total_variance() {
    let x = examples(3, 20).inputs;
    let answers = |model: &One| -> Vec<f64> {
        model.logits(&x, &Pass::mean()).into_data().iter::<f64>().collect()
    };
    for family in [VariationalFamily::RankVariance, VariationalFamily::AsymRankVariance] {
        // B as large as A, a hundredth of it, and zero as in a fresh adapter; one log-variance has drifted out of range.
        for scale in [1.0, 0.01, 0.0] {
            let mut model = adapted(family);
            model.layer.edit(|adapter| {
                let b = tensor(normal(1, RANK * CLASSES), [RANK, CLASSES]).mul_scalar(scale);
                adapter.b = adapter.b.clone().map(|_| b);
                if let Some(Extension::Posterior(
                    Posterior::RankVariance(noise) | Posterior::AsymRankVariance(noise),
                )) = &mut adapter.extension
                {
                    noise.value = noise
                        .value
                        .clone()
                        .map(|value| Tensor::from_data([-6.0, -3.0, -30.0], &value.device()));
                }
            });
            let before = (answers(&model), total_variance(&model));
            let spectra = turn(&mut model, None).unwrap();
            for (before, after) in before.0.iter().zip(answers(&model)) {
                assert!((before - after).abs() < 1e-4 * before.abs().max(1.0), "{before} {after}");
            }
            let (before, after) = (before.1, total_variance(&model));
            let error = (after / before - 1.0).abs();
            assert!(before == after || error < 1e-5, "{family} {scale}: {before} {after}");
            for (k, direction) in directions(&model).into_iter().enumerate() {
                let value = spectra["layer"][k];
                assert!((direction.importance - value).abs() <= 1e-5 * spectra["layer"][0], "{k}");
                assert!(scale == 0.0 || direction.index == k);
            }
        }
    }
    let answer = turn(&mut adapted(VariationalFamily::ElementVariance), None);
    assert!(answer.unwrap_err().to_string().starts_with("adapter `layer` cannot be rotated"));
}
