//! Options that are scored by their texts, beside the same texts read one by one.

use burn::tensor::{DType, Tensor, activation};
use lrvd_burn::model::NamedModule;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::Model;
use lrvd_core::noise::NoiseKey;
use lrvd_models::llama::LlamaForCausalLm;
use lrvd_models::{Prefixes, ScoredOptions, TokenBatch};
use rstest::rstest;

use crate::support::{ANSWERS, NOISY, PROMPTS, adapted, batch, close, llama, numbers, qwen};

const OPTIONS: [&[u32]; 5] =
    [&[30, 12, 2, 9], &[4], &[30, 12, 5], &[17, 17], &[8, 1, 1, 6, 40, 22]];

/// Of one token each.
const SINGLE: [&[u32]; 2] = [&[4], &[17]];

fn owned(options: &[&[u32]]) -> Vec<Vec<u32>> {
    options.iter().map(|option| option.to_vec()).collect()
}

fn drawn() -> Pass {
    Pass::sampled(Scheme::PerBatch, NoiseKey::new(12).at_step(5))
}

/// The mean log-probability of each option, each behind a separate copy of the prompt: `[1, options]`.
fn one_by_one(
    model: &LlamaForCausalLm,
    prompt: &[u32],
    options: &[&[u32]],
    pass: &Pass,
) -> Tensor<2> {
    let score = |option: &&[u32]| {
        let text = [prompt, option].concat();
        let logits = model.forward(&batch(&[&text], DType::F64), pass);
        let logs = activation::log_softmax(logits, 2);
        let tokens = option.iter().enumerate().map(|(i, &id)| {
            let (column, id) = (prompt.len() + i - 1, id as usize);
            logs.clone().slice([0..1, column..column + 1, id..id + 1]).reshape([1, 1])
        });
        Tensor::cat(tokens.collect(), 1).mean_dim(1)
    };
    Tensor::cat(options.iter().map(score).collect(), 1)
}

/// A Llama, and a Qwen3 with a layer that sees three tokens; at the mean and of a draw, with the gradients of all parameters.
/// Five options and two, of several tokens and of one.
#[rstest]
#[case(llama(DType::F64))]
#[case(qwen(DType::F64))]
fn an_option_has_the_score_of_its_text_alone(
    #[case] model: LlamaForCausalLm,
    #[values(&OPTIONS[..], &OPTIONS[1..3], &SINGLE)] options: &[&[u32]],
) {
    let model = adapted(model, NOISY, &["q_proj", "v_proj", "down_proj", "lm_head"]);
    let prompt = PROMPTS[0];
    let ids = batch(&[prompt], DType::F64).ids;
    for pass in [Pass::mean(), drawn()] {
        let found = model.option_logits(ids.clone(), None, &owned(options), &pass);
        let expected = one_by_one(&model, prompt, options, &pass);
        close(&numbers(found.clone()), &numbers(expected.clone()), 1e-12);
        let weights =
            Tensor::<2>::from_data([[1.0, -2.0, 0.5, 3.0, -1.5]], (&ids.device(), DType::F64));
        let weights = weights.narrow(1, 0, options.len());
        let [found, expected] =
            [found, expected].map(|scores| (scores * weights.clone()).sum().backward());
        let mut compared = 0;
        model.visit_parameters(&mut |p| {
            if let (Some(found), Some(expected)) =
                (p.value.gradient(&found), p.value.gradient(&expected))
            {
                close(&numbers(found), &numbers(expected), 1e-10);
                compared += 1;
            }
        });
        assert!(compared >= 8, "{compared}");
    }
}

/// Of options with one token each the probabilities are those of the tokens' logits: what is normalised over the vocabulary first
/// is the same shift of all.
#[test]
fn options_of_one_token_are_answer_tokens() {
    let model = adapted(llama(DType::F64), NOISY, &["q_proj", "v_proj", "lm_head"]);
    let input = batch(&[PROMPTS[0]], DType::F64);
    for pass in [Pass::mean(), drawn()] {
        let options: Vec<Vec<u32>> = ANSWERS.iter().map(|&id| vec![id]).collect();
        let found = model.option_logits(input.ids.clone(), None, &options, &pass);
        let expected = model.answer_logits(&input, &ANSWERS, &pass);
        let [found, expected] =
            [found, expected].map(|logits| numbers(activation::log_softmax(logits, 1)));
        close(&found, &expected, 1e-12);
    }
}

/// Rows by letters have the bits that they have alone; several draws are as many passes.
#[test]
fn rows_of_a_batch_are_answered_by_letters_or_by_their_options() {
    let model = adapted(llama(DType::F32), NOISY, &["q_proj", "v_proj"]);
    let model = model.answering(ANSWERS.to_vec()).unwrap();
    let scored = |row: usize, options: &[Vec<u32>]| {
        let (prompt, options) = (PROMPTS[row].len(), options.into());
        Some(ScoredOptions { prompt, options })
    };
    let all = owned(&OPTIONS);
    let mixed = TokenBatch {
        scored: vec![scored(0, &all), None, scored(2, &all[..4])],
        ..batch(&PROMPTS, DType::F32)
    };
    let mixed = mixed.with_answer_mask(&[5, 3, 4], 5);
    let alone = |row: usize, pass: &Pass| {
        let input = batch(&[PROMPTS[row]], DType::F32);
        let kept = mixed.scored[row].clone();
        numbers(match kept {
            Some(ScoredOptions { options, .. }) => {
                model.option_logits(input.ids, None, &options, pass)
            }
            None => model.logits(&input, pass),
        })
    };
    let next = Pass { noise: drawn().noise.at_step(6), ..drawn() };
    for (pass, each) in
        [(Pass::mean(), vec![Pass::mean()]), (drawn().with_draws(2, 3), vec![drawn(), next])]
    {
        let found = numbers(model.logits(&mixed, &pass));
        assert_eq!(found.len(), each.len() * 15);
        for (draw, one) in each.iter().enumerate() {
            for row in 0..3 {
                let found = &found[(draw * 3 + row) * 5..][..5];
                let expected = alone(row, one);
                assert_eq!(found[..expected.len()], expected, "row {row} of draw {draw}");
                assert!(found[expected.len()..].iter().all(|score| *score < -9e5));
            }
        }
    }
}

/// Two questions about one state, by letters or by their options: the answers of whole passes, and the same bits whichever was
/// read first.
#[rstest]
#[case(llama(DType::F64), false)]
#[case(llama(DType::F64), true)]
#[case(qwen(DType::F64), true)]
fn a_prefix_is_read_once_for_all_that_start_with_it(
    #[case] model: LlamaForCausalLm,
    #[case] is_scored: bool,
) {
    let model = adapted(model, NOISY, &["k_proj", "v_proj", "lm_head"]);
    let model = model.answering(ANSWERS.to_vec()).unwrap();
    let of = |text: &[u32]| {
        let scored = ScoredOptions { prompt: text.len(), options: owned(&OPTIONS).into() };
        let scored = is_scored.then_some(Some(scored)).into_iter().collect();
        TokenBatch { scored, ..batch(&[text], DType::F64) }
    };
    let texts: [&[u32]; 2] = [&[1, 7, 9, 30, 12, 2], &[1, 7, 9, 30, 5]];
    let dropped = Pass::mean().with_dropout(NoiseKey::new(1));
    for pass in [Pass::mean(), drawn(), drawn().with_draws(3, 1), dropped] {
        let ask = |known: &Prefixes, text: usize| {
            let prefix = Some((texts[0][..4].to_vec(), known.clone()));
            let input = TokenBatch { prefix, ..of(texts[text]) };
            numbers(model.logits(&input, &pass))
        };
        let (both, other) = (Prefixes::default(), Prefixes::default());
        let found = [0, 1].map(|text| ask(&both, text));
        assert_eq!([1, 0].map(|text| ask(&other, text)), [found[1].clone(), found[0].clone()]);
        for (found, text) in found.iter().zip(texts) {
            let expected = numbers(model.logits(&of(text), &pass));
            close(found, &expected, 1e-12);
        }
    }
}
