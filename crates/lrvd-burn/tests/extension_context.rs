//! C-LoRA: the core's pass and divergence for the layer's own noise.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod support;

use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::{
    AdaptedLinear, AdapterConfig, AdapterKind, AdapterStream, ContextualGaussian, Extension,
    Observer,
};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::model::trainable_counts;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::{
    ContextAdapter, ContextNetwork, ContextNoise, ContextPass, context_parameter_count,
};
use lrvd_core::factor::FactorView;
use lrvd_core::noise::NoiseKey;
use support::net::{Net, WIDTHS};
use support::reference::noise;
use support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, TOKENS, close, gradient, host, host_adapter, layer, leaf,
    numbers, of, parameter, product, tensor, transposed,
};

const HIDDEN: usize = 6;
const SQUARE: usize = RANK * RANK;
const N: usize = BATCH * TOKENS;
const PRIOR: f64 = 0.3;
const KL_WEIGHT: f64 = 0.7;

fn key() -> NoiseKey {
    NoiseKey::new(77).at_step(2)
}

fn contextual_layer(dtype: DType) -> AdaptedLinear {
    let mut layer = layer("net.first", &host_adapter(None, 10), dtype);
    let context = ContextualGaussian {
        w1: parameter(&numbers(51, RANK * HIDDEN), [RANK, HIDDEN], dtype),
        b1: parameter(&numbers(52, HIDDEN), [HIDDEN], dtype),
        w2: parameter(&numbers(53, HIDDEN * 2 * SQUARE), [HIDDEN, 2 * SQUARE], dtype),
        b2: parameter(&numbers(54, 2 * SQUARE), [2 * SQUARE], dtype),
    };
    layer.extend(Some(Extension::Contextual(context))).unwrap();
    layer
}

fn context(layer: &AdaptedLinear) -> &ContextualGaussian {
    match layer.extension() {
        Some(Extension::Contextual(context)) => context,
        _ => unreachable!("the tests put it there"),
    }
}

/// The noise of a use as the core takes it, a matrix per token.
fn noise_of(
    layer: &AdaptedLinear,
    scheme: Scheme,
    use_index: u32,
    dtype: DType,
) -> Option<Vec<f64>> {
    let key = key().for_module(layer.noise_id());
    match scheme {
        Scheme::Weights(DrawPer::Token) => {
            let key = key.on_stream(AdapterStream::CONTEXT_TOKEN).with_use(use_index);
            Some(noise(key, N * SQUARE, dtype))
        }
        Scheme::Weights(per) => {
            let draws = if per == DrawPer::Sequence { BATCH } else { 1 };
            let all = noise(key.on_stream(AdapterStream::CONTEXT), draws * SQUARE, dtype);
            let tokens = N / draws;
            Some(all.chunks(SQUARE).flat_map(|eps| eps.repeat(tokens)).collect())
        }
        _ => None,
    }
}

/// Output, divergence and every gradient of one pass against the core.
fn check(scheme: Scheme, dtype: DType, tolerance: f64) {
    let mut layer = contextual_layer(dtype);
    let observer = Observer::of_divergences(PRIOR);
    layer.observe(Some(observer.clone()));
    let x = leaf(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype);
    let by_output = tensor(&numbers(2, N * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
    let out = layer.forward(x.clone(), &Pass::sampled(scheme, key()));
    let divergence = observer.take_divergences().remove(0);
    assert_eq!((divergence.module, divergence.use_index), (layer.noise_id(), 0));
    assert_eq!(divergence.per_token.dims(), [BATCH, TOKENS]);
    let kl = divergence.per_token.clone().sum().mul_scalar(KL_WEIGHT);
    let gradients = ((out.clone() * by_output.clone()).sum() + kl).backward();

    let adapter = HostAdapter::read(of(&layer));
    let (a, b) = adapter.factors().unwrap();
    let net = context(&layer);
    let w1 = transposed(&host(net.w1.val()), RANK, HIDDEN);
    let w2 = transposed(&host(net.w2.val()), HIDDEN, 2 * SQUARE);
    let (b1, b2) = (host(net.b1.val()), host(net.b2.val()));
    let network = ContextNetwork {
        w1: FactorView::new("w1", &w1, HIDDEN, RANK).unwrap(),
        b1: &b1,
        w2: FactorView::new("w2", &w2, 2 * SQUARE, HIDDEN).unwrap(),
        b2: &b2,
    };
    let core = ContextAdapter::new(a, b, network, adapter.scaling).unwrap();
    let eps = noise_of(&layer, scheme, 0, dtype);
    let ones = vec![1.0; N * RANK];
    let drawn = eps.as_ref().map(|eps| ContextNoise { eps, input_sign: &ones, output_sign: &ones });
    let x_host = host(x.clone());
    let wanted = ContextPass::new(core, &x_host, drawn).unwrap();
    let by_output = host(by_output);
    let slopes = wanted.backward(&by_output, &[KL_WEIGHT; N], PRIOR).unwrap();

    let name = format!("{scheme:?} {dtype:?}");
    let weight = host(layer.weight.val());
    let bias = host(layer.bias.as_ref().unwrap().val());
    let base = product(&x_host, &weight, D_INPUT, D_OUTPUT);
    let output = base.iter().zip(wanted.output()).enumerate();
    let output: Vec<f64> = output.map(|(i, (b, u))| b + bias[i % D_OUTPUT] + u).collect();
    close(&format!("{name} output"), &host(out), &output, tolerance);
    let per_token = wanted.kl_per_token(PRIOR).unwrap();
    close(&format!("{name} KL"), &host(divergence.per_token), &per_token, tolerance);
    let through_base =
        product(&by_output, &transposed(&weight, D_INPUT, D_OUTPUT), D_OUTPUT, D_INPUT);
    let by_x: Vec<f64> = slopes.x.iter().zip(&through_base).map(|(a, b)| a + b).collect();
    close(&format!("{name} x"), &gradient(&x, &gradients), &by_x, tolerance);
    let turned = |t: &Tensor<2>, rows, columns| transposed(&gradient(t, &gradients), rows, columns);
    let of_a = turned(&of(&layer).a.val(), D_INPUT, RANK);
    close(&format!("{name} A"), &of_a, &slopes.a, tolerance);
    close(&format!("{name} B"), &gradient(&of(&layer).b.val(), &gradients), &slopes.b, tolerance);
    let of_w1 = turned(&net.w1.val(), RANK, HIDDEN);
    close(&format!("{name} w1"), &of_w1, &slopes.w1, tolerance);
    close(&format!("{name} b1"), &gradient(&net.b1.val(), &gradients), &slopes.b1, tolerance);
    let of_w2 = turned(&net.w2.val(), HIDDEN, 2 * SQUARE);
    close(&format!("{name} w2"), &of_w2, &slopes.w2, tolerance);
    close(&format!("{name} b2"), &gradient(&net.b2.val(), &gradients), &slopes.b2, tolerance);
}

#[test]
fn passes_and_divergences_equal_the_core() {
    for scheme in [
        Scheme::Mean,
        Scheme::Weights(DrawPer::Batch),
        Scheme::Weights(DrawPer::Sequence),
        Scheme::Weights(DrawPer::Token),
    ] {
        check(scheme, DType::F64, 1e-12);
        check(scheme, DType::F32, 1e-5);
    }
}

#[test]
fn shared_rows_meet_the_draws_of_the_tokens() {
    let layer = contextual_layer(DType::F64);
    let rows = numbers(5, N * D_INPUT);
    for per in [DrawPer::Batch, DrawPer::Sequence] {
        let pass = Pass::sampled(Scheme::Weights(per), key());
        let prepared = layer.prepare(&pass, BATCH);
        let shared = prepared.forward_shared(tensor(&rows, [N, D_INPUT], DType::F64));
        let draws = if per == DrawPer::Sequence { BATCH } else { 1 };
        assert_eq!(shared.dims(), [draws, N, D_OUTPUT]);
        let tokens = tensor(&rows.repeat(draws), [draws, N, D_INPUT], DType::F64);
        close("as tokens", &host(shared), &host(prepared.forward(tokens)), 1e-13);
    }
    let prepared_pass = Pass::sampled(Scheme::FLIPOUT, key());
    let prepared = layer.prepare(&prepared_pass, BATCH);
    let shared = host(prepared.forward_shared(tensor(&rows, [N, D_INPUT], DType::F64)));
    let tokens = host(prepared.forward(tensor(&rows, [1, N, D_INPUT], DType::F64)));
    assert!(shared.iter().zip(&tokens).all(|(a, b)| a != b), "both uses share their noise");
}

#[test]
fn a_gradient_observer_asks_for_no_divergence_and_the_other_way_round() {
    let mut layer = contextual_layer(DType::F32);
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F32);
    let [slopes, costs] = [Observer::of_gradients(), Observer::of_divergences(PRIOR)];
    for observer in [&slopes, &costs] {
        layer.observe(Some(observer.clone()));
        drop(layer.forward(x.clone(), &Pass::mean()));
    }
    assert_eq!((slopes.take_uses().len(), slopes.take_divergences().len()), (1, 0));
    assert_eq!((costs.take_uses().len(), costs.take_divergences().len()), (0, 1));
}

#[test]
fn parameters_are_those_of_the_publication() {
    let attach = |layer: &mut AdaptedLinear, rank, hidden| {
        let kind = AdapterKind::CLora { hidden };
        let config = AdapterConfig { kind, rank, lora_alpha: 16.0, dropout: 0.0 };
        config.attach(layer, NoiseKey::new(1)).unwrap();
    };
    let mut net = Net::new([None, None], DType::F32);
    attach(&mut net.first, 8, 64);
    let counts = trainable_counts(&net);
    assert_eq!(counts.adapter, 8 * (WIDTHS[0] + WIDTHS[1]) + 8896);
    assert_eq!((counts.posterior, context_parameter_count(8, 64)), (0, 8896));
    // As PyTorch starts a linear layer, and the update is zero.
    let bound = |t: Vec<f64>| t.into_iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let fresh = context(&net.first);
    let near = |found: f64, limit: f64| found <= limit * 1.000_001 && found > 0.9 * limit;
    assert!(near(bound(host(fresh.w1.val())), 1.0 / 8f64.sqrt()));
    assert!(near(bound(host(fresh.b1.val())), 1.0 / 8f64.sqrt()));
    assert!(near(bound(host(fresh.w2.val())), 0.125));
    assert!(near(bound(host(fresh.b2.val())), 0.125));
    assert!(host(of(&net.first).b.val()).iter().all(|b| *b == 0.0));
    assert!(net.first.slot().is_none() && net.first.delta().is_none());
}

#[test]
fn dropping_directions_equals_zeroing_them() {
    let kept = [0, 2];
    let mut cut = contextual_layer(DType::F64);
    cut.select_ranks(&kept);
    assert_eq!((cut.rank(), context(&cut).rank()), (2, 2));
    let mut zeroed = contextual_layer(DType::F64);
    let adapter = zeroed.low_rank_mut().unwrap();
    let mask = tensor(&[1.0, 0.0, 1.0, 0.0], [4], DType::F64);
    let (a, b) = (adapter.a.val().inner(), adapter.b.val().inner());
    adapter.a = burn::module::Param::from_tensor(a * mask.clone().unsqueeze_dim(0));
    adapter.b = burn::module::Param::from_tensor(b * mask.unsqueeze_dim(1));
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F64);
    let run = |layer: &AdaptedLinear| host(layer.forward(x.clone(), &Pass::mean()));
    close("cut", &run(&cut), &run(&zeroed), 1e-13);
}
