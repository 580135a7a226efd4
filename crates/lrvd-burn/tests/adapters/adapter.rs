//! Draws, shared rows, dropout and the frozen base of an adapted layer.

use crate::support::prelude::*;
use burn::tensor::Device;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::{AdapterTargets, Names, attach_adapters};
use lrvd_burn::ops::dropout;
use lrvd_burn::peft::{PeftAdapter, PeftConfig, PeftModule, TargetModules, attach_peft};
use lrvd_burn::sampling::DrawSet;
use lrvd_core::moments::{moments, output_covariance};

/// A layer of the default family.
fn variational(dtype: DType) -> AdaptedLinear {
    layer(&noisy(VariationalFamily::RankVariance), dtype)
}

/// The update alone of one input row for many independent draws, `[draws, d_output]`.
fn draws(layer: &AdaptedLinear, row: &[f64], scheme: Scheme, n: usize) -> Vec<f64> {
    let (steps, sequences) = (8, n / 8);
    let x = tensor(&row.repeat(sequences), [sequences, 1, D_INPUT], DType::F64);
    let base = bare(DType::F64).forward_with(x.clone(), &Pass::mean());
    let pass = |step| Pass::sampled(scheme, NoiseKey::new(77).at_step(step));
    (0..steps)
        .flat_map(|step| host(layer.forward_with(x.clone(), &pass(step)) - base.clone()))
        .collect()
}

#[test]
fn draws_have_the_moments_of_the_posterior() {
    const N: usize = 40_000;
    let row = &numbers(1, D_INPUT);
    for family in VariationalFamily::ALL {
        let layer = layer(&noisy(family), DType::F64);
        let adapter = HostAdapter::read(of(&layer));
        let posterior = adapter.posterior().unwrap().unwrap();
        let c2 = adapter.scaling * adapter.scaling;
        for scheme in SCHEMES {
            if matches!(scheme, Scheme::Mean | Scheme::Weights(DrawPer::Batch)) {
                continue;
            }
            let cross = match scheme {
                Scheme::MomentMatched(cross) => cross,
                _ => CrossTerm::Exact,
            };
            let expected = moments(&posterior, row, cross).unwrap();
            let covariance = match scheme {
                // Independent noise per output.
                Scheme::MomentMatched(_) => 0.0,
                _ => c2 * output_covariance(&posterior, row, cross).unwrap()[1],
            };
            let sample = draws(&layer, row, scheme, N);
            let mut centred = Vec::new();
            for o in 0..D_OUTPUT {
                let mean = adapter.scaling * expected.mean[o];
                let column = sample.iter().skip(o).step_by(D_OUTPUT).map(|y| y - mean);
                centred.push(column.collect::<Vec<f64>>());
                let variance = c2 * expected.variance[o];
                within(&format!("{family} {scheme:?} mean {o}"), centred[o].iter().copied(), 0.0);
                let squares = centred[o].iter().map(|d| d * d);
                within(&format!("{family} {scheme:?} variance {o}"), squares, variance);
            }
            let products = centred[0].iter().zip(&centred[1]).map(|(x, y)| x * y);
            within(&format!("{family} {scheme:?} covariance"), products, covariance);
        }
    }
}

#[test]
fn a_key_names_its_draw_and_no_other() {
    let posteriors = VariationalFamily::ALL.map(|family| layer(&noisy(family), DType::F32));
    let extensions = [
        element_noise(StdMap::Square, false, DType::F32),
        element_noise(StdMap::Softplus, true, DType::F32),
        scale_noise(DType::F32),
        context_noise(DType::F32),
    ];
    let extensions = extensions.map(|extension| extended(extension, DType::F32));
    for (i, layer) in posteriors.into_iter().chain(extensions).enumerate() {
        let mut elsewhere = bare(DType::F32);
        elsewhere.attach("net.other", of(&layer).clone(), RANK).unwrap();
        let schemes = SCHEMES.into_iter().chain([Scheme::FLIPOUT]);
        for scheme in schemes.filter(|s| *s != Scheme::Mean && layer.supports(*s)) {
            let run = |layer: &AdaptedLinear, key| {
                host(layer.forward_with(inputs(DType::F32), &Pass::sampled(scheme, key)))
            };
            let (name, key) = (format!("layer {i} {scheme:?}"), NoiseKey::new(1).at_step(4));
            let first = run(&layer, key);
            same(&name, &run(&layer, key), &first);
            same(&name, &run(&layer.clone(), key), &first);
            for (what, other) in [
                ("step", run(&layer, key.at_step(5))),
                ("seed", run(&layer, NoiseKey { seed: 2, ..key })),
                ("module", run(&elsewhere, key)),
            ] {
                all_differ(&format!("{name}: another {what}"), &first, &other);
            }
        }
    }
}

#[test]
fn a_draw_per_batch_is_one_and_a_draw_per_sequence_is_several() {
    let layer = variational(DType::F64);
    // Both sequences are the same, and so are the first two tokens of each.
    let row = numbers(1, 2 * D_INPUT);
    let sequence: Vec<f64> = [&row[..D_INPUT], &row[..D_INPUT], &row[D_INPUT..]].concat();
    let x = tensor(&[&sequence[..], &sequence].concat(), [BATCH, TOKENS, D_INPUT], DType::F64);
    let run = |scheme| {
        let out = host(layer.forward_with(x.clone(), &Pass::sampled(scheme, NoiseKey::new(9))));
        let token = |i: usize| out[i * D_OUTPUT..(i + 1) * D_OUTPUT].to_vec();
        (token(0), token(1), token(3))
    };
    let (first, next, other) = run(Scheme::Weights(DrawPer::Batch));
    close("tokens of a sequence", &first, &next, 1e-14);
    close("sequences of a batch", &first, &other, 1e-14);
    let (first, next, other) = run(Scheme::Weights(DrawPer::Sequence));
    close("tokens of a sequence", &first, &next, 1e-14);
    all_differ("sequences of a batch", &first, &other);
    for scheme in [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested] {
        let (first, next, _) = run(scheme);
        all_differ(&format!("{scheme:?}: tokens"), &first, &next);
    }
}

#[test]
fn numbers_do_not_depend_on_the_threads() {
    // Large enough for several tasks of every operator and for a parallel product.
    let (sequences, tokens, d_input, d_output) = (4, 64, 96, 160);
    let config = AdapterConfig { rank: 8, ..AdapterConfig::default() };
    let x = numbers(1, sequences * tokens * d_input);
    for scheme in SCHEMES {
        let [one, three] = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut layer = base("wide", d_input, d_output, DType::F32);
                config.attach(&mut layer, "net.first", NoiseKey::new(3)).unwrap();
                let x = leaf(&x, [sequences, tokens, d_input], DType::F32);
                let pass = Pass::sampled(scheme, NoiseKey::new(3)).with_dropout(NoiseKey::new(4));
                let out = layer.forward_with(x.clone(), &pass);
                let gradients = out.clone().square().sum().backward();
                let leaves = layer_gradients(&layer, &gradients).concat();
                [host(out), gradient(&x, &gradients), leaves]
            })
        });
        assert!(one == three, "{scheme:?}");
    }
}

#[test]
fn shared_rows_meet_the_draws_of_the_tokens() {
    const ROWS: usize = 6;
    let rows = numbers(5, ROWS * D_INPUT);
    for family in VariationalFamily::ALL {
        let layer = layer(&noisy(family), DType::F64);
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(11).at_step(2));
            let blocks = if scheme == Scheme::Weights(DrawPer::Sequence) { BATCH } else { 1 };
            let x = leaf(&rows, [ROWS, D_INPUT], DType::F64);
            let prepared = layer.prepare(&pass, BATCH);
            let out = prepared.forward_shared(x.clone());
            assert_eq!(out.dims(), [blocks, ROWS, D_OUTPUT], "{scheme:?}");
            // The core is given the rows once for every sequence.
            let name = format!("{family} {scheme:?}");
            let of_core = reference(&layer, [blocks, blocks * ROWS], pass, 1);
            check(&name, out.clone(), &leaves_with(x, &layer), 1e-12, |leaves| {
                of_core(&[&[leaves[0].repeat(blocks)], &leaves[1..]].concat())
            });
            // The same rows as tokens of every sequence: one weight draw, but separate noise.
            let tokens = tensor(&rows.repeat(blocks), [blocks, ROWS, D_INPUT], DType::F64);
            let (tokens, shared) = (host(prepared.forward(tokens)), host(out));
            if matches!(scheme, Scheme::Mean | Scheme::Weights(_)) {
                close(&format!("{name} as tokens"), &shared, &tokens, 1e-13);
            } else {
                all_differ(&format!("{name} as tokens"), &shared, &tokens);
            }
        }
    }
}

#[test]
fn both_uses_of_a_prepared_layer_add_their_gradients() {
    let layer = variational(DType::F64);
    let pass = Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(12));
    let rows = tensor(&numbers(5, 6 * D_INPUT), [6, D_INPUT], DType::F64);
    let losses = || {
        let prepared = layer.prepare(&pass, BATCH);
        let tokens = prepared.forward(inputs(DType::F64)).square().sum();
        (tokens, prepared.forward_shared(rows.clone()).square().sum())
    };
    let gradient = |loss: Tensor<1>| layer_gradients(&layer, &loss.backward());
    let (tokens, shared) = losses();
    let parts = gradient(losses().0).into_iter().zip(gradient(losses().1));
    for (both, (first, second)) in gradient(tokens + shared).iter().zip(parts) {
        close("both", both, &plus(&first, &second), 1e-12);
    }
}

/// A layer with dropout, and the same without.
fn dropped(full: AdaptedLinear) -> [AdaptedLinear; 2] {
    let mut dropped = full.clone();
    dropped.edit(|adapter| adapter.dropout = 0.4).unwrap();
    [dropped, full]
}

#[test]
fn dropout_is_keyed_and_off_without_a_key() {
    let [dropped, full] = dropped(variational(DType::F64));
    let x = inputs(DType::F64);
    for scheme in SCHEMES {
        let pass = Pass::sampled(scheme, NoiseKey::new(5));
        let run = |layer: &AdaptedLinear, pass: &Pass| host(layer.forward_with(x.clone(), pass));
        let without = run(&full, &pass);
        same(&format!("{scheme:?}: no key"), &run(&dropped, &pass), &without);
        let key = NoiseKey::new(6).at_step(1);
        same(&format!("{scheme:?}: rate 0"), &run(&full, &pass.with_dropout(key)), &without);
        let with = run(&dropped, &pass.with_dropout(key));
        assert!(without != with, "{scheme:?}: no dropout");
        same(&format!("{scheme:?}: repeated"), &run(&dropped, &pass.with_dropout(key)), &with);
        let other = run(&dropped, &pass.with_dropout(key.at_step(2)));
        assert!(with != other, "{scheme:?}: another step");
    }
    // The mask is that of the layer's own stream, on the adapter's input alone.
    let key = NoiseKey::new(6);
    let mask_key = key.for_module(dropped.noise_id()).on_stream(Stream::DROPOUT);
    let masked = dropout(x.clone(), 0.4, mask_key);
    let base = |x| bare(DType::F64).forward_with(x, &Pass::mean());
    let mean = |x| full.forward_with(x, &Pass::mean());
    let expected = mean(masked.clone()) - base(masked) + base(x.clone());
    let got = dropped.forward_with(x, &Pass::mean().with_dropout(key));
    close("masked input", &host(got), &host(expected), 1e-12);
}

#[test]
fn dropout_differs_between_the_two_uses_and_keeps_the_mean() {
    const ROWS: usize = 20_000;
    let [dropped, full] = dropped(layer(&plain(), DType::F64));
    let row = numbers(1, D_INPUT);
    let rows = tensor(&row.repeat(ROWS), [ROWS, D_INPUT], DType::F64);
    let pass = Pass::mean().with_dropout(NoiseKey::new(6));
    let prepared = dropped.prepare(&pass, 1);
    let shared = host(prepared.forward_shared(rows.clone()));
    let tokens = host(prepared.forward::<3>(rows.unsqueeze_dim(0)));
    assert!(shared != tokens, "both uses share their mask");
    let one = tensor(&row, [1, 1, D_INPUT], DType::F64);
    let expected = host(full.forward_with(one, &Pass::mean()));
    for values in [&shared, &tokens] {
        for (o, expected) in expected.iter().enumerate() {
            let column = values.iter().skip(o).step_by(D_OUTPUT).copied();
            within(&format!("output {o}"), column, *expected);
        }
    }
}

#[test]
fn inputs_of_any_rank_are_sequences_by_tokens() {
    for adapter in [plain(), noisy(VariationalFamily::ElementVariance)] {
        let layer = layer(&adapter, DType::F64);
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(3)).with_dropout(NoiseKey::new(4));
            let values = numbers(1, 2 * 3 * 2 * D_INPUT);
            let four = tensor(&values, [2, 3, 2, D_INPUT], DType::F64);
            let out = layer.forward_with(four, &pass);
            assert_eq!(out.dims(), [2, 3, 2, D_OUTPUT]);
            let three = layer.forward_with(tensor(&values, [2, 6, D_INPUT], DType::F64), &pass);
            same(&format!("{scheme:?}"), &host(out), &host(three));
            let two = layer.forward_with(tensor(&values, [12, D_INPUT], DType::F64), &pass);
            assert_eq!(two.dims(), [12, D_OUTPUT]);
            let rows = layer.forward_with(tensor(&values, [12, 1, D_INPUT], DType::F64), &pass);
            same(&format!("{scheme:?}: a sequence of one token"), &host(two), &host(rows));
        }
    }
}

#[test]
fn the_base_gets_no_gradient_and_does_not_move() {
    let adapter = noisy(VariationalFamily::RankVariance);
    for scheme in SCHEMES {
        let net = Net::new([Some(&adapter), None], DType::F32);
        check_trained(net.clone(), scheme, &["lora_A", "lora_B", "rank_log_sigma2"]);
        // A whole backward pass holds nothing for the base, whatever one asks for.
        let pass = Pass::sampled(scheme, NoiseKey::new(1));
        let gradients = net.first.forward_with(inputs(DType::F32), &pass).sum().backward();
        assert!(net.first.weight.base().grad(&gradients).is_none());
        assert!(net.first.bias.as_ref().unwrap().val().grad(&gradients).is_none());
        let collected = NamedGradients::collect(&net, &gradients);
        assert!(collected.names().all(|name| name.contains(".lora_") || name.contains(".rank_")));
    }
}

#[test]
fn a_plain_device_runs_the_same_forward() {
    // Without autodiff anywhere, as in prediction.
    let layer = variational(DType::F32);
    let plain = layer.valid();
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F32);
    for scheme in SCHEMES {
        let pass = Pass::sampled(scheme, NoiseKey::new(1));
        let out = plain.forward_with(x.clone(), &pass);
        assert!(!out.device().is_autodiff());
        assert_eq!(out.device(), Device::flex());
        let expected = host(layer.forward_with(x.clone(), &pass));
        same(&format!("{scheme:?}"), &host(out), &expected);
    }
}

#[test]
fn two_layers_of_one_path_are_an_error() {
    let mut net = Net::new([None, None], DType::F32);
    net.names = Names::below("net").renamed(&[("second", "first")]);
    let targets = AdapterTargets::Names(vec!["first".to_owned()]);
    let outcome = attach_adapters(&mut net, &targets, &AdapterConfig::default(), NoiseKey::new(1));
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("two layers of the model have the path `net.first`"), "{error}");
    assert!(net.first.adapter().is_none() && net.second.adapter().is_none());
    let factor = |shape: &[usize]| HostTensor::from_f32(shape, &[0.5; 14]).unwrap();
    let module = PeftModule::lora(factor(&[2, 7]), factor(&[7, 2]), 4.0, 2).unwrap();
    let config = PeftConfig::lora(2, 8.0, TargetModules::Names(vec!["first".to_owned()]));
    let modules = [("net.first".to_owned(), module)].into();
    let adapter = PeftAdapter { config, modules, saved: [].into(), ignored: Vec::new() };
    assert_eq!(attach_peft(&mut net, &adapter, false).unwrap_err().to_string(), error);
    assert!(net.first.adapter().is_none() && net.second.adapter().is_none());
}

#[test]
fn of_many_targets_some_are_named() {
    let mut net = Net::new([None, None], DType::F32);
    let mut attach = |names: Vec<String>| {
        let targets = AdapterTargets::Names(names);
        let key = NoiseKey::new(1);
        attach_adapters(&mut net, &targets, &AdapterConfig::default(), key).unwrap_err().to_string()
    };
    let error = attach((0..1000).map(|i| i.to_string()).collect());
    assert!(error.ends_with(", `9` and 990 more match none of the 2 adaptable layers"), "{error}");
    assert_eq!(attach(Vec::new()), "there are no targets, expected at least 1");
}

const DRAWS: usize = 4;

/// A draw per batch, of which the batch holds several.
fn pass_of(draws: DrawSet) -> Pass {
    let key = NoiseKey::new(0x1234_5678_9abc).at_step(3);
    Pass::sampled(Scheme::Weights(DrawPer::Batch), key).with_draws(draws)
}

#[test]
fn a_batch_of_draws_is_as_many_batches() {
    let rows: Tensor<2> = tensor(&numbers(3, 7 * D_INPUT), [7, D_INPUT], DType::F64);
    for antithetic in [false, true] {
        let one = |first| pass_of(DrawSet { first, antithetic, ..DrawSet::ONE });
        let set = DrawSet { first: 1, count: DRAWS, rows: BATCH, antithetic };
        for family in VariationalFamily::ALL {
            let layer = layer(&noisy(family), DType::F64);
            let each = |f: &dyn Fn(Pass) -> Vec<f64>| -> Vec<f64> {
                (1..=DRAWS as u32).flat_map(|draw| f(one(draw))).collect()
            };
            let expected = each(&|pass| host(layer.forward_with(inputs(DType::F64), &pass)));
            // From the rows of one draw, and from those of all of them.
            for x in [inputs(DType::F64), inputs(DType::F64).repeat_dim(0, DRAWS)] {
                close("tokens", &host(layer.forward_with(x, &pass_of(set))), &expected, 1e-14);
            }
            let shared = |pass: Pass| layer.prepare(&pass, BATCH).forward_shared(rows.clone());
            // A single draw has no axis for the sequences, several have.
            let expected = each(&|pass| host(shared(pass)).repeat(BATCH));
            close("shared rows", &host(shared(pass_of(set))), &expected, 1e-14);
        }
    }
}

#[test]
fn the_noise_of_a_pair_cancels_where_it_enters_linearly() {
    let layer = layer(&noisy(VariationalFamily::AsymRankVariance), DType::F64);
    let mean = host(layer.forward_with(inputs(DType::F64), &Pass::mean()));
    let set = DrawSet { first: 0, count: DRAWS, rows: BATCH, antithetic: true };
    let drawn = host(layer.forward_with(inputs(DType::F64), &pass_of(set)));
    let plain = host(
        layer.forward_with(inputs(DType::F64), &pass_of(DrawSet { antithetic: false, ..set })),
    );
    let n = mean.len();
    for pair in 0..DRAWS / 2 {
        let [a, b] = [2 * pair, 2 * pair + 1].map(|draw| &drawn[draw * n..][..n]);
        let middle: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::midpoint(*a, *b)).collect();
        close("mean of a pair", &middle, &mean, 1e-13);
        // The first of a pair is the draw that an ordinary pass makes under the pair's key.
        close("law", a, &plain[pair * n..][..n], 1e-15);
        assert!(a.iter().zip(&mean).any(|(a, m)| (a - m).abs() > 1e-3), "the noise must show");
    }
}
