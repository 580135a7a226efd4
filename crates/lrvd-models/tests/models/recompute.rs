//! Gradient checkpointing: the same answers to the bit, and the same gradients.

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::model::{AdapterTargets, attach_adapters};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::Model;
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;
use lrvd_models::{AutoModel, TokenBatch};
use rstest::rstest;

use crate::support::{batch, close, deberta, enlarge, model, names, numbers, variational};

const ROWS: [&[u32]; 3] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3], &[1, 5, 5, 17]];

fn encoder() -> AutoModel {
    let mut model = deberta("", &Device::flex(), DType::F32);
    let targets = AdapterTargets::AllLinear;
    let config = variational(VariationalFamily::RankVariance);
    attach_adapters(&mut model, &targets, &config, NoiseKey::new(6)).unwrap();
    AutoModel::Deberta(model)
}

fn decoder() -> AutoModel {
    let mut model = model(true, DType::F32);
    let config = variational(VariationalFamily::RankVariance);
    attach_adapters(
        &mut model,
        &names(&["q_proj", "v_proj", "up_proj"]),
        &config,
        NoiseKey::new(6),
    )
    .unwrap();
    enlarge(&mut model);
    AutoModel::Llama(model.answering(vec![3, 5]).unwrap())
}

/// Logits, and the gradients of what trains.
fn step(model: &AutoModel, input: &TokenBatch, pass: &Pass) -> (Vec<f64>, NamedGradients) {
    let logits: Tensor<2> = model.logits(input, pass);
    let gradients = (logits.clone() * logits.clone().detach()).sum().backward();
    (numbers(logits), NamedGradients::collect(model, &gradients))
}

#[rstest]
#[case::encoder(encoder())]
#[case::decoder(decoder())]
fn gradients_are_those_of_held_activations(#[case] model: AutoModel) {
    let key = NoiseKey::new(2);
    let input = batch(&ROWS, DType::F32);
    for pass in [
        Pass::sampled(Scheme::Weights(DrawPer::Sequence), key),
        Pass::sampled(Scheme::Nested, key).with_dropout(key),
    ] {
        let (expected, held) = step(&model, &input, &pass);
        let mut recomputing = model.clone();
        recomputing.recompute(true);
        let (found, again) = step(&recomputing, &input, &pass);
        assert_eq!(found, expected);
        assert!(held.names().count() > 8 && held.names().eq(again.names()));
        for name in held.names() {
            let [held, again] = [&held, &again].map(|g| numbers(g.get(name).unwrap().clone()));
            // The sums of a residual are taken in another order.
            close(&again, &held, 1e-5);
        }
    }
}
