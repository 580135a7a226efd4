//! Probes: inputs and arriving gradients multiply to the gradients of the factors, exactly.

use crate::support::prelude::*;
use lrvd_burn::adapter::{AdapterMembers, ObservedUse};
use lrvd_burn::model::observe;

/// Input and arriving gradient of A, and of B.
fn pairs(used: &ObservedUse, gradients: &Gradients) -> [[Tensor<3>; 2]; 2] {
    [
        [used.input.clone(), used.rank_gradient(gradients).unwrap()],
        [used.rank_input.clone(), used.output_gradient(gradients).unwrap()],
    ]
}

/// Asserts that `Σ_rows inputᵀ·gradient` over every use is the gradient of A, and of B.
fn check_products(what: &str, layer: &AdaptedLinear, uses: &[ObservedUse], all: &Gradients) {
    for (factor, expected) in layer_gradients(layer, all).into_iter().take(2).enumerate() {
        let terms = uses.iter().map(|used| {
            let [input, slope] = pairs(used, all)[factor].clone().map(|t| t.flatten::<2>(0, 1));
            input.transpose().matmul(slope)
        });
        let sum = terms.reduce(|sum, term| sum + term).unwrap();
        close(&format!("{what} of factor {factor}"), &host(sum), &expected, 1e-13);
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

#[test]
fn outer_products_are_the_gradients_of_the_factors() {
    for (kind, mut layer) in every_layer(DType::F64).into_iter().enumerate() {
        layer.edit(|adapter| adapter.dropout = RATE);
        // B's gradient is the one of the drawn B too, as the noise is added to the mean. Flipout with noise on B, which
        // reads the drawn A, is left out, and so is noise that depends on the mean or is on activations.
        let is_posterior = of(&layer).posterior().is_some();
        for &scheme in &SCHEMES[..4] {
            let has_signs_on_b = scheme == Scheme::PerToken && (is_posterior || kind == 7);
            let depends_on_mean = scheme != Scheme::Mean && kind == 3;
            if !layer.supports(scheme) || has_signs_on_b || depends_on_mean {
                continue;
            }
            let pass =
                Pass::sampled(scheme, NoiseKey::new(6)).with_adapter_dropout(NoiseKey::new(4));
            layer.observe(None);
            let plain = host(layer.forward_with(inputs(DType::F64), &pass));
            let observer = observed(&mut layer);
            let out = layer.forward_with(inputs(DType::F64), &pass);
            same("observed output", &host(out.clone()), &plain);
            let gradients = loss(out).backward();
            let uses = observer.take_uses();
            assert_eq!((uses[0].module, uses[0].use_index), (layer.noise_id(), 0));
            assert_eq!(uses[0].input.dims(), [BATCH, TOKENS, D_INPUT]);
            check_products(&format!("layer {kind} {scheme:?}"), &layer, &uses, &gradients);
            assert!(observer.take_uses().is_empty(), "taken twice");
        }
    }
}

#[test]
fn both_uses_of_a_shared_layer_are_seen() {
    for scheme in [Scheme::Mean, WEIGHTS[1]] {
        let mut layer = layer(&noisy(VariationalFamily::AsymRankVariance), DType::F64);
        let observer = observed(&mut layer);
        let prepared = layer.prepare(&Pass::sampled(scheme, NoiseKey::new(6)), BATCH);
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
    let expected = layer_gradients(&layer, &gradients);
    for ([input, slope], expected) in pairs(&used, &gradients).into_iter().zip(expected) {
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
    assert_eq!(
        uses.iter().map(|u| u.module).collect::<Vec<_>>(),
        [net.first.noise_id(), net.second.noise_id()]
    );
    assert_eq!(observe(&mut net, None), 2);
    let one = |t: Tensor<3>, example| t.narrow(0, example, 1);
    for example in 0..x.dims()[0] {
        let out = net.forward(one(x.clone(), example), &Pass::mean());
        let alone = (out * targets.clone().narrow(0, example, 1)).sum().backward();
        for (used, layer) in uses.iter().zip([&net.first, &net.second]) {
            let expected = layer_gradients(layer, &alone);
            for (pair, expected) in pairs(used, &all).into_iter().zip(expected) {
                let [input, slope] = pair.map(|t| one(t, example));
                let product = input.swap_dims(1, 2).matmul(slope);
                close("example", &host(product), &expected, 1e-13);
            }
        }
    }
    assert!(observer.take_uses().is_empty(), "observation did not end");
}

#[test]
fn probes_suffice_for_a_frozen_model() {
    // As after training: nothing but the probes asks for a gradient, on a plain device.
    let mut layer = layer(&plain(), DType::F32).valid();
    let observer = observed(&mut layer);
    let x = inputs(DType::F32).inner();
    drop(layer.forward_with(x.clone(), &Pass::mean()));
    let gradients = loss(layer.forward_with(x, &Pass::mean())).backward();
    let uses = observer.take_uses();
    // The loss does not reach the first use.
    assert!(uses[0].rank_gradient(&gradients).is_none());
    assert!(uses[0].output_gradient(&gradients).is_none());
    for [input, slope] in pairs(&uses[1], &gradients) {
        assert!(!input.device().is_autodiff() && host(slope).iter().any(|g| *g != 0.0));
    }
}
