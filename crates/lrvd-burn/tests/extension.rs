//! Noise per entry and on scales: forward passes and gradients for the layer's own noise.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod support;

use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, AdapterStream};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::{ScalaBlAdapter, ScalaBlPass, StdMap};
use lrvd_core::noise::Stream;
use support::noisy::{
    WEIGHTS, base_of, element_noise, extended, gaussian, key, plus, scale_noise, scales,
};
use support::reference::noise;
use support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, TOKENS, base, close, gradient, host, inputs, numbers, of,
    parameter, product, tensor, transposed,
};

const N: usize = BATCH * TOKENS;

/// Sequences of each draw.
fn blocks(scheme: Scheme) -> usize {
    if scheme == Scheme::Weights(DrawPer::Sequence) { BATCH } else { 1 }
}

/// A drawn pass is the mean pass of a plain adapter with the drawn factors; gradients pull back.
fn check_element_noise(map: StdMap, both: bool, scheme: Scheme, dtype: DType, tolerance: f64) {
    let layer = extended(element_noise(map, both, dtype), dtype);
    let x = inputs(dtype);
    let out = layer.forward(x.clone(), &Pass::sampled(scheme, key()));
    let by_output = tensor(&numbers(2, N * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
    let gradients = (out.clone() * by_output.clone()).sum().backward();

    let draws = if scheme == Scheme::Mean { 0 } else { blocks(scheme) };
    let noise_key = key().for_module(layer.noise_id());
    let eps = |stream, n: usize| match draws {
        0 => vec![0.0; n],
        draws => noise(noise_key.on_stream(stream), draws * n, dtype),
    };
    let (n_a, n_b) = (D_INPUT * RANK, RANK * D_OUTPUT);
    let (eps_a, eps_b) = (eps(Stream::WEIGHT_A, n_a), eps(Stream::WEIGHT_B, n_b));
    let mut wanted = Vec::new();
    let (mut by_a, mut by_rho_a) = (vec![0.0; n_a], vec![0.0; n_a]);
    let (mut by_b, mut by_rho_b) = (vec![0.0; n_b], vec![0.0; n_b]);
    let rho_a = host(gaussian(&layer).a.val());
    let rho_b = gaussian(&layer).b.as_ref().map(|b| host(b.val()));
    for draw in 0..draws.max(1) {
        let rows = BATCH / draws.max(1);
        let share = |t: Tensor<3>| t.narrow(0, draw * rows, rows);
        let drawn = |mean: Vec<f64>, rho: &[f64], eps: &[f64]| -> Vec<f64> {
            let all = mean.iter().zip(rho).zip(eps);
            all.map(|((m, &r), e)| m + map.value(r) * e).collect()
        };
        let e_a = &eps_a[draw * n_a..][..n_a];
        let a = drawn(host(of(&layer).a.val()), &rho_a, e_a);
        let mean_b = host(of(&layer).b.val());
        let (b, e_b) = match &rho_b {
            Some(rho) => {
                let e_b = &eps_b[draw * n_b..][..n_b];
                (drawn(mean_b, rho, e_b), e_b)
            }
            None => (mean_b, &[][..]),
        };
        let mut plain = base("net.first", D_INPUT, D_OUTPUT, DType::F64);
        plain.attach(of(&layer).clone(), RANK).unwrap();
        let adapter = plain.low_rank_mut().unwrap();
        adapter.a = parameter(&a, [D_INPUT, RANK], DType::F64);
        adapter.b = parameter(&b, [RANK, D_OUTPUT], DType::F64);
        plain.weight = layer.weight.clone();
        plain.bias.clone_from(&layer.bias);
        plain = widened(plain);
        let x = share(tensor(&host(x.clone()), [BATCH, TOKENS, D_INPUT], DType::F64));
        let out = plain.forward(x, &Pass::mean());
        wanted.extend(host(out.clone()));
        let g = share(tensor(&host(by_output.clone()), [BATCH, TOKENS, D_OUTPUT], DType::F64));
        let slopes = (out * g).sum().backward();
        let add = |of: &Tensor<2>, rho: &[f64], eps: &[f64], into: [&mut Vec<f64>; 2]| {
            let [mean, noise] = into;
            for (i, g) in gradient(of, &slopes).into_iter().enumerate() {
                mean[i] += g;
                if let (Some(&r), Some(e)) = (rho.get(i), eps.get(i)) {
                    noise[i] += g * e * map.derivative(r);
                }
            }
        };
        add(&of(&plain).a.val(), &rho_a, e_a, [&mut by_a, &mut by_rho_a]);
        let rho_b = rho_b.as_deref().unwrap_or(&[]);
        add(&of(&plain).b.val(), rho_b, e_b, [&mut by_b, &mut by_rho_b]);
    }
    let name = format!("{map:?} {scheme:?} {dtype:?}");
    close(&format!("{name} output"), &host(out), &wanted, tolerance);
    let of_layer = |t: Tensor<2>| gradient(&t, &gradients);
    close(&format!("{name} A"), &of_layer(of(&layer).a.val()), &by_a, tolerance);
    close(&format!("{name} B"), &of_layer(of(&layer).b.val()), &by_b, tolerance);
    close(&format!("{name} rho A"), &of_layer(gaussian(&layer).a.val()), &by_rho_a, tolerance);
    if let Some(b) = &gaussian(&layer).b {
        close(&format!("{name} rho B"), &of_layer(b.val()), &by_rho_b, tolerance);
    }
}

/// The layer with its base in double precision.
fn widened(mut layer: AdaptedLinear) -> AdaptedLinear {
    let mut rebuilt = AdaptedLinear::new(
        "net.first",
        tensor(&host(layer.weight.val()), [D_INPUT, D_OUTPUT], DType::F64),
        layer.bias.take().map(|b| tensor(&host(b.val()), [D_OUTPUT], DType::F64)),
    );
    rebuilt.attach(layer.detach().unwrap(), RANK).unwrap();
    rebuilt
}

#[test]
fn element_noise_draws_what_the_definition_draws() {
    for map in StdMap::ALL {
        for both in [false, true] {
            for scheme in [Scheme::Mean, WEIGHTS[0], WEIGHTS[1]] {
                check_element_noise(map, both, scheme, DType::F64, 1e-12);
                check_element_noise(map, both, scheme, DType::F32, 5e-6);
            }
        }
    }
}

#[test]
fn scales_equal_the_core() {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 5e-6)] {
        for scheme in [Scheme::Mean, WEIGHTS[0], WEIGHTS[1]] {
            let layer = extended(scale_noise(dtype), dtype);
            let x = inputs(dtype);
            let out = layer.forward(x.clone(), &Pass::sampled(scheme, key()));
            let by_output = tensor(&numbers(2, N * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
            let gradients = (out.clone() * by_output.clone()).sum().backward();

            let adapter = HostAdapter::read(of(&layer));
            let (v_h, b) = adapter.factors().unwrap();
            let (log_mean, log_std) =
                (host(scales(&layer).log_mean.val()), host(scales(&layer).log_std.val()));
            let core = ScalaBlAdapter::new(v_h, &log_mean, &log_std, b, adapter.scaling).unwrap();
            let blocks = blocks(scheme);
            let noise_key = key().for_module(layer.noise_id()).on_stream(AdapterStream::SCALE);
            let eps = noise(noise_key, blocks * RANK, dtype);
            let (x_host, by_output) = (host(x.clone()), host(by_output));
            let mut wanted = Vec::new();
            let mut sums = [
                vec![],
                vec![0.0; RANK * D_INPUT],
                vec![0.0; RANK],
                vec![0.0; RANK],
                vec![0.0; RANK * D_OUTPUT],
            ];
            for block in 0..blocks {
                let share = |v: &[f64]| v[block * v.len() / blocks..][..v.len() / blocks].to_vec();
                let x = share(&x_host);
                let eps = (scheme != Scheme::Mean).then(|| share(&eps));
                let pass = ScalaBlPass::new(core, &x, eps.as_deref()).unwrap();
                wanted.extend_from_slice(pass.output());
                let slopes = pass.backward(&share(&by_output)).unwrap();
                sums[0].extend(slopes.x);
                let terms = [slopes.v_h, slopes.log_mean, slopes.log_std_dev, slopes.b];
                for (sum, term) in sums[1..].iter_mut().zip(terms) {
                    *sum = plus(sum, &term);
                }
            }
            let name = format!("{scheme:?} {dtype:?}");
            let output = plus(&base_of(&layer, &x_host), &wanted);
            close(&format!("{name} output"), &host(out), &output, tolerance);
            let weight = transposed(&host(layer.weight.val()), D_INPUT, D_OUTPUT);
            let by_x = plus(&sums[0], &product(&by_output, &weight, D_OUTPUT, D_INPUT));
            close(&format!("{name} x"), &gradient(&x, &gradients), &by_x, tolerance);
            let of_a = transposed(&gradient(&of(&layer).a.val(), &gradients), D_INPUT, RANK);
            close(&format!("{name} V"), &of_a, &sums[1], tolerance);
            let vector = |t: Tensor<1>| gradient(&t, &gradients);
            close(
                &format!("{name} mean"),
                &vector(scales(&layer).log_mean.val()),
                &sums[2],
                tolerance,
            );
            close(
                &format!("{name} std"),
                &vector(scales(&layer).log_std.val()),
                &sums[3],
                tolerance,
            );
            close(
                &format!("{name} B"),
                &gradient(&of(&layer).b.val(), &gradients),
                &sums[4],
                tolerance,
            );
        }
    }
}

#[test]
fn shared_rows_meet_the_draws_of_the_tokens() {
    const ROWS: usize = 4;
    let rows = numbers(5, ROWS * D_INPUT);
    for layer in [
        extended(element_noise(StdMap::Softplus, true, DType::F64), DType::F64),
        extended(scale_noise(DType::F64), DType::F64),
    ] {
        for scheme in WEIGHTS {
            let pass = Pass::sampled(scheme, key());
            let prepared = layer.prepare(&pass, BATCH);
            let shared = prepared.forward_shared(tensor(&rows, [ROWS, D_INPUT], DType::F64));
            let blocks = blocks(scheme);
            assert_eq!(shared.dims(), [blocks, ROWS, D_OUTPUT]);
            let tokens = tensor(&rows.repeat(blocks), [blocks, ROWS, D_INPUT], DType::F64);
            close("as tokens", &host(shared), &host(prepared.forward(tokens)), 1e-13);
        }
    }
}

#[test]
fn keys_decide_every_draw() {
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F32);
    for layer in [
        extended(element_noise(StdMap::Square, false, DType::F32), DType::F32),
        extended(scale_noise(DType::F32), DType::F32),
    ] {
        for scheme in WEIGHTS {
            let run = |layer: &AdaptedLinear, key| {
                host(layer.forward(x.clone(), &Pass::sampled(scheme, key)))
            };
            let first = run(&layer, key());
            assert_eq!(first, run(&layer.clone(), key()), "{scheme:?}");
            let other = run(&layer, key().at_step(4));
            assert!(first.iter().zip(&other).all(|(a, b)| a != b), "{scheme:?}");
        }
    }
}
