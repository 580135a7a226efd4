//! Probes: inputs and arriving gradients multiply to the gradients of the factors, exactly.

use crate::support::prelude::*;
use lrvd_burn::adapter::{AdapterMembers, ObservedUse, Observer};
use lrvd_burn::model::observe;

/// Input and arriving gradient of A, and of B.
fn pairs(used: &ObservedUse, gradients: &Gradients) -> [(Tensor<3>, Tensor<3>); 2] {
    [
        (used.input.clone(), used.rank_gradient(gradients).unwrap()),
        (used.rank_input.clone(), used.output_gradient(gradients).unwrap()),
    ]
}

/// Asserts that `Σ_rows inputᵀ·gradient` over every use is the gradient of A, and of B.
fn check_products(what: &str, layer: &AdaptedLinear, uses: &[ObservedUse], all: &Gradients) {
    let flat = |t: Tensor<3>| -> Tensor<2> { t.flatten(0, 1) };
    let expected = layer_gradients(layer, all);
    for (factor, name) in ["A", "B"].into_iter().enumerate() {
        let terms = uses.iter().map(|used| {
            let [a, b] = pairs(used, all);
            let (input, slope) = if factor == 0 { a } else { b };
            flat(input).transpose().matmul(flat(slope))
        });
        let sum = terms.reduce(|sum, term| sum + term).unwrap();
        close(&format!("{what} {name}"), &host(sum), &expected[factor], 1e-13);
    }
}

/// An observer of the layer's gradients.
fn observed(layer: &mut AdaptedLinear) -> Observer {
    let observer = Observer::of_gradients();
    layer.observe(Some(observer.clone()));
    observer
}

fn loss(out: Tensor<3>) -> Tensor<1> {
    let weights = tensor(&numbers(2, out.shape().num_elements()), out.dims(), out.dtype());
    (out.tanh() * weights).sum()
}

/// The outer products are the gradients of A and B, and the output does not change.
fn check(mut layer: AdaptedLinear, pass: &Pass) {
    let plain = layer.forward_with(inputs(DType::F64), pass);
    let observer = observed(&mut layer);
    let out = layer.forward_with(inputs(DType::F64), pass);
    same("observed output", &host(out.clone()), &host(plain));
    let gradients = loss(out).backward();
    let uses = observer.take_uses();
    assert_eq!(uses.len(), 1);
    assert_eq!((uses[0].module, uses[0].use_index), (layer.noise_id(), 0));
    assert_eq!(uses[0].input.dims(), [BATCH, TOKENS, D_INPUT]);
    assert_eq!(uses[0].rank_input.dims(), [BATCH, TOKENS, RANK]);
    check_products(&format!("{:?}", pass.scheme), &layer, &uses, &gradients);

    assert!(observer.take_uses().is_empty(), "taken twice");
    layer.observe(None);
    drop(layer.forward_with(inputs(DType::F64), pass));
    assert!(observer.take_uses().is_empty(), "seen without an observer");
}

/// A layer with an adapter of `kind`, whose B is not zero.
fn attached(kind: AdapterKind, dropout: f64) -> AdaptedLinear {
    let mut layer = bare(DType::F64);
    let config = AdapterConfig { kind, rank: RANK, lora_alpha: 6.0, dropout };
    config.attach(&mut layer, "net.first", NoiseKey::new(3)).unwrap();
    layer.edit(|adapter| adapter.b = random(8, [RANK, D_OUTPUT], DType::F64));
    layer
}

#[test]
fn outer_products_are_the_gradients_of_plain_factors() {
    check(layer(&plain(), DType::F64), &Pass::mean());
    check(layer(&with_singular_values(), DType::F64), &Pass::mean());
    let dropped = attached(AdapterKind::Lora { b_bound: 0.0 }, 0.4);
    check(dropped, &Pass::mean().with_adapter_dropout(NoiseKey::new(4)));
}

#[test]
fn outer_products_are_the_gradients_under_noise() {
    for per in [DrawPer::Sequence, DrawPer::Batch, DrawPer::Token] {
        let pass = Pass::sampled(Scheme::Weights(per), NoiseKey::new(6));
        // B's gradient is the one of the drawn B too, as the noise is added to the mean. Flipout with noise on B, which
        // reads the drawn A, is left out.
        if per != DrawPer::Token {
            check(layer(&noisy(VariationalFamily::RankVariance), DType::F64), &pass);
        }
        check(attached(AdapterKind::Blob { epsilon: 0.8 }, 0.0), &pass);
        check(attached(AdapterKind::CLora { hidden: 6 }, 0.0), &pass);
    }
    let scales = attached(AdapterKind::ScalaBl { epsilon: 0.5 }, 0.0);
    check(scales, &Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(6)));
}

#[test]
fn both_uses_of_a_shared_layer_are_seen() {
    for scheme in [Scheme::Mean, Scheme::Weights(DrawPer::Sequence)] {
        let mut layer = layer(&noisy(VariationalFamily::AsymRankVariance), DType::F64);
        let observer = observed(&mut layer);
        let pass = Pass::sampled(scheme, NoiseKey::new(6));
        let prepared = layer.prepare(&pass, BATCH);
        let rows = tensor(&numbers(5, 4 * D_INPUT), [4, D_INPUT], DType::F64);
        let total =
            loss(prepared.forward(inputs(DType::F64))) + loss(prepared.forward_shared(rows));
        let gradients = total.backward();
        let uses = observer.take_uses();
        assert_eq!(uses.iter().map(|u| u.use_index).collect::<Vec<_>>(), [0, 1]);
        check_products(&format!("{scheme:?}"), &layer, &uses, &gradients);
    }
}

#[test]
fn members_are_seen_apart() {
    let (a, b) = ([2, D_INPUT, RANK], [2, RANK, D_OUTPUT]);
    let (a, b) = (random(41, a, DType::F64), random(42, b, DType::F64));
    let mut layer = bare(DType::F64);
    let members = AdapterMembers { a, b, scaling: SCALING, dropout: 0.0 };
    layer.attach("net.first", members, RANK).unwrap();
    let observer = observed(&mut layer);
    let gradients = loss(layer.forward_with(inputs(DType::F64), &Pass::mean())).backward();
    let used = observer.take_uses().remove(0);
    assert_eq!(used.input.dims(), [2, BATCH / 2 * TOKENS, D_INPUT]);
    let expected = layer_gradients(&layer, &gradients);
    for ((input, slope), expected) in pairs(&used, &gradients).into_iter().zip(expected) {
        close("member", &host(input.swap_dims(1, 2).matmul(slope)), &expected, 1e-13);
    }
}

#[test]
fn one_backward_gives_the_gradient_of_every_example() {
    let mut net = Net::new([Some(&plain()), Some(&factors(1))], DType::F64);
    let observer = Observer::of_gradients();
    assert_eq!(observe(&mut net, Some(&observer)), 2);
    let (x, targets) = data(DType::F64);
    let all = (net.forward(x.clone(), &Pass::mean()) * targets.clone()).sum().backward();
    let uses = observer.take_uses();
    assert_eq!(uses.len(), 2);
    assert_eq!(uses[1].module, net.second.noise_id());
    assert_eq!(observe(&mut net, None), 2);
    for example in 0..net::BATCH {
        let one = |t: Tensor<3>| t.narrow(0, example, 1);
        let out = net.forward(one(x.clone()), &Pass::mean());
        let alone = (out * targets.clone().narrow(0, example, 1)).sum().backward();
        for (used, layer) in uses.iter().zip([&net.first, &net.second]) {
            let expected = layer_gradients(layer, &alone);
            for ((input, slope), expected) in pairs(used, &all).into_iter().zip(expected) {
                let product = one(input).swap_dims(1, 2).matmul(one(slope));
                close("example", &host(product), &expected, 1e-13);
            }
        }
    }
    assert!(observer.take_uses().is_empty(), "observation did not end");
}

#[test]
fn probes_suffice_for_a_frozen_model() {
    // As after training: nothing but the probes asks for a gradient, on a plain device.
    let mut net = Net::new([Some(&plain()), Some(&factors(1))], DType::F32).valid();
    net.visit_layers_mut(&mut |_, layer| {
        layer.edit(|adapter| {
            adapter.a = Param::from_tensor(adapter.a.val()).set_require_grad(false);
            adapter.b = Param::from_tensor(adapter.b.val()).set_require_grad(false);
        });
    });
    let observer = Observer::of_gradients();
    observe(&mut net, Some(&observer));
    let (x, targets) = data(DType::F32);
    let gradients = (net.forward(x, &Pass::mean()) * targets).sum().backward();
    for used in observer.take_uses() {
        assert!(host(used.rank_gradient(&gradients).unwrap()).iter().any(|g| *g != 0.0));
        assert!(host(used.output_gradient(&gradients).unwrap()).iter().any(|g| *g != 0.0));
        assert!(!used.input.device().is_autodiff() && !used.rank_input.device().is_autodiff());
    }
}

#[test]
fn what_the_loss_does_not_reach_has_no_gradient() {
    let mut layer = layer(&plain(), DType::F64);
    let observer = observed(&mut layer);
    drop(layer.forward_with(inputs(DType::F64), &Pass::mean()));
    let gradients = loss(layer.forward_with(inputs(DType::F64), &Pass::mean())).backward();
    let uses = observer.take_uses();
    assert!(uses[0].rank_gradient(&gradients).is_none());
    assert!(uses[0].output_gradient(&gradients).is_none());
    assert!(uses[1].rank_gradient(&gradients).is_some());
}
