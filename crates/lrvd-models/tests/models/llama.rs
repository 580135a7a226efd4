//! The head over a few answers, scores and continuations of a Llama, and the shipped model stories260K.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_burn::adapter::AdapterKind;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_core::posterior::VariationalFamily;
use lrvd_models::llama::{GenerateOptions, LlamaConfig, LlamaForCausalLm, LlamaScore};
use lrvd_models::tokenizer::TextTokenizer;
use lrvd_models::{Error, WeightSource};
use rstest::rstest;
use serde_json::Value;

use crate::support::{
    ANSWERS, LORA, NOISY, PROMPTS, adapted, batch, close, config, golden, left_padded, llama,
    numbers, qwen,
};

fn key() -> NoiseKey {
    NoiseKey::new(11).at_step(3)
}

/// The head over the answers gives their rows of the full head under every scheme that the adapter has, wherever the padding is.
#[rstest]
#[case(NOISY)]
#[case(AdapterKind::Variational { family: VariationalFamily::ElementVariance, initial: -3.0 })]
#[case(LORA)]
#[case(AdapterKind::BayesByBackprop { both: true, rho: -2.0, rho_std: 0.1, mean_std: None })]
#[case(AdapterKind::Blob { epsilon: 0.5 })]
fn answers_are_rows_of_the_full_head(#[case] kind: AdapterKind) {
    let model = adapted(llama(DType::F64), kind, &["v_proj", "lm_head"]);
    let sequence = Pass::sampled(Scheme::PerSequence, key());
    for pass in [
        Pass::mean(),
        Pass::sampled(Scheme::PerBatch, key()),
        sequence,
        sequence.with_adapter_dropout(NoiseKey::new(8)),
    ] {
        for input in [left_padded(&PROMPTS, DType::F64), batch(&PROMPTS, DType::F64)] {
            let full = numbers(model.last_logits(&input, &pass));
            let rows = full.chunks(50).flat_map(|row| ANSWERS.map(|id| row[id as usize]));
            let found = numbers(model.answer_logits(&input, &ANSWERS, &pass));
            close(&found, &rows.collect::<Vec<_>>(), 1e-12);
        }
    }
}

/// With every token as an answer the noise of activations is that of the full head.
#[test]
fn activation_noise_is_that_of_a_head_with_the_answers_only() {
    let all: Vec<u32> = (0..50).collect();
    let model = adapted(llama(DType::F64), NOISY, &["lm_head"]);
    for scheme in [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested, Scheme::PerToken] {
        let pass = Pass::sampled(scheme, key());
        let input = left_padded(&PROMPTS, DType::F64);
        let expected = numbers(model.last_logits(&input, &pass));
        close(&numbers(model.answer_logits(&input, &all, &pass)), &expected, 1e-12);
    }
}

#[test]
fn answers_of_a_choice_are_different_tokens_of_the_model() {
    for (ids, expected) in [
        (&[3][..], "at least 2 tokens, found [3]"),
        (&[3, 50], "tokens below 50, the size of the model's vocabulary, found [3, 50]"),
        (&[3, 4, 3], "different tokens, found [3, 4, 3]"),
    ] {
        let error = llama(DType::F64).answering(ids.to_vec()).unwrap_err().to_string();
        assert_eq!(error, format!("`answer_ids` should be {expected}"));
    }
}

#[rstest]
#[case(DType::F64, DType::F64, 1e-12)]
#[case(DType::BF16, DType::F32, 1e-5)]
fn a_score_is_a_product_with_the_hidden_state_of_the_last_real_token(
    #[case] dtype: DType,
    #[case] wide: DType,
    #[case] limit: f64,
) {
    // The name of a weight decides its values: the decoder is that of `llama`.
    let device = Device::flex();
    let scorer =
        LlamaScore::load(&mut WeightSource::random(NoiseKey::new(5), &device, dtype), &config(), 1);
    let mut weight = Vec::new();
    scorer.visit_parameters(&mut |p| {
        if p.group == Group::Head {
            assert_eq!((p.name, p.value.flat().dtype()), ("score.weight", wide));
            weight.extend(numbers(p.value.flat()));
        }
    });
    let input = left_padded(&PROMPTS, wide);
    let hidden = numbers(llama(dtype).model.last_hidden(&input, &Pass::mean()));
    let product = |row: &[f64]| row.iter().zip(&weight).map(|(h, w)| h * w).sum::<f64>();
    let expected: Vec<f64> = hidden.chunks(20).map(product).collect();
    assert!(expected.iter().all(|score| score.abs() > 1e-3), "{expected:?}");
    for input in [input, batch(&PROMPTS, wide)] {
        close(&numbers(scorer.forward(&input, &Pass::mean())), &expected, limit);
    }
}

#[test]
fn a_row_of_nothing_but_padding_is_finite_and_harmless() {
    let model = adapted(llama(DType::F32), LORA, &["q_proj", "k_proj", "lm_head"]);
    let logits = model.last_logits(&left_padded(&[PROMPTS[0], &[]], DType::F32), &Pass::mean());
    assert!(numbers(logits.clone()).iter().all(|v| v.is_finite()));
    let gradients = logits.narrow(0, 0, 1).square().sum().backward();
    model.visit_parameters(&mut |p| {
        if let Some(gradient) = p.value.gradient(&gradients) {
            assert!(numbers(gradient).iter().all(|v| v.is_finite()), "{}", p.name);
        }
    });
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|z| (z - most).exp()).sum();
    logits.iter().map(|z| (z - most).exp() / total).collect()
}

fn entropy(probabilities: &[f64]) -> f64 {
    -probabilities.iter().map(|p| p * p.ln()).sum::<f64>()
}

/// Each token is the best of the whole text so far, without a cache and company, averaged over the draws; with a window,
/// too.
#[rstest]
#[case(llama(DType::F64))]
#[case(qwen(DType::F64))]
fn continuations_are_those_of_whole_texts_and_stop_where_told(#[case] model: LlamaForCausalLm) {
    let model = adapted(model, NOISY, &["q_proj", "lm_head"]);
    let prompts = PROMPTS.map(<[u32]>::to_vec);
    let mut options = GenerateOptions { max_new_tokens: 6, ..GenerateOptions::default() };
    for draws in [0, 1, 3] {
        options.draws = (0..draws).map(|draw| key().at_step(draw)).collect();
        let of_draw = |key| Pass::sampled(Scheme::PerBatch, key);
        let mut passes: Vec<Pass> = options.draws.iter().copied().map(of_draw).collect();
        if passes.is_empty() {
            passes.push(Pass::mean());
        }
        for (prompt, text) in prompts.iter().zip(model.generate(&prompts, &options).unwrap()) {
            assert_eq!(text.tokens.len(), 6);
            let mut so_far = prompt.clone();
            for token in text.tokens {
                let batch = batch(&[&so_far], DType::F64);
                let each: Vec<Vec<f64>> = passes
                    .iter()
                    .map(|pass| softmax(&numbers(model.last_logits(&batch, pass))))
                    .collect();
                let n = each.len() as f64;
                let mean: Vec<f64> =
                    (0..50).map(|i| each.iter().map(|p| p[i]).sum::<f64>() / n).collect();
                let best = (0..50).max_by(|&a, &b| mean[a].total_cmp(&mean[b]));
                assert_eq!(best, Some(token.id as usize));
                let information = entropy(&mean) - each.iter().map(|p| entropy(p)).sum::<f64>() / n;
                let found = [token.probability, token.entropy, token.mutual_information];
                let best = mean[token.id as usize];
                close(&found, &[best, entropy(&mean), information.max(0.0)], 1e-9);
                so_far.push(token.id);
            }
        }
    }
    let all = model.generate_greedy(&prompts, &options).unwrap();
    let stop = all[0][2];
    let stopping = GenerateOptions { stop: vec![stop], ..options.clone() };
    let stopped = model.generate_greedy(&prompts, &stopping).unwrap();
    let end = all[0].iter().position(|&id| id == stop).unwrap();
    assert_eq!(stopped[0], all[0][..end]);
    // Each prompt has the room that it has alone.
    let longest = prompts.iter().map(Vec::len).max().unwrap();
    let limited = GenerateOptions { context: Some(longest + 1), ..options.clone() };
    let expected: Vec<_> = prompts
        .iter()
        .zip(&all)
        .map(|(prompt, ids)| ids[..6.min(longest + 1 - prompt.len())].to_vec())
        .collect();
    assert!(expected.iter().any(|ids| ids.len() == 1) && expected.iter().any(|ids| ids.len() > 1));
    assert_eq!(model.generate_greedy(&prompts, &limited).unwrap(), expected);
    let none = GenerateOptions { context: Some(1), ..options.clone() };
    assert!(model.generate_greedy(&prompts, &none).unwrap().iter().all(Vec::is_empty));
    // A stop after three of the six tokens is an error; after the last one it changes nothing.
    for enough in [3, 6] {
        let mut added = vec![Vec::new(); prompts.len()];
        let mut steps = 0;
        let found = model.generate_while(&prompts, &options, &mut |tokens| {
            for (row, token) in tokens {
                added[*row].push(token.id);
            }
            steps += 1;
            if steps < enough { ControlFlow::Continue(Vec::new()) } else { ControlFlow::Break(()) }
        });
        let expected: Vec<_> = all.iter().map(|ids| ids[..enough].to_vec()).collect();
        assert_eq!(added, expected);
        assert_eq!(matches!(found, Err(Error::Stopped)), enough == 3);
    }
    // The second text ends after two tokens, the others do not.
    let mut steps = 0;
    let ended = model.generate_while(&prompts, &options, &mut |_| {
        steps += 1;
        ControlFlow::Continue(if steps == 2 { vec![1] } else { Vec::new() })
    });
    for (row, (text, ids)) in ended.unwrap().iter().zip(&all).enumerate() {
        let found: Vec<u32> = text.tokens.iter().map(|token| token.id).collect();
        assert_eq!(found, ids[..if row == 1 { 2 } else { 6 }]);
    }
    for (prompts, expected) in [
        ([vec![1], vec![]], "prompt 1 has no tokens"),
        ([vec![1, 50], vec![1]], "prompt 0 has token 50 at position 1, the model has 50 tokens"),
    ] {
        let error = model.generate_greedy(&prompts, &options).unwrap_err();
        assert!(matches!(&error, Error::Text(text) if text == expected), "{error}");
    }
}

/// A prompt's token has the probability that it has as a continuation of the tokens before it, beside prompts of other lengths.
#[test]
fn tokens_of_a_prompt_are_scored_by_the_tokens_before_them() {
    let model = adapted(llama(DType::F64), NOISY, &["q_proj", "lm_head"]);
    let prompts = PROMPTS.map(<[u32]>::to_vec);
    for draws in [0, 1, 3] {
        let draws = (0..draws).map(|draw| key().at_step(draw)).collect();
        let options =
            GenerateOptions { draws, score_prompts: true, top: 2, ..GenerateOptions::default() };
        let found = model.generate(&prompts, &options).unwrap();
        let one = GenerateOptions { max_new_tokens: 1, top: 50, ..options.clone() };
        for (prompt, text) in prompts.iter().zip(&found) {
            assert!(text.tokens.is_empty() && text.end.is_none());
            assert_eq!(text.prompt.len(), prompt.len() - 1);
            for (place, token) in text.prompt.iter().enumerate() {
                let next = model.generate(&[prompt[..=place].to_vec()], &one).unwrap().remove(0);
                let next = next.tokens[0].clone();
                assert_eq!(token.id, prompt[place + 1]);
                let own = next.top.iter().find(|(id, _)| *id == token.id).unwrap().1;
                close(&[token.probability, token.entropy], &[own, next.entropy], 1e-9);
                let ids = |top: &[(u32, f64)]| [top[0].0, top[1].0];
                assert_eq!(ids(&token.top), ids(&next.top));
            }
        }
        let more = model.generate(&prompts, &GenerateOptions { max_new_tokens: 3, ..options });
        for (more, text) in more.unwrap().iter().zip(&found) {
            assert_eq!((more.tokens.len(), &more.prompt), (3, &text.prompt));
        }
    }
}

/// The published story, and logits of an independent forward pass in six decimals.
#[rstest]
#[case(DType::F32, 2e-5)]
#[case(DType::F64, 6e-7)]
fn the_story_and_its_logits_are_the_published_ones(#[case] dtype: DType, #[case] limit: f64) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/stories260K");
    let config = LlamaConfig::read(&shipped.join("config.json")).unwrap();
    assert!(config.unrecognised.is_empty());
    let store = WeightStore::open(&shipped).unwrap();
    let model = LlamaForCausalLm::from_pretrained(&store, &config, &Device::flex(), dtype).unwrap();
    let file = std::fs::read(golden("stories260k/expected_greedy.json")).unwrap();
    let json: Value = serde_json::from_slice(&file).unwrap();
    let ids: Vec<u32> = serde_json::from_value(json["token_ids"].clone()).unwrap();
    let options = GenerateOptions { max_new_tokens: 200, ..GenerateOptions::default() };
    assert_eq!(model.0.generate_greedy(&[vec![1]], &options).unwrap()[0], ids[1..]);
    let logits = numbers(model.0.forward(&batch(&[&ids], dtype), &Pass::mean()));
    for (position, expected) in json["logits_after_position"].as_object().unwrap() {
        let expected: Vec<f64> = serde_json::from_value(expected.clone()).unwrap();
        let start = position.parse::<usize>().unwrap() * 512;
        let worst = expected.iter().zip(&logits[start..start + 512]);
        let worst = worst.map(|(w, f)| (w - f).abs()).fold(0.0, f64::max);
        assert!(expected.len() == 512 && worst < limit, "{position}: {worst}");
    }
    let tokenizer = TextTokenizer::from_dir(&shipped).unwrap();
    let text = json["text_published"].as_str().unwrap();
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
    assert_eq!(tokenizer.encode(text, None, None).unwrap().get_ids(), ids);
}
