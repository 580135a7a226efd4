//! Noise per entry and on scales: forward passes and gradients for the layer's own noise.

use crate::support::by_hand::scala_bl;
use crate::support::noisy::{
    SIZES, WEIGHTS, base_of, element_noise, extended, gaussian, key, plus, scale_noise, scales,
};
use crate::support::reference::noise;
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, TOKENS, base, close, close_to_slopes, dot, gradient, host,
    inputs, numbers, of, parameter, tensor,
};
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, AdapterStream};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::StdMap;
use lrvd_core::noise::Stream;

const N: usize = BATCH * TOKENS;

/// Sequences of each draw.
fn blocks(scheme: Scheme) -> usize {
    if scheme == Scheme::Weights(DrawPer::Sequence) { BATCH } else { 1 }
}

/// A drawn pass is the mean pass of a plain adapter with the drawn factors; gradients pull back.
fn check_element_noise(map: StdMap, both: bool, scheme: Scheme, dtype: DType, tolerance: f64) {
    let layer = extended(element_noise(map, both, dtype), dtype);
    let x = inputs(dtype);
    let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, key()));
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
    let mut expected = Vec::new();
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
        plain.weight = layer.weight.clone();
        plain.attach("net.first", of(&layer).clone(), RANK).unwrap();
        plain.edit(|adapter| {
            adapter.a = parameter(&a, [D_INPUT, RANK], DType::F64);
            adapter.b = parameter(&b, [RANK, D_OUTPUT], DType::F64);
        });
        plain.bias.clone_from(&layer.bias);
        plain = widened(plain);
        let x = share(tensor(&host(x.clone()), [BATCH, TOKENS, D_INPUT], DType::F64));
        let out = plain.forward_with(x, &Pass::mean());
        expected.extend(host(out.clone()));
        let g = share(tensor(&host(by_output.clone()), [BATCH, TOKENS, D_OUTPUT], DType::F64));
        let slopes = (out * g).sum().backward();
        let add = |of: &Tensor<2>, rho: &[f64], eps: &[f64], into: [&mut Vec<f64>; 2]| {
            let [mean, noise] = into;
            for (i, g) in gradient(of, &slopes).into_iter().enumerate() {
                mean[i] += g;
                if let (Some(&r), Some(e)) = (rho.get(i), eps.get(i)) {
                    noise[i] += g * e * slope_of(map, r);
                }
            }
        };
        add(&of(&plain).a.val(), &rho_a, e_a, [&mut by_a, &mut by_rho_a]);
        let rho_b = rho_b.as_deref().unwrap_or(&[]);
        add(&of(&plain).b.val(), rho_b, e_b, [&mut by_b, &mut by_rho_b]);
    }
    let name = format!("{map:?} {scheme:?} {dtype:?}");
    close(&format!("{name} output"), &host(out), &expected, tolerance);
    let of_layer = |t: Tensor<2>| gradient(&t, &gradients);
    close(&format!("{name} A"), &of_layer(of(&layer).a.val()), &by_a, tolerance);
    close(&format!("{name} B"), &of_layer(of(&layer).b.val()), &by_b, tolerance);
    close(&format!("{name} rho A"), &of_layer(gaussian(&layer).a.val()), &by_rho_a, tolerance);
    if let Some(b) = &gaussian(&layer).b {
        close(&format!("{name} rho B"), &of_layer(b.val()), &by_rho_b, tolerance);
    }
}

/// The derivative of the standard deviation: that of `ln(1 + exp(rho))` and of `rho²`.
fn slope_of(map: StdMap, rho: f64) -> f64 {
    match map {
        StdMap::Softplus => 1.0 / (1.0 + (-rho).exp()),
        StdMap::Square => 2.0 * rho,
    }
}

/// The layer with its base in double precision.
fn widened(mut layer: AdaptedLinear) -> AdaptedLinear {
    let mut rebuilt = AdaptedLinear::new(
        tensor(&host(layer.weight.base()), [D_INPUT, D_OUTPUT], DType::F64),
        layer.bias.take().map(|b| tensor(&host(b.val()), [D_OUTPUT], DType::F64)),
    );
    rebuilt.attach("net.first", layer.detach().unwrap(), RANK).unwrap();
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
fn scales_equal_the_loops() {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 5e-6)] {
        for scheme in [Scheme::Mean, WEIGHTS[0], WEIGHTS[1]] {
            let layer = extended(scale_noise(dtype), dtype);
            let x = inputs(dtype);
            let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, key()));
            let by_output = tensor(&numbers(2, N * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
            let gradients = (out.clone() * by_output.clone()).sum().backward();

            let (a, b) = (of(&layer).a.val(), of(&layer).b.val());
            let (log_mean, log_std) = (scales(&layer).log_mean.val(), scales(&layer).log_std.val());
            let leaves = [
                host(x.clone()),
                host(a.clone()),
                host(log_mean.clone()),
                host(log_std.clone()),
                host(b.clone()),
            ];
            let blocks = blocks(scheme);
            let noise_key = key().for_module(layer.noise_id()).on_stream(AdapterStream::SCALE);
            let eps = noise(noise_key, blocks * RANK, dtype);
            let whole = |leaves: &[Vec<f64>]| {
                let update = leaves[0].chunks(N * D_INPUT / blocks).zip(eps.chunks(RANK));
                let update = update.flat_map(|(x, eps)| {
                    let leaves = [vec![x.to_vec()], leaves[1..].to_vec()].concat();
                    scala_bl(SIZES, &leaves, Some(eps).filter(|_| scheme != Scheme::Mean))
                });
                plus(&base_of(&layer, &leaves[0]), &update.collect::<Vec<f64>>())
            };
            let name = format!("{scheme:?} {dtype:?}");
            close(&format!("{name} output"), &host(out), &whole(&leaves), tolerance);
            let found = [
                ("x", gradient(&x, &gradients)),
                ("V", gradient(&a, &gradients)),
                ("mean", gradient(&log_mean, &gradients)),
                ("std", gradient(&log_std, &gradients)),
                ("B", gradient(&b, &gradients)),
            ];
            let by_output = host(by_output);
            close_to_slopes(&name, &found, &leaves, tolerance, |leaves| {
                dot(&whole(leaves), &by_output)
            });
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
                host(layer.forward_with(x.clone(), &Pass::sampled(scheme, key)))
            };
            let first = run(&layer, key());
            assert_eq!(first, run(&layer.clone(), key()), "{scheme:?}");
            let other = run(&layer, key().at_step(4));
            assert!(first.iter().zip(&other).all(|(a, b)| a != b), "{scheme:?}");
        }
    }
}
