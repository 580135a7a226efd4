//! The head over a few answers equals the rows of the full head, for everything that can be attached to it.

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::{NamedModule, check_scheme};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::Model;
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_models::llama::{LlamaForCausalLm, LlamaScore};
use lrvd_models::{TokenBatch, WeightSource};
use rstest::rstest;

use crate::support::{
    ANSWERS, PROMPTS, adapted, close, config, key, lora, model, numbers, padded, variational,
};

/// Answer rows of the full head at the last position.
fn full_answers(model: &LlamaForCausalLm, input: &TokenBatch, pass: &Pass) -> Vec<f64> {
    let logits = model.last_logits(input, pass);
    let vocab = logits.dims()[1];
    let rows = numbers(logits);
    rows.chunks(vocab).flat_map(|row| ANSWERS.map(|id| row[id as usize])).collect()
}

/// The head over the answers gives their rows of the full head under every one of `passes`, wherever the padding is.
fn check_rows(model: &LlamaForCausalLm, copies: usize, passes: &[Pass]) {
    for pass in passes {
        check_scheme(model, pass.scheme).unwrap();
        for left in [true, false] {
            let input = padded(&PROMPTS, left, DType::F64).repeat(copies);
            let found = numbers(model.answer_logits(&input, &ANSWERS, pass));
            close(&found, &full_answers(model, &input, pass), 1e-12);
        }
    }
}

/// At the mean and with one weight draw a batch or a sequence.
fn passes() -> [Pass; 3] {
    [Scheme::Mean, Scheme::Weights(DrawPer::Batch), Scheme::Weights(DrawPer::Sequence)]
        .map(|scheme| Pass::sampled(scheme, key()))
}

#[rstest]
fn answer_rows_are_rows_of_the_full_head_for_every_posterior(#[values(false, true)] tied: bool) {
    let [left, right] = [true, false].map(|left| padded(&PROMPTS, left, DType::F64));
    for family in VariationalFamily::ALL {
        let model = adapted(model(tied, DType::F64), &variational(family), &["q_proj", "lm_head"]);
        check_rows(&model, 1, &passes());
        let [mean, batch, sequence] = passes().map(|pass| {
            let full = full_answers(&model, &left, &pass);
            close(&full_answers(&model, &right, &pass), &full, 1e-12);
            full
        });
        for drawn in [batch, sequence] {
            assert!(drawn.iter().zip(&mean).all(|(a, b)| (a - b).abs() > 1e-6), "{family:?}");
        }
    }
}

#[test]
fn a_plain_adapter_and_dropout_on_the_head_give_the_same_rows() {
    let settings = AdapterConfig { dropout: 0.4, ..lora() };
    let model = adapted(model(false, DType::F64), &settings, &["q_proj", "lm_head"]);
    let dropped = Pass::mean().with_dropout(NoiseKey::new(5));
    check_rows(&model, 1, &[Pass::mean(), Pass::sampled(Scheme::Nested, key()), dropped]);
}

#[test]
fn activation_noise_is_that_of_a_head_with_the_answers_only() {
    let all: Vec<u32> = (0..50).collect();
    for family in VariationalFamily::ALL {
        let model = adapted(model(false, DType::F64), &variational(family), &["lm_head"]);
        for scheme in [
            Scheme::MomentMatched(CrossTerm::Exact),
            Scheme::MomentMatched(CrossTerm::Omitted),
            Scheme::Nested,
        ] {
            let pass = Pass::sampled(scheme, key());
            let input = padded(&PROMPTS, true, DType::F64);
            // With every token as an answer the numbering is that of the full head.
            let expected = numbers(model.last_logits(&input, &pass));
            close(&numbers(model.answer_logits(&input, &all, &pass)), &expected, 1e-12);
            // And the first columns of one row have the same numbers in both.
            let one = padded(&PROMPTS[..1], true, DType::F64);
            let expected = numbers(model.last_logits(&one, &pass));
            close(&numbers(model.answer_logits(&one, &all[..6], &pass)), &expected[..6], 1e-12);
            let mean = numbers(model.answer_logits(&one, &all[..6], &Pass::mean()));
            let found = numbers(model.answer_logits(&one, &ANSWERS, &pass));
            assert!(found.iter().all(|v| v.is_finite()) && mean.len() == 6);
        }
    }
}

#[test]
fn gradients_through_the_answers_are_those_of_the_full_head() {
    for scheme in [Scheme::Mean, Scheme::Weights(DrawPer::Sequence)] {
        let settings = variational(VariationalFamily::ElementVariance);
        let model = adapted(model(true, DType::F64), &settings, &["v_proj", "lm_head"]);
        let pass = Pass::sampled(scheme, key());
        let input = padded(&PROMPTS, true, DType::F64);
        let ids = ANSWERS.map(|id| id as i32);
        let ids = Tensor::from_ints(ids.as_slice(), &Device::flex());
        let full = model.last_logits(&input, &pass).select(1, ids).square().sum().backward();
        let few = model.answer_logits(&input, &ANSWERS, &pass).square().sum().backward();
        let mut compared = 0;
        model.visit_parameters(&mut |p| {
            if !p.value.is_trainable() {
                return;
            }
            match (p.value.gradient(&full), p.value.gradient(&few)) {
                (Some(full), Some(few)) => close(&numbers(few), &numbers(full), 1e-11),
                (None, None) => {}
                other => panic!("{}: {other:?}", p.name),
            }
            compared += 1;
        });
        // Two factors and two variances for each of three layers.
        assert_eq!(compared, 12);
    }
}

#[rstest]
#[case(AdapterKind::BayesByBackprop { both: true, rho: -2.0, rho_std: 0.1, mean_std: Some(0.3) }, 1)]
#[case(AdapterKind::BayesByBackprop { both: false, rho: -2.0, rho_std: 0.0, mean_std: Some(0.3) }, 1)]
#[case(AdapterKind::Blob { epsilon: 0.5 }, 1)]
#[case(AdapterKind::ScalaBl { epsilon: 0.5 }, 1)]
#[case(AdapterKind::CLora { hidden: 4 }, 1)]
#[case(AdapterKind::LoraEnsemble { members: 2, gain: 1.0 }, 2)]
fn what_the_baselines_attach_gives_the_rows_of_the_full_head(
    #[case] kind: AdapterKind,
    #[case] members: usize,
) {
    let settings = AdapterConfig { kind, dropout: 0.2, ..lora() };
    let mut model = adapted(model(true, DType::F64), &settings, &["v_proj", "lm_head"]);
    // Up-projections that start at 0 would hide everything.
    model.visit_parameters_mut(&mut |p| {
        if p.name.ends_with("lora_B") || p.name.ends_with("lora_B_members") {
            let n = p.value.len();
            let values = (0..n).map(|i| (i as f64 * 0.7).sin() * 0.3).collect::<Vec<_>>();
            let device = p.value.flat().device();
            let values = TensorData::new(values, [n]);
            p.value.set_flat(Tensor::from_data(values, (&device, DType::F64)));
        }
    });
    let [mean, batch, sequence] = passes();
    let dropped = sequence.with_adapter_dropout(NoiseKey::new(8));
    check_rows(&model, members, &[mean, batch, sequence, dropped]);
    let flipout = Pass::sampled(Scheme::FLIPOUT, key());
    if check_scheme(&model, flipout.scheme).is_ok() {
        let input = padded(&PROMPTS, true, DType::F64).repeat(members);
        let found = numbers(model.answer_logits(&input, &ANSWERS, &flipout));
        assert!(found.iter().all(|v| v.is_finite()), "{settings:?}");
    }
}

#[test]
fn a_choice_checks_its_answers_and_is_the_model() {
    let model = model(false, DType::F64);
    let new = |ids: &[u32]| model.clone().answering(ids.to_vec());
    for (ids, expected) in [
        (&[3][..], "at least 2 tokens, found [3]"),
        (&[3, 50], "tokens below 50, the size of the model's vocabulary, found [3, 50]"),
        (&[3, 4, 3], "different tokens, found [3, 4, 3]"),
    ] {
        let error = new(ids).unwrap_err().to_string();
        assert_eq!(error, format!("`answer_ids` should be {expected}"));
    }
    let choice = new(&ANSWERS).unwrap();
    let text = padded(&PROMPTS, true, DType::F64);
    let found = choice.logits(&text, &Pass::mean());
    assert_eq!(found.dims(), [3, 3]);
    close(&numbers(found), &numbers(model.answer_logits(&text, &ANSWERS, &Pass::mean())), 0.0);
    let (mut of_choice, mut of_model) = (Vec::new(), Vec::new());
    choice.visit_parameters(&mut |p| of_choice.push(p.name.to_owned()));
    model.visit_parameters(&mut |p| of_model.push(p.name.to_owned()));
    assert_eq!(of_choice, of_model);
    assert_eq!(choice.answer_ids(), ANSWERS);
}

#[test]
fn a_score_is_a_product_with_the_hidden_state_of_the_last_real_token() {
    let device = Device::flex();
    for dtype in [DType::F64, DType::BF16] {
        // The name of a weight decides its values: the decoder is that of `model`.
        let mut source = WeightSource::random(NoiseKey::new(5), &device, dtype);
        let scorer = LlamaScore::load(&mut source, &config(true));
        source.finish().unwrap();
        let decoder = model(true, dtype);
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut weight = Vec::new();
        scorer.visit_parameters(&mut |p| {
            if p.group == Group::Head {
                assert_eq!((p.name, p.value.flat().dtype()), ("score.weight", wide));
                weight.extend(numbers(p.value.flat()));
            }
        });
        let input = padded(&PROMPTS, true, wide);
        let hidden = numbers(decoder.model.last_hidden(&input, &Pass::mean()));
        let product = |row: &[f64]| row.iter().zip(&weight).map(|(h, w)| h * w).sum::<f64>();
        let expected: Vec<f64> = hidden.chunks(20).map(product).collect();
        assert!(expected.iter().all(|score| score.abs() > 1e-3), "{expected:?}");
        let limit = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
        for left in [true, false] {
            let input = padded(&PROMPTS, left, wide);
            close(&numbers(scorer.forward(&input, &Pass::mean())), &expected, limit);
        }
    }
}
