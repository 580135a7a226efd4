//! Flipout: the pass by loops for noise on A, its distribution for every kind of noise, and its keys.

use crate::support::by_hand::{Flips, flipout};
use crate::support::noisy::{SIZES, base_of, element_noise, extended, gaussian, plus};
use crate::support::reference::{noise, posterior_gradient};
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, TOKENS, close, close_to_slopes, dot, gradient, host,
    host_adapter, layer, leaf, numbers, of, parameter, product, tensor,
};
use burn::tensor::DType;
use lrvd_burn::adapter::{AdaptedLinear, AdapterStream, ElementGaussian, Extension};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::StdMap;
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::noise::{NoiseKey, Stream, fill_uniform};

const N: usize = BATCH * TOKENS;

fn key() -> NoiseKey {
    NoiseKey::new(0x55aa).at_step(6)
}

fn pass() -> Pass {
    Pass::sampled(Scheme::FLIPOUT, key())
}

/// A layer with noise on A, or on both factors.
fn noisy_layer(map: StdMap, both: bool, dtype: DType) -> AdaptedLinear {
    extended(element_noise(map, both, dtype), dtype)
}

/// ±1 as the layer draws them.
fn signs(key: NoiseKey, n: usize) -> Vec<f64> {
    let mut values = vec![0.0f32; n];
    fill_uniform(key, 0, &mut values);
    values.into_iter().map(|u| if u >= 0.5 { 1.0 } else { -1.0 }).collect()
}

fn times(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

/// The layer's output and gradients by loops for its own noise, for use `use_index` of the layer.
fn check_by_hand(dtype: DType, tolerance: f64, use_index: u32) {
    let layer = noisy_layer(StdMap::Square, false, dtype);
    let values = numbers(1, N * D_INPUT);
    let (x, out) = if use_index == 0 {
        let x = leaf(&values, [BATCH, TOKENS, D_INPUT], dtype);
        (x.clone(), layer.forward_with(x, &pass()))
    } else {
        let x = leaf(&values, [1, N, D_INPUT], dtype);
        let rows = x.clone().squeeze_dim::<2>(0);
        (x, layer.prepare(&pass(), BATCH).forward_shared(rows))
    };
    let by_output = tensor(&numbers(2, N * D_OUTPUT), out.dims(), dtype);
    let gradients = (out.clone() * by_output.clone()).sum().backward();

    let key = key().for_module(layer.noise_id());
    let sign = |stream, n| signs(key.on_stream(stream).with_use(use_index), n);
    let flips = Flips {
        eps: &noise(key.on_stream(Stream::WEIGHT_A), D_INPUT * RANK, dtype),
        input_sign: &sign(AdapterStream::FLIP_A_INPUT, N * D_INPUT),
        rank_sign: &sign(AdapterStream::FLIP_A_OUTPUT, N * RANK),
    };
    let (a, b, rho) = (of(&layer).a.val(), of(&layer).b.val(), gaussian(&layer).a.val());
    let leaves = [host(x.clone()), host(a.clone()), host(rho.clone()), host(b.clone())];
    let whole = |leaves: &[Vec<f64>]| {
        plus(&base_of(&layer, &leaves[0]), &flipout(SIZES, StdMap::Square, leaves, &flips))
    };
    let name = format!("{dtype:?} use {use_index}");
    close(&format!("{name} output"), &host(out), &whole(&leaves), tolerance);
    let found = [
        ("x", gradient(&x, &gradients)),
        ("A", gradient(&a, &gradients)),
        ("G", gradient(&rho, &gradients)),
        ("B", gradient(&b, &gradients)),
    ];
    let by_output = host(by_output);
    close_to_slopes(&name, &found, &leaves, tolerance, |leaves| dot(&whole(leaves), &by_output));
}

#[test]
fn noise_on_a_equals_the_loops() {
    for use_index in [0, 1] {
        check_by_hand(DType::F64, 1e-12, use_index);
        check_by_hand(DType::F32, 5e-6, use_index);
    }
}

/// `c·(h·B + ((h ⊙ t)·N_B) ⊙ u)` with `h = x·A + ((x ⊙ r)·N_A) ⊙ q`, by loops.
fn by_hand(layer: &AdaptedLinear, x: &[f64], std_a: &[f64], std_b: Option<&[f64]>) -> Vec<f64> {
    let adapter = of(layer);
    let key = key().for_module(layer.noise_id());
    let eps = |stream, n| noise(key.on_stream(stream), n, DType::F64);
    let sign = |stream, n| signs(key.on_stream(stream), n);
    let noise_a = times(std_a, &eps(Stream::WEIGHT_A, D_INPUT * RANK));
    let turned = product(
        &times(x, &sign(AdapterStream::FLIP_A_INPUT, N * D_INPUT)),
        &noise_a,
        D_INPUT,
        RANK,
    );
    let turned = times(&turned, &sign(AdapterStream::FLIP_A_OUTPUT, N * RANK));
    let h = plus(&product(x, &host(adapter.a.val()), D_INPUT, RANK), &turned);
    let mut out = product(&h, &host(adapter.b.val()), RANK, D_OUTPUT);
    if let Some(std_b) = std_b {
        let noise_b = times(std_b, &eps(Stream::WEIGHT_B, RANK * D_OUTPUT));
        let turned = times(&h, &sign(AdapterStream::FLIP_B_INPUT, N * RANK));
        let turned = product(&turned, &noise_b, RANK, D_OUTPUT);
        out = plus(&out, &times(&turned, &sign(AdapterStream::FLIP_B_OUTPUT, N * D_OUTPUT)));
    }
    let update: Vec<f64> = out.iter().map(|o| adapter.scaling * o).collect();
    plus(&base_of(layer, x), &update)
}

#[test]
fn noise_on_both_factors_is_turned_twice() {
    let layer = noisy_layer(StdMap::Softplus, true, DType::F64);
    let (std_a, std_b) = gaussian(&layer).deviations();
    let x = numbers(1, N * D_INPUT);
    let out = layer.forward_with(tensor(&x, [BATCH, TOKENS, D_INPUT], DType::F64), &pass());
    let expected = by_hand(&layer, &x, &host(std_a), Some(&host(std_b.unwrap())));
    close("both", &host(out.clone()), &expected, 1e-13);
    let gradients = out.square().sum().backward();
    let noise = gaussian(&layer);
    for rho in [noise.a.val(), noise.b.as_ref().unwrap().val()] {
        assert!(gradient(&rho, &gradients).iter().all(|g| *g != 0.0));
    }
}

#[test]
fn every_posterior_family_is_turned_as_well() {
    let x = numbers(1, N * D_INPUT);
    for family in VariationalFamily::ALL {
        let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
        let adapter = of(&layer);
        let (a, b) = (adapter.a.val(), adapter.b.val());
        let (std_a, std_b) = adapter.posterior().unwrap().deviations(&a, &b);
        let full_a = host(std_a + a.zeros_like());
        let full_b = std_b.map(|std| host(std + b.zeros_like()));
        let out = layer.forward_with(tensor(&x, [BATCH, TOKENS, D_INPUT], DType::F64), &pass());
        let expected = by_hand(&layer, &x, &full_a, full_b.as_deref());
        close(&format!("{family}"), &host(out.clone()), &expected, 1e-12);
        let slopes = posterior_gradient(adapter, &out.square().sum().backward());
        let moved = crate::support::reference::pieces(&slopes);
        assert!(moved[2].1.iter().any(|g| *g != 0.0), "{family}: no gradient for the noise");
    }
}

/// The sample mean of independent `values` lies within five standard errors of `expected`.
#[track_caller]
fn within(what: &str, values: &[f64], expected: f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let bound = 5.0 * (variance / n).sqrt() + 1e-12;
    assert!((mean - expected).abs() <= bound, "{what}: {mean}, expected {expected} ± {bound}");
}

#[test]
fn tokens_have_the_law_of_the_weights_and_uncorrelated_noise() {
    const DRAWS: u32 = 4000;
    // The same token twice, so that one draw without signs would give the same noise twice.
    let row = numbers(1, D_INPUT);
    let x = tensor(&row.repeat(2), [1, 2, D_INPUT], DType::F64);
    for family in [VariationalFamily::RankVariance, VariationalFamily::ElementVariance] {
        let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
        let adapter = HostAdapter::read(of(&layer));
        let law = moments(&adapter.posterior().unwrap().unwrap(), &row, CrossTerm::Exact).unwrap();
        let base = base_of(&layer, &row);
        // Residuals by draw, token and output.
        let residuals: Vec<Vec<f64>> = (0..DRAWS)
            .map(|draw| {
                let pass = Pass::sampled(Scheme::FLIPOUT, NoiseKey::new(4).at_step(draw));
                let out = host(layer.forward_with(x.clone(), &pass));
                let centre =
                    |i: usize| base[i % D_OUTPUT] + adapter.scaling * law.mean[i % D_OUTPUT];
                out.iter().enumerate().map(|(i, o)| o - centre(i)).collect()
            })
            .collect();
        let over_draws =
            |f: &dyn Fn(&[f64]) -> f64| -> Vec<f64> { residuals.iter().map(|r| f(r)).collect() };
        for o in 0..D_OUTPUT {
            let variance = adapter.scaling.powi(2) * law.variance[o];
            for token in [0, D_OUTPUT] {
                within(&format!("{family} mean {o}"), &over_draws(&|r| r[token + o]), 0.0);
                let squares = over_draws(&|r| r[token + o].powi(2));
                within(&format!("{family} variance {o}"), &squares, variance);
            }
            let products = over_draws(&|r| r[o] * r[D_OUTPUT + o]);
            within(&format!("{family} covariance of tokens {o}"), &products, 0.0);
        }
    }
}

#[test]
fn signs_are_the_only_difference_to_a_draw_per_batch() {
    // With one input and one rank a token's sign pair either keeps or turns the whole noise.
    let mut host_of_one = host_adapter(None, 10);
    host_of_one.rank = 1;
    host_of_one.d_input = 1;
    host_of_one.a.truncate(1);
    host_of_one.b.truncate(D_OUTPUT);
    let mut layer = layer("net.first", &host_of_one, DType::F64);
    let noise = ElementGaussian::new(StdMap::Square, parameter(&[0.7], [1, 1], DType::F64), None);
    layer.extend(Some(Extension::Gaussian(noise))).unwrap();
    let x = tensor(&[1.0; 8], [1, 8, 1], DType::F64);
    let run = |scheme| host(layer.forward_with(x.clone(), &Pass::sampled(scheme, key())));
    let mean = run(Scheme::Mean);
    let drawn = run(Scheme::Weights(DrawPer::Batch));
    let turned = run(Scheme::FLIPOUT);
    let mut seen = [false; 2];
    for i in 0..8 * D_OUTPUT {
        let (with, against) = (drawn[i], 2.0 * mean[i] - drawn[i]);
        let kept = (turned[i] - with).abs() < 1e-12;
        assert!(kept || (turned[i] - against).abs() < 1e-12, "{i}");
        seen[usize::from(kept)] = true;
    }
    assert_eq!(seen, [true; 2], "eight tokens share a sign");
}

#[test]
fn keys_decide_and_plain_adapters_stay_at_their_mean() {
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F32);
    let noisy = noisy_layer(StdMap::Square, false, DType::F32);
    let run = |layer: &AdaptedLinear, key| {
        host(layer.forward_with(x.clone(), &Pass::sampled(Scheme::FLIPOUT, key)))
    };
    let first = run(&noisy, key());
    assert_eq!(first, run(&noisy.clone(), key()));
    let other = run(&noisy, key().at_step(7));
    assert!(first.iter().zip(&other).all(|(a, b)| a != b));
    // Tokens and shared rows of one pass: the same draw, other signs.
    let prepared = noisy.prepare(&pass(), 1);
    let rows = tensor(&numbers(1, N * D_INPUT), [N, D_INPUT], DType::F32);
    let tokens = host(prepared.forward::<3>(rows.clone().unsqueeze_dim(0)));
    assert_ne!(tokens, host(prepared.forward_shared(rows)));

    let plain = layer("net.first", &host_adapter(None, 10), DType::F32);
    assert_eq!(run(&plain, key()), host(plain.forward_with(x.clone(), &Pass::mean())));
}
