//! Draws, shared rows, dropout and the frozen base of an adapted layer.

use crate::support::net::{Net, WIDTHS, optimizer, train_step};
use crate::support::reference::{pieces, posterior_gradient, reference};
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, SCHEMES, SLOPES, TOKENS, base, close, gradient, host,
    host_adapter, layer, leaf, numbers, of, tensor,
};
use burn::tensor::{DType, Device};
use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig, AdapterKind};
use lrvd_burn::files::HostTensor;
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_burn::model::{AdapterTargets, Names, attach_adapters};
use lrvd_burn::ops::dropout;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::peft::{PeftAdapter, PeftConfig, PeftModule, TargetModules, attach_peft};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::{CrossTerm, moments, output_covariance};
use lrvd_core::noise::{NoiseKey, Stream};

/// The sampling schemes.
fn noisy() -> impl Iterator<Item = Scheme> {
    SCHEMES.into_iter().filter(|scheme| *scheme != Scheme::Mean)
}

fn inputs(dtype: DType) -> burn::tensor::Tensor<3> {
    tensor(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype)
}

/// The update alone of one input row for many independent draws, `[draws, d_output]`.
fn draws(layer: &AdaptedLinear, row: &[f64], scheme: Scheme, n: usize) -> Vec<f64> {
    let (steps, sequences) = (8, n / 8);
    let x: Vec<f64> = row.iter().copied().cycle().take(sequences * D_INPUT).collect();
    let x = tensor(&x, [sequences, 1, D_INPUT], DType::F64);
    let mut bare = layer.clone();
    bare.detach();
    let base = bare.forward_with(x.clone(), &Pass::mean());
    let pass = |step| Pass::sampled(scheme, NoiseKey::new(77).at_step(step));
    (0..steps).flat_map(|step| host(layer.forward_with(x.clone(), &pass(step)) - base.clone())).collect()
}

#[test]
fn draws_have_the_moments_of_the_posterior() {
    const N: usize = 40_000;
    let row = &numbers(1, D_INPUT);
    for family in VariationalFamily::ALL {
        let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
        let adapter = HostAdapter::read(of(&layer));
        let posterior = adapter.posterior().unwrap().unwrap();
        let c2 = adapter.scaling * adapter.scaling;
        for scheme in noisy().filter(|s| *s != Scheme::Weights(DrawPer::Batch)) {
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

/// The sample mean of independent `values` lies within five standard errors of `expected`.
#[track_caller]
fn within(what: &str, values: impl Iterator<Item = f64> + Clone, expected: f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let variance = values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    // The EPS_VARIANCE under every root is far below one standard error.
    let errors = (mean - expected).abs() / (variance / n).sqrt();
    assert!(errors < 5.0, "{what}: {mean} for {expected}, {errors:.2} standard errors");
}

#[test]
fn a_key_names_its_draw_and_no_other() {
    let x = inputs(DType::F32);
    for family in VariationalFamily::ALL {
        let adapter = host_adapter(Some(family), 10);
        let layer = layer("net.first", &adapter, DType::F32);
        let mut elsewhere = AdaptedLinear::new(
            layer.weight.base(),
            layer.bias.as_ref().map(burn::module::Param::val),
        );
        elsewhere.attach("net.other", of(&layer).clone(), RANK).unwrap();
        for scheme in noisy() {
            let run = |layer: &AdaptedLinear, key| {
                host(layer.forward_with(x.clone(), &Pass::sampled(scheme, key)))
            };
            let key = NoiseKey::new(1).at_step(4);
            let first = run(&layer, key);
            assert_eq!(first, run(&layer, key), "{family} {scheme:?}: repeated");
            assert_eq!(first, run(&layer.clone(), key), "{family} {scheme:?}: a copy");
            for (what, other) in [
                ("step", run(&layer, key.at_step(5))),
                ("seed", run(&layer, NoiseKey { seed: 2, ..key })),
                ("module", run(&elsewhere, key)),
            ] {
                let same = first.iter().zip(&other).filter(|(a, b)| a == b).count();
                assert_eq!(same, 0, "{family} {scheme:?}: another {what}");
            }
        }
    }
}

#[test]
fn a_draw_per_batch_is_one_and_a_draw_per_sequence_is_several() {
    let layer =
        layer("net.first", &host_adapter(Some(VariationalFamily::RankVariance), 10), DType::F64);
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
    assert!(first.iter().zip(&other).all(|(a, b)| a != b), "one draw for two sequences");
    for scheme in [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested] {
        let (first, next, _) = run(scheme);
        assert!(first.iter().zip(&next).all(|(a, b)| a != b), "{scheme:?}: tokens share noise");
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
                let posterior = posterior_gradient(of(&layer), &gradients);
                (host(out), gradient(&x, &gradients), posterior)
            })
        });
        assert_eq!(one, three, "{scheme:?}");
    }
}

#[test]
fn shared_rows_meet_the_draws_of_the_tokens() {
    const ROWS: usize = 6;
    let rows = numbers(5, ROWS * D_INPUT);
    for family in VariationalFamily::ALL {
        let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(11).at_step(2));
            let blocks = if scheme == Scheme::Weights(DrawPer::Sequence) { BATCH } else { 1 };
            let x = leaf(&rows, [ROWS, D_INPUT], DType::F64);
            let prepared = layer.prepare(&pass, BATCH);
            let out = prepared.forward_shared(x.clone());
            assert_eq!(out.dims(), [blocks, ROWS, D_OUTPUT], "{scheme:?}");
            let name = format!("{family} {scheme:?}");

            // The core, which is given the rows once for every sequence.
            let weights = numbers(6, blocks * ROWS * D_OUTPUT);
            let repeated = rows.repeat(blocks);
            let expected = reference(&layer, &repeated, blocks, &weights, &pass, 1);
            close(&format!("{name} output"), &host(out.clone()), &expected.out, 1e-12);
            let weights = tensor(&weights, [blocks, ROWS, D_OUTPUT], DType::F64);
            let gradients = (out.clone() * weights).sum().backward();
            let of_x: Vec<f64> = (0..ROWS * D_INPUT)
                .map(|i| expected.x.iter().skip(i).step_by(ROWS * D_INPUT).sum())
                .collect();
            close(&format!("{name} rows"), &gradient(&x, &gradients), &of_x, SLOPES);
            let got = posterior_gradient(of(&layer), &gradients);
            for ((piece, g), (_, w)) in pieces(&got).into_iter().zip(pieces(&expected.posterior)) {
                close(&format!("{name} {piece}"), g, w, SLOPES);
            }

            // The same rows as tokens of every sequence: one weight draw, but separate noise.
            let tokens = tensor(&rows.repeat(blocks), [blocks, ROWS, D_INPUT], DType::F64);
            let tokens = host(prepared.forward(tokens));
            let shared = host(out);
            if matches!(scheme, Scheme::Mean | Scheme::Weights(_)) {
                close(&format!("{name} as tokens"), &shared, &tokens, 1e-13);
            } else {
                let same = shared.iter().zip(&tokens).filter(|(a, b)| a == b).count();
                assert_eq!(same, 0, "{name}: both uses share their noise");
            }
        }
    }
}

#[test]
fn both_uses_of_a_prepared_layer_add_their_gradients() {
    let layer =
        layer("net.first", &host_adapter(Some(VariationalFamily::RankVariance), 10), DType::F64);
    let pass = Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(12));
    let rows = tensor(&numbers(5, 6 * D_INPUT), [6, D_INPUT], DType::F64);
    let losses = || {
        let prepared = layer.prepare(&pass, BATCH);
        let tokens = prepared.forward(inputs(DType::F64)).square().sum();
        (tokens, prepared.forward_shared(rows.clone()).square().sum())
    };
    let gradient = |loss: burn::tensor::Tensor<1>| posterior_gradient(of(&layer), &loss.backward());
    let (tokens, shared) = losses();
    let both = gradient(tokens + shared);
    let (first, second) = (gradient(losses().0), gradient(losses().1));
    for (i, (piece, both)) in pieces(&both).into_iter().enumerate() {
        let of = |g| pieces(g)[i].1.to_vec();
        let sum: Vec<f64> = of(&first).iter().zip(of(&second)).map(|(a, b)| a + b).collect();
        close(piece, both, &sum, 1e-12);
    }
}

#[test]
fn dropout_is_keyed_and_asked_for() {
    let mut dropped =
        layer("net.first", &host_adapter(Some(VariationalFamily::RankVariance), 10), DType::F64);
    let full = dropped.clone();
    dropped.edit(|adapter| adapter.dropout = 0.4).unwrap();
    let x = inputs(DType::F64);
    for scheme in SCHEMES {
        let pass = Pass::sampled(scheme, NoiseKey::new(5));
        let run = |layer: &AdaptedLinear, pass: &Pass| host(layer.forward_with(x.clone(), pass));
        let without = run(&full, &pass);
        assert_eq!(without, run(&dropped, &pass), "{scheme:?}: dropout without a key");
        let key = NoiseKey::new(6).at_step(1);
        assert_eq!(without, run(&full, &pass.with_dropout(key)), "{scheme:?}: rate 0");
        let with = run(&dropped, &pass.with_dropout(key));
        assert_ne!(without, with, "{scheme:?}: no dropout");
        assert_eq!(with, run(&dropped, &pass.with_dropout(key)), "{scheme:?}: repeated");
        let other = run(&dropped, &pass.with_dropout(key.at_step(2)));
        assert_ne!(with, other, "{scheme:?}: another step");
    }
    // The mask is that of the layer's own stream, on the adapter's input alone.
    let key = NoiseKey::new(6);
    let mask_key = key.for_module(dropped.noise_id()).on_stream(Stream::DROPOUT);
    let masked = dropout(x.clone(), 0.4, mask_key);
    let mut bare = full.clone();
    bare.detach();
    let base = |x| bare.forward_with(x, &Pass::mean());
    let mean = |x| full.forward_with(x, &Pass::mean());
    let expected = mean(masked.clone()) - base(masked) + base(x.clone());
    let got = dropped.forward_with(x, &Pass::mean().with_dropout(key));
    close("masked input", &host(got), &host(expected), 1e-12);
}

#[test]
fn dropout_differs_between_the_two_uses_and_keeps_the_mean() {
    const ROWS: usize = 20_000;
    let mut dropped = layer("net.first", &host_adapter(None, 10), DType::F64);
    let full = dropped.clone();
    dropped.edit(|adapter| adapter.dropout = 0.4).unwrap();
    let row = numbers(1, D_INPUT);
    let rows: Vec<f64> = row.iter().copied().cycle().take(ROWS * D_INPUT).collect();
    let rows = tensor(&rows, [ROWS, D_INPUT], DType::F64);
    let pass = Pass::mean().with_dropout(NoiseKey::new(6));
    let prepared = dropped.prepare(&pass, 1);
    let shared = host(prepared.forward_shared(rows.clone()));
    let tokens = host(prepared.forward::<3>(rows.unsqueeze_dim(0)));
    assert_ne!(shared, tokens, "both uses share their mask");
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
    let host_of = |family| layer("net.first", &host_adapter(family, 10), DType::F64);
    for layer in [host_of(None), host_of(Some(VariationalFamily::ElementVariance))] {
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(3)).with_dropout(NoiseKey::new(4));
            let values = numbers(1, 2 * 3 * 2 * D_INPUT);
            let four = tensor(&values, [2, 3, 2, D_INPUT], DType::F64);
            let out = layer.forward_with(four, &pass);
            assert_eq!(out.dims(), [2, 3, 2, D_OUTPUT]);
            let three = layer.forward_with(tensor(&values, [2, 6, D_INPUT], DType::F64), &pass);
            assert_eq!(host(out), host(three), "{scheme:?}");
            let two = layer.forward_with(tensor(&values, [12, D_INPUT], DType::F64), &pass);
            assert_eq!(two.dims(), [12, D_OUTPUT]);
            let rows = layer.forward_with(tensor(&values, [12, 1, D_INPUT], DType::F64), &pass);
            assert_eq!(host(two), host(rows), "{scheme:?}: a row is a sequence of one token");
        }
    }
}

#[test]
fn the_base_gets_no_gradient_and_does_not_move() {
    let adapter = host_adapter(Some(VariationalFamily::RankVariance), 10);
    for scheme in SCHEMES {
        let mut net = Net::new([Some(&adapter), None], DType::F32);
        let before = net.snapshot();
        let mut optimizer = optimizer();
        for step in 0..4 {
            train_step(&mut net, &mut optimizer, step, scheme, DType::F32);
        }
        let trained = ["net.first.lora_A", "net.first.lora_B", "net.first.rank_log_sigma2"];
        let trained = [&["head.bias", "head.weight"][..], &trained].concat();
        let names: Vec<_> = optimizer.state().keys().map(String::as_str).collect();
        assert_eq!(names, trained, "{scheme:?}");
        for ((name, shape, old), (_, _, new)) in before.into_iter().zip(net.snapshot()) {
            assert_eq!(trained.contains(&name.as_str()), old != new, "{name} {shape:?} {scheme:?}");
        }
        // A whole backward pass holds nothing for the base, whatever one asks for.
        let x = leaf(&numbers(1, TOKENS * D_INPUT), [1, TOKENS, D_INPUT], DType::F32);
        let loss = net.first.forward_with(x, &Pass::sampled(scheme, NoiseKey::new(1))).sum();
        let gradients = loss.backward();
        assert!(net.first.weight.base().grad(&gradients).is_none());
        assert!(net.first.bias.as_ref().unwrap().val().grad(&gradients).is_none());
        let collected = NamedGradients::collect(&net, &gradients);
        assert!(collected.names().all(|name| name.contains(".lora_") || name.contains(".rank_")));
    }
}

#[test]
fn a_fresh_adapter_depends_on_seed_and_path_and_starts_where_it_should() {
    let attach = |path: &str, kind, seed| {
        let mut layer = base(path, WIDTHS[0], WIDTHS[1], DType::F32);
        let config = AdapterConfig { kind, rank: 3, lora_alpha: 12.0, dropout: 0.0 };
        config.attach(&mut layer, path, NoiseKey::new(seed)).unwrap();
        HostAdapter::read(of(&layer))
    };
    let lora = AdapterKind::Lora { b_bound: 0.0 };
    for kind in [lora, AdapterKind::AdaLora, AdapterKind::bayes_lora()] {
        let first = attach("p.q", kind, 1);
        assert_eq!(first, attach("p.q", kind, 1));
        assert_ne!(first.a, attach("p.q", kind, 2).a);
        assert_ne!(first.a, attach("p.r", kind, 1).a);
        assert_eq!((first.a.len(), first.b.len()), (15, 21));
    }
    let fresh = attach("p.q", lora, 1);
    assert!(fresh.b.iter().all(|b| *b == 0.0) && fresh.scaling == 4.0);
    assert!(fresh.a.iter().all(|a| a.abs() <= 5.0f64.sqrt().recip()));
    let fresh = attach("p.q", AdapterKind::bayes_lora(), 1);
    assert!(fresh.b.iter().all(|b| b.abs() <= 1.0001e-3) && fresh.b.iter().any(|b| b.abs() > 5e-4));
    assert_eq!(fresh.noise, Some(HostNoise::RankVariance(vec![-8.0; 3])));
    let fresh = attach("p.q", AdapterKind::AdaLora, 1);
    assert_eq!((fresh.e, fresh.scaling), (Some(vec![0.0; 3]), 12.0 / 3.00001));
}

#[test]
fn a_plain_device_runs_the_same_forward() {
    // Without autodiff anywhere, as in prediction.
    let adapter = host_adapter(Some(VariationalFamily::RankVariance), 10);
    let layer = layer("net.first", &adapter, DType::F32);
    let plain = burn::module::Module::valid(&layer);
    for scheme in SCHEMES {
        let pass = Pass::sampled(scheme, NoiseKey::new(1));
        let out = plain.forward_with(inputs(DType::F32), &pass);
        assert!(!out.device().is_autodiff());
        assert_eq!(out.device(), Device::flex());
        assert_eq!(host(out), host(layer.forward_with(inputs(DType::F32), &pass)), "{scheme:?}");
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

#[test]
fn a_large_noise_to_signal_ratio_is_finite_in_single_precision() {
    let host = HostAdapter {
        noise: Some(HostNoise::NoiseToSignal(vec![50.0; RANK])),
        ..host_adapter(Some(VariationalFamily::NoiseToSignal), 10)
    };
    let layer = layer("net.first", &host, DType::F32);
    for scheme in SCHEMES {
        let out = layer.forward_with(inputs(DType::F32), &Pass::sampled(scheme, NoiseKey::new(3)));
        assert!(crate::support::host(out).iter().all(|v| v.is_finite()), "{scheme:?}");
    }
}
