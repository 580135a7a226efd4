//! Probes: inputs and arriving gradients multiply to the gradients of the factors, exactly.

use crate::support::net::{Net, WIDTHS, data};
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, SCALING, TOKENS, base, close, gradient, host, host_adapter,
    inputs, layer, numbers, of, parameter, tensor,
};
use burn::module::{Module, Param};
use burn::tensor::{DType, Gradients, Tensor};
use lrvd_burn::adapter::{
    AdaptedLinear, AdapterConfig, AdapterKind, AdapterMembers, ObservedUse, Observer,
};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::model::{NamedModule, observe};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;

const ROWS: usize = 4;

/// `Σ_rows inputᵀ·gradient` over every use, for A and for B.
fn outer_products(uses: &[ObservedUse], gradients: &Gradients) -> [Vec<f64>; 2] {
    let sum = |pair: &dyn Fn(&ObservedUse) -> (Tensor<3>, Tensor<3>)| {
        let mut total: Option<Tensor<2>> = None;
        for used in uses {
            let (input, slope) = pair(used);
            let [n, rows, width] = slope.dims();
            let slope = slope.reshape([n * rows, width]);
            let [n, rows, width] = input.dims();
            let term = input.reshape([n * rows, width]).transpose().matmul(slope);
            total = Some(match total.take() {
                Some(total) => total + term,
                None => term,
            });
        }
        host(total.unwrap())
    };
    [
        sum(&|u| (u.input.clone(), u.rank_gradient(gradients).unwrap())),
        sum(&|u| (u.rank_input.clone(), u.output_gradient(gradients).unwrap())),
    ]
}

fn loss(out: Tensor<3>) -> Tensor<1> {
    let weights = tensor(&numbers(2, out.shape().num_elements()), out.dims(), out.dtype());
    (out.tanh() * weights).sum()
}

/// The outer products are the gradients of A and B, and the output does not change.
fn check(mut layer: AdaptedLinear, pass: &Pass) {
    let plain = layer.forward_with(inputs(DType::F64), pass);
    let observer = Observer::of_gradients();
    layer.observe(Some(observer.clone()));
    let out = layer.forward_with(inputs(DType::F64), pass);
    assert_eq!(host(out.clone()), host(plain), "a probe changes the output");
    let gradients = loss(out).backward();
    let uses = observer.take_uses();
    assert_eq!(uses.len(), 1);
    assert_eq!((uses[0].module, uses[0].use_index), (layer.noise_id(), 0));
    assert_eq!(uses[0].input.dims(), [BATCH, TOKENS, D_INPUT]);
    assert_eq!(uses[0].rank_input.dims(), [BATCH, TOKENS, RANK]);
    let [by_a, by_b] = outer_products(&uses, &gradients);
    let name = format!("{:?}", pass.scheme);
    let adapter = of(&layer);
    close(&format!("{name} A"), &by_a, &gradient(&adapter.a.val(), &gradients), 1e-13);
    close(&format!("{name} B"), &by_b, &gradient(&adapter.b.val(), &gradients), 1e-13);

    assert!(observer.take_uses().is_empty(), "taken twice");
    layer.observe(None);
    drop(layer.forward_with(inputs(DType::F64), pass));
    assert!(observer.take_uses().is_empty(), "seen without an observer");
}

/// A layer with an adapter of `kind`, whose B is not zero.
fn attached(kind: AdapterKind, dropout: f64) -> AdaptedLinear {
    let mut layer = base("net.first", D_INPUT, D_OUTPUT, DType::F64);
    let config = AdapterConfig { kind, rank: RANK, lora_alpha: 6.0, dropout };
    config.attach(&mut layer, "net.first", NoiseKey::new(3)).unwrap();
    let b = parameter(&numbers(8, RANK * D_OUTPUT), [RANK, D_OUTPUT], DType::F64);
    layer.edit(|adapter| adapter.b = b);
    layer
}

#[test]
fn outer_products_are_the_gradients_of_plain_factors() {
    check(layer("net.first", &host_adapter(None, 10), DType::F64), &Pass::mean());
    let mut diagonal = host_adapter(None, 10);
    diagonal.e = Some(vec![0.5, -2.0, 0.25, 1.5]);
    check(layer("net.first", &diagonal, DType::F64), &Pass::mean());
    let dropped = attached(AdapterKind::Lora { b_bound: 0.0 }, 0.4);
    check(dropped, &Pass::mean().with_adapter_dropout(NoiseKey::new(4)));
}

#[test]
fn outer_products_are_the_gradients_under_noise() {
    let variational =
        || layer("net.first", &host_adapter(Some(VariationalFamily::RankVariance), 10), DType::F64);
    let blob = || attached(AdapterKind::Blob { epsilon: 0.8 }, 0.0);
    for per in [DrawPer::Sequence, DrawPer::Batch, DrawPer::Token] {
        let pass = Pass::sampled(Scheme::Weights(per), NoiseKey::new(6));
        // B's gradient is the one of the drawn B too, as the noise is added to the mean. A drawn A
        // that is read by B's noise has no part in this.
        if per == DrawPer::Token {
            check(blob(), &pass);
        } else {
            check(variational(), &pass);
            check(blob(), &pass);
        }
        check(attached(AdapterKind::CLora { hidden: 6 }, 0.0), &pass);
    }
    let scales = attached(AdapterKind::ScalaBl { epsilon: 0.5 }, 0.0);
    check(scales, &Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(6)));
}

#[test]
fn both_uses_of_a_shared_layer_are_seen() {
    for scheme in [Scheme::Mean, Scheme::Weights(DrawPer::Sequence)] {
        let host_of = host_adapter(Some(VariationalFamily::AsymRankVariance), 10);
        let mut layer = layer("net.first", &host_of, DType::F64);
        let observer = Observer::of_gradients();
        layer.observe(Some(observer.clone()));
        let pass = Pass::sampled(scheme, NoiseKey::new(6));
        let prepared = layer.prepare(&pass, BATCH);
        let rows = tensor(&numbers(5, ROWS * D_INPUT), [ROWS, D_INPUT], DType::F64);
        let total =
            loss(prepared.forward(inputs(DType::F64))) + loss(prepared.forward_shared(rows));
        let gradients = total.backward();
        let uses = observer.take_uses();
        assert_eq!(uses.iter().map(|u| u.use_index).collect::<Vec<_>>(), [0, 1]);
        let [by_a, by_b] = outer_products(&uses, &gradients);
        close("A", &by_a, &gradient(&of(&layer).a.val(), &gradients), 1e-13);
        close("B", &by_b, &gradient(&of(&layer).b.val(), &gradients), 1e-13);
    }
}

#[test]
fn members_are_seen_apart() {
    let (a, b) = (2 * D_INPUT * RANK, 2 * RANK * D_OUTPUT);
    let members = AdapterMembers {
        a: parameter(&numbers(41, a), [2, D_INPUT, RANK], DType::F64),
        b: parameter(&numbers(42, b), [2, RANK, D_OUTPUT], DType::F64),
        scaling: SCALING,
        dropout: 0.0,
    };
    let factors = [members.a.val(), members.b.val()];
    let mut layer = base("net.first", D_INPUT, D_OUTPUT, DType::F64);
    layer.attach("net.first", members, RANK).unwrap();
    let observer = Observer::of_gradients();
    layer.observe(Some(observer.clone()));
    let gradients = loss(layer.forward_with(inputs(DType::F64), &Pass::mean())).backward();
    let used = observer.take_uses().remove(0);
    assert_eq!(used.input.dims(), [2, BATCH / 2 * TOKENS, D_INPUT]);
    let pairs = [
        (used.input.clone(), used.rank_gradient(&gradients).unwrap()),
        (used.rank_input.clone(), used.output_gradient(&gradients).unwrap()),
    ];
    for ((input, slope), factor) in pairs.into_iter().zip(factors) {
        let product = input.swap_dims(1, 2).matmul(slope);
        close("member", &host(product), &gradient(&factor, &gradients), 1e-13);
    }
}

#[test]
fn one_backward_gives_the_gradient_of_every_example() {
    let mut net = Net::new([Some(&host_adapter(None, 10)), Some(&second())], DType::F64);
    let observer = Observer::of_gradients();
    assert_eq!(observe(&mut net, Some(&observer)), 2);
    let (x, targets) = data(DType::F64);
    let all = (net.forward(x.clone(), &Pass::mean()) * targets.clone()).sum().backward();
    let uses = observer.take_uses();
    assert_eq!(uses.len(), 2);
    assert_eq!(uses[1].module, net.second.noise_id());
    assert_eq!(observe(&mut net, None), 2);
    for example in 0..crate::support::net::BATCH {
        let one = |t: Tensor<3>| t.narrow(0, example, 1);
        let out = net.forward(one(x.clone()), &Pass::mean());
        let alone = (out * targets.clone().narrow(0, example, 1)).sum().backward();
        for (used, layer) in uses.iter().zip([&net.first, &net.second]) {
            let product = |input: Tensor<3>, slope: Tensor<3>| {
                host(one(input).swap_dims(1, 2).matmul(one(slope)))
            };
            let adapter = layer.low_rank().unwrap();
            let got = product(used.input.clone(), used.rank_gradient(&all).unwrap());
            close("A", &got, &gradient(&adapter.a.val(), &alone), 1e-13);
            let got = product(used.rank_input.clone(), used.output_gradient(&all).unwrap());
            close("B", &got, &gradient(&adapter.b.val(), &alone), 1e-13);
        }
    }
    assert!(observer.take_uses().is_empty(), "observation did not end");
}

/// An adapter for the second layer of the net.
fn second() -> HostAdapter {
    HostAdapter {
        d_input: WIDTHS[1],
        d_output: WIDTHS[2],
        a: numbers(21, RANK * WIDTHS[1]),
        b: numbers(22, RANK * WIDTHS[2]),
        ..host_adapter(None, 10)
    }
}

#[test]
fn probes_suffice_for_a_frozen_model() {
    // As after training: nothing but the probes asks for a gradient, on a plain device.
    let mut net = Net::new([Some(&host_adapter(None, 10)), Some(&second())], DType::F32).valid();
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
    let mut layer = layer("net.first", &host_adapter(None, 10), DType::F64);
    let observer = Observer::of_gradients();
    layer.observe(Some(observer.clone()));
    drop(layer.forward_with(inputs(DType::F64), &Pass::mean()));
    let gradients = loss(layer.forward_with(inputs(DType::F64), &Pass::mean())).backward();
    let uses = observer.take_uses();
    assert!(uses[0].rank_gradient(&gradients).is_none());
    assert!(uses[0].output_gradient(&gradients).is_none());
    assert!(uses[1].rank_gradient(&gradients).is_some());
}
