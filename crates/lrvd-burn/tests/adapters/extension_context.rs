//! C-LoRA: the pass by loops and the core's divergence for the layer's own noise.

use crate::support::by_hand::c_lora;
use crate::support::net::{Net, WIDTHS};
use crate::support::noisy::{SIZES, base_of, plus};
use crate::support::reference::noise;
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, TOKENS, close, close_to_slopes, dot, gradient, host,
    host_adapter, layer, leaf, numbers, of, parameter, tensor,
};
use burn::tensor::DType;
use lrvd_burn::adapter::{
    AdaptedLinear, AdapterConfig, AdapterKind, AdapterStream, ContextualGaussian, Extension,
    Observer,
};
use lrvd_burn::model::trainable_counts;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::noise::NoiseKey;

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

/// The noise of a use, a matrix per token.
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

/// Output, divergence and every gradient of one pass against loops and their slopes.
fn check(scheme: Scheme, dtype: DType, tolerance: f64) {
    let mut layer = contextual_layer(dtype);
    let observer = Observer::of_divergences(PRIOR);
    layer.observe(Some(observer.clone()));
    let x = leaf(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype);
    let by_output = tensor(&numbers(2, N * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
    let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, key()));
    let divergence = observer.take_divergences().remove(0);
    assert_eq!((divergence.module, divergence.use_index), (layer.noise_id(), 0));
    assert_eq!(divergence.per_token.dims(), [BATCH, TOKENS]);
    let kl = divergence.per_token.clone().sum().mul_scalar(KL_WEIGHT);
    let gradients = ((out.clone() * by_output.clone()).sum() + kl).backward();

    let net = context(&layer);
    let (a, b, w1, w2) = (of(&layer).a.val(), of(&layer).b.val(), net.w1.val(), net.w2.val());
    let (b1, b2) = (net.b1.val(), net.b2.val());
    let matrices = [&a, &b, &w1, &w2].map(|t| host(t.clone()));
    let [of_a, of_b, of_w1, of_w2] = matrices;
    let leaves = [host(x.clone()), of_a, of_b, of_w1, host(b1.clone()), of_w2, host(b2.clone())];
    let eps = noise_of(&layer, scheme, 0, dtype);
    let run = |leaves: &[Vec<f64>]| {
        let (update, kl) = c_lora(SIZES, leaves, eps.as_deref(), PRIOR);
        (plus(&base_of(&layer, &leaves[0]), &update), kl)
    };
    let name = format!("{scheme:?} {dtype:?}");
    let (output, kl) = run(&leaves);
    close(&format!("{name} output"), &host(out), &output, tolerance);
    close(&format!("{name} KL"), &host(divergence.per_token), &kl, tolerance);
    let found = [
        ("x", gradient(&x, &gradients)),
        ("A", gradient(&a, &gradients)),
        ("B", gradient(&b, &gradients)),
        ("w1", gradient(&w1, &gradients)),
        ("b1", gradient(&b1, &gradients)),
        ("w2", gradient(&w2, &gradients)),
        ("b2", gradient(&b2, &gradients)),
    ];
    let by_output = host(by_output);
    close_to_slopes(&name, &found, &leaves, tolerance, |leaves| {
        let (output, kl) = run(leaves);
        dot(&output, &by_output) + KL_WEIGHT * kl.iter().sum::<f64>()
    });
}

#[test]
fn passes_and_divergences_equal_the_loops() {
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
        drop(layer.forward_with(x.clone(), &Pass::mean()));
    }
    assert_eq!((slopes.take_uses().len(), slopes.take_divergences().len()), (1, 0));
    assert_eq!((costs.take_uses().len(), costs.take_divergences().len()), (0, 1));
}

#[test]
fn parameters_are_those_of_the_publication() {
    let attach = |layer: &mut AdaptedLinear, rank, hidden| {
        let kind = AdapterKind::CLora { hidden };
        let config = AdapterConfig { kind, rank, lora_alpha: 16.0, dropout: 0.0 };
        config.attach(layer, "net.first", NoiseKey::new(1)).unwrap();
    };
    let mut net = Net::new([None, None], DType::F32);
    attach(&mut net.first, 8, 64);
    let counts = trainable_counts(&net);
    assert_eq!((counts.adapter, counts.posterior), (8 * (WIDTHS[0] + WIDTHS[1]) + 8896, 0));
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
    let mask = tensor(&[1.0, 0.0, 1.0, 0.0], [4], DType::F64);
    zeroed.edit(|adapter| {
        let (a, b) = (adapter.a.val().inner(), adapter.b.val().inner());
        adapter.a = burn::module::Param::from_tensor(a * mask.clone().unsqueeze_dim(0));
        adapter.b = burn::module::Param::from_tensor(b * mask.unsqueeze_dim(1));
    });
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F64);
    let run = |layer: &AdaptedLinear| host(layer.forward_with(x.clone(), &Pass::mean()));
    close("cut", &run(&cut), &run(&zeroed), 1e-13);
}
