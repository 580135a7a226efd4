//! Logits of expected tokens alone are those of the whole text, whichever texts share the batch and wherever the noise enters.

use burn::tensor::DType;
use lrvd_burn::sampling::{DrawPer, DrawSet, Pass, Scheme};
use lrvd_burn::train::Model;
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;
use lrvd_models::TokenBatch;
use lrvd_models::llama::LlamaForCausalLm;

use crate::support::{PROMPTS, adapted, close, model, numbers, padded, variational};

const ASKED: [&[usize]; 3] = [&[1, 2, 3], &[0], &[0, 4, 6]];
const VOCAB: usize = 50;

fn batch(rows: &[usize]) -> TokenBatch {
    let texts: Vec<&[i64]> = rows.iter().map(|&row| PROMPTS[row]).collect();
    let columns = rows.iter().map(|&row| ASKED[row].to_vec()).collect();
    TokenBatch { columns, ..padded(&texts, false, DType::F64) }
}

fn models() -> [LlamaForCausalLm; 3] {
    let posterior = variational(VariationalFamily::RankVariance);
    [&["q_proj", "down_proj"][..], &["v_proj", "lm_head"], &["lm_head"]]
        .map(|names| adapted(model(true, DType::F64), &posterior, names))
}

/// The logits of the whole text at the asked columns.
fn expected(model: &LlamaForCausalLm, batch: &TokenBatch, pass: &Pass) -> Vec<f64> {
    let logits = model.forward(batch, pass);
    let [_, tokens, _] = logits.dims();
    let all = numbers(logits);
    let rows = batch.columns.iter().enumerate();
    rows.flat_map(|(row, columns)| columns.iter().map(move |column| row * tokens + column))
        .flat_map(|place| all[place * VOCAB..(place + 1) * VOCAB].to_vec())
        .collect()
}

#[test]
fn asked_columns_are_those_of_the_whole_text() {
    let batch = batch(&[0, 1, 2]);
    for model in models() {
        for pass in [
            Pass::mean(),
            Pass::sampled(Scheme::Weights(DrawPer::Batch), NoiseKey::new(9)),
            Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(9)),
        ] {
            let found = model.logits(&batch, &pass);
            assert_eq!(found.dims(), [7, VOCAB]);
            close(&numbers(found), &expected(&model, &batch, &pass), 1e-10);
        }
    }
}

#[test]
fn a_pass_of_several_draws_is_as_many_passes() {
    let batch = batch(&[2, 0]);
    for model in models() {
        let key = NoiseKey::new(4);
        let one = |draw| Pass::sampled(Scheme::Weights(DrawPer::Batch), key.at_step(draw));
        let together = one(0).with_draws(DrawSet { count: 3, rows: 2, ..DrawSet::ONE });
        let found = model.logits(&batch, &together);
        assert_eq!(found.dims(), [3 * 6, VOCAB]);
        let each: Vec<f64> =
            (0..3).flat_map(|draw| numbers(model.logits(&batch, &one(draw)))).collect();
        close(&numbers(found), &each, 1e-10);
        // So does a model whose draws were made before.
        let keys: Vec<NoiseKey> = (0..3).map(|draw| key.at_step(draw)).collect();
        let drawn = model.drawn_together(&keys).unwrap();
        close(&numbers(drawn.logits(&batch, &Pass::mean())), &each, 1e-10);
    }
}

#[test]
fn a_text_is_answered_as_it_is_alone() {
    for model in models() {
        let pass = Pass::sampled(Scheme::Weights(DrawPer::Batch), NoiseKey::new(2));
        let together = numbers(model.logits(&batch(&[0, 1, 2]), &pass));
        let alone: Vec<f64> =
            (0..3).flat_map(|row| numbers(model.logits(&batch(&[row]), &pass))).collect();
        close(&together, &alone, 1e-10);
    }
}
