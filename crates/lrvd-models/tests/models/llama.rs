//! Properties of the Llama port that hold without a reference: padding, caches, tied heads, answers, adapters.

use burn::tensor::DType;
use lrvd_burn::model::{AdapterTargets, NamedModule, attach_adapters};
use lrvd_burn::peft::{PeftConfig, TargetModules, attach_peft, peft_from_model};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;
use lrvd_models::Error;
use lrvd_models::llama::{GenerateOptions, KvCache, LlamaForCausalLm};

use crate::support::{
    ANSWERS, PROMPTS, adapted, close, enlarge, input, key, lora, model, numbers, padded,
    variational,
};

#[test]
fn padding_on_either_side_changes_nothing() {
    for tied in [false, true] {
        let model = adapted(model(tied, DType::F64), &lora(), &["q_proj", "v_proj", "lm_head"]);
        let pass = Pass::mean();
        let alone: Vec<f64> = PROMPTS
            .iter()
            .flat_map(|row| numbers(model.last_logits(&input(&[row], DType::F64), &pass)))
            .collect();
        for left in [true, false] {
            let together = padded(&PROMPTS, left, DType::F64);
            close(&numbers(model.last_logits(&together, &pass)), &alone, 1e-12);
        }
        // One more column of padding for everybody, in the middle too.
        let gaps: Vec<Vec<i64>> = PROMPTS
            .iter()
            .map(|row| {
                let mut row = row.to_vec();
                row.insert(1, -1);
                row.insert(0, -1);
                row
            })
            .collect();
        let gaps: Vec<&[i64]> = gaps.iter().map(Vec::as_slice).collect();
        close(&numbers(model.last_logits(&padded(&gaps, true, DType::F64), &pass)), &alone, 1e-12);
    }
}

#[test]
fn a_row_of_nothing_but_padding_is_finite_and_harmless() {
    let model = model(false, DType::F32);
    let rows: [&[i64]; 2] = [&[1, 7, 9], &[-1, -1, -1]];
    let logits = model.forward(&padded(&rows, true, DType::F32), &Pass::mean());
    assert!(numbers(logits.clone()).iter().all(|v| v.is_finite()));
    let alone = model.forward(&input(&[rows[0]], DType::F32), &Pass::mean());
    close(&numbers(logits.narrow(0, 0, 1)), &numbers(alone), 1e-5);
    // The gradient of a real row does not see it either.
    let model = adapted(model, &lora(), &["q_proj", "k_proj", "lm_head"]);
    let both = model.last_logits(&padded(&rows, true, DType::F32), &Pass::mean());
    let gradients = both.narrow(0, 0, 1).square().sum().backward();
    model.visit_parameters(&mut |p| {
        if let Some(gradient) = p.value.gradient(&gradients) {
            assert!(numbers(gradient).iter().all(|v| v.is_finite()), "{}", p.name);
        }
    });
}

#[test]
fn pieces_through_the_cache_equal_the_whole_text() {
    let model = adapted(
        model(false, DType::F64),
        &variational(VariationalFamily::RankVariance),
        &["q_proj", "v_proj", "down_proj", "lm_head"],
    );
    let whole = padded(&PROMPTS, true, DType::F64);
    let tokens = whole.ids.dims()[1];
    let draws = [
        Pass::mean(),
        Pass::sampled(Scheme::Weights(DrawPer::Batch), key()),
        Pass::sampled(Scheme::Weights(DrawPer::Sequence), key()),
    ];
    for pass in draws {
        let expected = numbers(model.forward(&whole, &pass).narrow(1, tokens - 1, 1));
        for cuts in [vec![tokens], vec![3, tokens - 3], vec![1; tokens], vec![2, 1, tokens - 3]] {
            let mut cache = KvCache::new();
            let (mut from, mut last) = (0, Vec::new());
            for columns in cuts {
                let ids = whole.ids.clone().narrow(1, from, columns);
                let mask = whole.mask.clone().narrow(1, from, columns);
                let logits = model.forward_cached(ids, mask, &mut cache, &pass);
                last = numbers(logits.narrow(1, columns - 1, 1));
                from += columns;
            }
            assert_eq!(cache.columns(), tokens);
            close(&last, &expected, 1e-12);
        }
    }
    let fixed = model.drawn(key());
    let drawn = Pass::sampled(Scheme::Weights(DrawPer::Batch), key());
    close(
        &numbers(fixed.forward(&whole, &Pass::mean())),
        &numbers(model.forward(&whole, &drawn)),
        1e-12,
    );
}

#[test]
fn a_tied_head_is_the_embedding() {
    let mut model = model(true, DType::F64);
    let (mut names, mut layers) = (Vec::new(), Vec::new());
    model.visit_parameters(&mut |p| names.push(p.name.to_owned()));
    model.visit_layers(&mut |path, _| layers.push(path.to_owned()));
    assert!(!names.iter().any(|name| name.starts_with("lm_head")), "{names:?}");
    assert_eq!(layers.last().unwrap(), "lm_head");
    // One more row in the file than layers need: the embedding counts once.
    assert_eq!(names.iter().filter(|name| name.ends_with("embed_tokens.weight")).count(), 1);
    let text = input(&[PROMPTS[0]], DType::F64);
    let before = numbers(model.last_logits(&text, &Pass::mean()));
    model.visit_parameters_mut(&mut |p| {
        if p.name == "model.embed_tokens.weight" {
            let doubled = p.value.flat().mul_scalar(2.0);
            p.value.set_flat(doubled);
        }
    });
    // Twice the embeddings in front, which the first norm takes away nearly, and twice the head behind.
    let after = numbers(model.last_logits(&text, &Pass::mean()));
    assert!(before.iter().zip(&after).any(|(b, a)| (a - b).abs() > 1e-3));
    let answers = numbers(model.answer_logits(&text, &ANSWERS, &Pass::mean()));
    for (&id, answer) in ANSWERS.iter().zip(answers) {
        assert!((after[id as usize] - answer).abs() < 1e-12);
    }
    let adapted = adapted(model, &lora(), &["lm_head"]);
    let mut names = Vec::new();
    adapted.visit_parameters(&mut |p| names.push(p.name.to_owned()));
    let tail: Vec<&str> = names.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(tail, ["lm_head.lora_B", "lm_head.lora_A"]);
}

#[test]
fn every_linear_layer_can_carry_an_adapter() {
    let mut model = model(false, DType::F64);
    let mut paths = Vec::new();
    model.visit_layers(&mut |path, _| paths.push(path.to_owned()));
    assert_eq!(paths.len(), 2 * 7 + 1);
    let mut weights = Vec::new();
    model.visit_parameters(&mut |p| weights.push(p.name.to_owned()));
    for path in &paths {
        assert!(weights.contains(&format!("{path}.weight")), "{path}");
    }
    let mut mutable = Vec::new();
    model.visit_layers_mut(&mut |path, _| mutable.push(path.to_owned()));
    assert_eq!(paths, mutable);
    let before = numbers(model.last_logits(&input(&[PROMPTS[0]], DType::F64), &Pass::mean()));
    for path in &paths {
        let targets = AdapterTargets::Paths(vec![path.clone()]);
        let mut one = model.clone();
        attach_adapters(&mut one, &targets, &lora(), NoiseKey::new(3)).unwrap();
        enlarge(&mut one);
        let after = numbers(one.last_logits(&input(&[PROMPTS[0]], DType::F64), &Pass::mean()));
        assert!(before.iter().zip(&after).any(|(b, a)| (a - b).abs() > 1e-6), "{path}");
    }
}

#[test]
fn half_precision_weights_keep_activations_and_adapters_wide() {
    let wide = model(false, DType::F32);
    for (dtype, limit) in [(DType::BF16, 0.1), (DType::F16, 0.02)] {
        let narrow = adapted(
            model(false, dtype),
            &variational(VariationalFamily::RankVariance),
            &["q_proj", "down_proj", "lm_head"],
        );
        assert_eq!(narrow.model.compute_dtype(), DType::F32);
        assert_eq!(narrow.model.embeddings().dtype(), dtype);
        narrow.visit_layers(&mut |path, layer| {
            assert_eq!(layer.weight.base().dtype(), dtype, "{path}");
            if let Some(adapter) = layer.low_rank() {
                assert_eq!(adapter.a.val().dtype(), DType::F32, "{path}");
                assert!(adapter.a.val().is_require_grad() && adapter.b.val().is_require_grad());
            }
        });
        let text = padded(&PROMPTS, true, DType::F32);
        let pass = Pass::sampled(Scheme::Weights(DrawPer::Sequence), key());
        let rows = numbers(narrow.answer_logits(&text, &ANSWERS, &pass));
        let full = numbers(narrow.last_logits(&text, &pass));
        for (i, row) in rows.iter().enumerate() {
            let id = ANSWERS[i % 3] as usize;
            assert!((row - full[i / 3 * 50 + id]).abs() < 1e-5);
        }
        // Training reaches the adapters in single precision.
        let loss = narrow.answer_logits(&text, &ANSWERS, &pass).square().sum();
        let gradients = loss.backward();
        let mut reached = 0;
        narrow.visit_parameters(&mut |p| {
            if let Some(gradient) = p.value.gradient(&gradients) {
                assert_eq!(gradient.dtype(), DType::F32, "{}", p.name);
                reached += 1;
            }
        });
        assert!(reached >= 9, "{reached}");
        let plain = model(false, dtype);
        let (a, b) =
            (plain.last_logits(&text, &Pass::mean()), wide.last_logits(&text, &Pass::mean()));
        let (a, b) = (numbers(a), numbers(b));
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < limit, "{dtype:?}: {worst}");
    }
}

#[test]
fn adapters_keep_every_bit_on_a_half_precision_base() {
    let values = |model: &LlamaForCausalLm| {
        let mut found = Vec::new();
        model.visit_layers(&mut |_, layer| {
            found.extend(layer.low_rank().iter().map(|a| (numbers(a.a.val()), numbers(a.b.val()))));
        });
        assert!(!found.is_empty());
        found
    };
    let targets = ["q_proj", "lm_head"];
    let wide = adapted(model(false, DType::F32), &lora(), &targets);
    // Fresh ones...
    let narrow = adapted(model(false, DType::BF16), &lora(), &targets);
    assert_eq!(values(&narrow), values(&wide));
    // ... and those of a file.
    let names = targets.map(str::to_owned).to_vec();
    let settings = PeftConfig::lora(3, 6.0, TargetModules::Names(names));
    let saved = peft_from_model(&wide, &settings).unwrap();
    let mut loaded = model(false, DType::BF16);
    attach_peft(&mut loaded, &saved, true).unwrap();
    assert_eq!(values(&loaded), values(&wide));
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|z| (z - most).exp()).sum();
    logits.iter().map(|z| (z - most).exp() / total).collect()
}

fn entropy(probabilities: &[f64]) -> f64 {
    -probabilities.iter().map(|p| p * p.ln()).sum::<f64>()
}

#[test]
fn continuations_do_not_depend_on_company_and_stop_where_told() {
    let model = adapted(
        model(true, DType::F64),
        &variational(VariationalFamily::RankVariance),
        &["q_proj", "lm_head"],
    );
    let prompts: Vec<Vec<u32>> =
        PROMPTS.iter().map(|row| row.iter().map(|&id| id as u32).collect()).collect();
    let mut options = GenerateOptions { max_new_tokens: 6, ..GenerateOptions::default() };
    let several: Vec<NoiseKey> = (0..3).map(|draw| key().at_step(draw)).collect();
    for draws in [Vec::new(), vec![key()], several] {
        options.draws.clone_from(&draws);
        let together = model.generate_greedy(&prompts, &options).unwrap();
        for (prompt, text) in prompts.iter().zip(&together) {
            assert_eq!(text.len(), 6);
            let alone = model.generate_greedy(std::slice::from_ref(prompt), &options).unwrap();
            assert_eq!(&alone[0], text);
            // Each token is the best of the whole text so far.
            let mut so_far: Vec<i64> = prompt.iter().map(|&id| i64::from(id)).collect();
            let of_draw = |key| Pass::sampled(Scheme::Weights(DrawPer::Batch), key);
            let mut passes: Vec<Pass> = draws.iter().copied().map(of_draw).collect();
            if passes.is_empty() {
                passes.push(Pass::mean());
            }
            let known = &model.generate(std::slice::from_ref(prompt), &options).unwrap()[0];
            for (&token, known) in text.iter().zip(&known.tokens) {
                // The whole text again, without a cache and pass by pass.
                let batch = input(&[&so_far], DType::F64);
                let each: Vec<Vec<f64>> = passes
                    .iter()
                    .map(|pass| softmax(&numbers(model.last_logits(&batch, pass))))
                    .collect();
                let n = each.len() as f64;
                let mean: Vec<f64> = (0..each[0].len())
                    .map(|i| each.iter().map(|p| p[i]).sum::<f64>() / n)
                    .collect();
                let best = (0..mean.len()).max_by(|&a, &b| mean[a].total_cmp(&mean[b]));
                assert_eq!((best, known.id), (Some(token as usize), token));
                let information = entropy(&mean) - each.iter().map(|p| entropy(p)).sum::<f64>() / n;
                assert!((known.probability - mean[token as usize]).abs() < 1e-9);
                assert!((known.entropy - entropy(&mean)).abs() < 1e-9);
                assert!((known.mutual_information - information.max(0.0)).abs() < 1e-9);
                assert_eq!(draws.len() > 1, known.mutual_information > 1e-6);
                so_far.push(i64::from(token));
            }
        }
        let stop = together[0][2];
        options.stop = vec![stop];
        let stopped = model.generate_greedy(&prompts, &options).unwrap();
        let expected = together[0].iter().position(|&id| id == stop).unwrap();
        assert_eq!(stopped[0], together[0][..expected]);
        options.stop.clear();
    }
    // A stop after three of the six tokens is an error; after the last one it changes nothing.
    for (enough, ends) in [(3, 3), (6, 6)] {
        let mut added = Vec::new();
        let found = model.generate_while(&prompts, &options, &mut |tokens| {
            added.push(tokens);
            added.len() < enough
        });
        assert_eq!(added, vec![prompts.len(); ends]);
        match found {
            Ok(texts) => {
                assert_eq!((ends, &texts), (6, &model.generate(&prompts, &options).unwrap()));
            }
            Err(error) => assert!(ends == 3 && matches!(error, Error::Stopped), "{error}"),
        }
    }
    for (prompts, expected) in [
        ([vec![1], vec![]], "prompt 1 has no tokens"),
        ([vec![1, 50], vec![1]], "prompt 0 has token 50 at position 1, the model has 50 tokens"),
    ] {
        let error = model.generate_greedy(&prompts, &options).unwrap_err();
        assert!(matches!(&error, Error::Text(text) if text == expected), "{error}");
    }
    assert!(model.generate_greedy(&[], &options).unwrap().is_empty());
}
