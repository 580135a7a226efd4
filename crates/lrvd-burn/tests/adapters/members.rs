//! An ensemble on one layer: the numbers of separate adapters, in one product.

use crate::support::net::{Net, WIDTHS, optimizer, train_step};
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, SCALING, TOKENS, base, close, gradient, host, leaf, numbers,
    parameter, tensor,
};
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::{
    AdaptedLinear, Adapter, AdapterConfig, AdapterKind, AdapterMembers, LowRankAdapter,
    repeat_for_members,
};
use lrvd_burn::model::{self, NamedModule, trainable_counts};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::noise::NoiseKey;

const MEMBERS: usize = 3;

fn members(dtype: DType) -> AdapterMembers {
    let (a, b) = (MEMBERS * D_INPUT * RANK, MEMBERS * RANK * D_OUTPUT);
    AdapterMembers {
        a: parameter(&numbers(41, a), [MEMBERS, D_INPUT, RANK], dtype),
        b: parameter(&numbers(42, b), [MEMBERS, RANK, D_OUTPUT], dtype),
        scaling: SCALING,
        dropout: 0.0,
    }
}

fn ensemble(dtype: DType) -> AdaptedLinear {
    let mut layer = base("net.first", D_INPUT, D_OUTPUT, dtype);
    layer.attach("net.first", members(dtype), RANK).unwrap();
    layer
}

fn of_members(layer: &AdaptedLinear) -> &AdapterMembers {
    match layer.adapter() {
        Some(Adapter::Members(members)) => members,
        _ => unreachable!("the tests put it there"),
    }
}

/// The layer with member `index` alone, trainable.
fn single(index: usize, dtype: DType) -> AdaptedLinear {
    let member = members(dtype).member(index).unwrap();
    let mut layer = base("net.first", D_INPUT, D_OUTPUT, dtype);
    let adapter = LowRankAdapter {
        a: parameter(&host(member.a.val()), [D_INPUT, RANK], dtype),
        b: parameter(&host(member.b.val()), [RANK, D_OUTPUT], dtype),
        ..member
    };
    layer.attach("net.first", adapter, RANK).unwrap();
    layer
}

fn adapter(layer: &AdaptedLinear) -> &LowRankAdapter {
    layer.low_rank().unwrap()
}

#[test]
fn one_product_gives_every_member_its_own_numbers() {
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 2e-6)] {
        let layer = ensemble(dtype);
        assert_eq!((layer.members(), layer.rank()), (Some(MEMBERS), RANK));
        let x = leaf(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype);
        let shape = [MEMBERS * BATCH, TOKENS, D_OUTPUT];
        let weights = tensor(&numbers(2, shape.iter().product()), shape, dtype);
        let out = layer.forward_with(repeat_for_members(x.clone(), MEMBERS), &Pass::mean());
        let gradients = (out.clone() * weights.clone()).sum().backward();
        let (of_a, of_b) = (of_members(&layer).a.val(), of_members(&layer).b.val());
        let (by_a, by_b) = (gradient(&of_a, &gradients), gradient(&of_b, &gradients));

        let mut by_x = vec![0.0; BATCH * TOKENS * D_INPUT];
        for m in 0..MEMBERS {
            let alone = single(m, dtype);
            let x = leaf(&host(x.clone()), [BATCH, TOKENS, D_INPUT], dtype);
            let expected = alone.forward_with(x.clone(), &Pass::mean());
            let share = weights.clone().narrow(0, m * BATCH, BATCH);
            let slopes = (expected.clone() * share).sum().backward();
            let got = host(out.clone().narrow(0, m * BATCH, BATCH));
            close(&format!("member {m}"), &got, &host(expected), tolerance);
            let (a, b) = (D_INPUT * RANK, RANK * D_OUTPUT);
            let a_slope = gradient(&adapter(&alone).a.val(), &slopes);
            close(&format!("A of {m}"), &by_a[m * a..(m + 1) * a], &a_slope, tolerance);
            let b_slope = gradient(&adapter(&alone).b.val(), &slopes);
            close(&format!("B of {m}"), &by_b[m * b..(m + 1) * b], &b_slope, tolerance);
            for (sum, share) in by_x.iter_mut().zip(gradient(&x, &slopes)) {
                *sum += share;
            }
        }
        close("x", &gradient(&x, &gradients), &by_x, tolerance);
    }
}

#[test]
fn shared_rows_reach_every_sequence_through_its_member() {
    const ROWS: usize = 4;
    let layer = ensemble(DType::F64);
    let rows = leaf(&numbers(5, ROWS * D_INPUT), [ROWS, D_INPUT], DType::F64);
    let prepared = layer.prepare(&Pass::mean(), MEMBERS * BATCH);
    let shared = prepared.forward_shared(rows.clone());
    assert_eq!(shared.dims(), [MEMBERS * BATCH, ROWS, D_OUTPUT]);
    let tokens: Tensor<3> = repeat_for_members(rows.clone().unsqueeze_dim(0), MEMBERS * BATCH);
    let tokens = prepared.forward(tokens);
    close("as tokens", &host(shared.clone()), &host(tokens.clone()), 1e-13);
    let by_a = |out: Tensor<3>| {
        let gradients = out.square().sum().backward();
        gradient(&of_members(&layer).a.val(), &gradients)
    };
    close("gradient", &by_a(shared), &by_a(tokens), 1e-12);
}

#[test]
fn members_are_deterministic_under_every_scheme() {
    let layer = ensemble(DType::F32);
    let x = tensor(&numbers(1, MEMBERS * TOKENS * D_INPUT), [MEMBERS, TOKENS, D_INPUT], DType::F32);
    let expected = host(layer.forward_with(x.clone(), &Pass::mean()));
    for scheme in [Scheme::Weights(DrawPer::Sequence), Scheme::FLIPOUT, Scheme::Nested] {
        assert!(layer.supports(scheme));
        let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, NoiseKey::new(2)));
        assert_eq!(host(out), expected);
    }
}

#[test]
fn dropout_masks_differ_between_members() {
    let mut layer = base("net.first", D_INPUT, D_OUTPUT, DType::F64);
    let same = members(DType::F64).member(0).unwrap();
    let all = |p: Tensor<2>| host(p).repeat(MEMBERS);
    let equal = AdapterMembers {
        a: parameter(&all(same.a.val()), [MEMBERS, D_INPUT, RANK], DType::F64),
        b: parameter(&all(same.b.val()), [MEMBERS, RANK, D_OUTPUT], DType::F64),
        scaling: SCALING,
        dropout: 0.4,
    };
    layer.attach("net.first", equal, RANK).unwrap();
    let x = tensor(&numbers(1, TOKENS * D_INPUT), [1, TOKENS, D_INPUT], DType::F64);
    let x = repeat_for_members(x, MEMBERS);
    let run = |pass: Pass| host(layer.forward_with(x.clone(), &pass));
    let member = |out: &[f64], m: usize| out[m * TOKENS * D_OUTPUT..][..TOKENS * D_OUTPUT].to_vec();
    let plain = run(Pass::mean());
    close("without dropout", &member(&plain, 1), &member(&plain, 0), 1e-14);
    let dropped = run(Pass::mean().with_adapter_dropout(NoiseKey::new(9)));
    assert_ne!(member(&dropped, 0), member(&plain, 0));
    assert_ne!(member(&dropped, 0), member(&dropped, 1));
}

#[test]
fn a_fresh_ensemble_is_diverse_starts_at_the_base_and_counts_exactly() {
    let kind = AdapterKind::LoraEnsemble { members: MEMBERS, gain: 10.0 };
    let config = AdapterConfig { kind, rank: RANK, lora_alpha: 8.0, dropout: 0.1 };
    let mut net = Net::new([None, None], DType::F32);
    config.attach(&mut net.first, "net.first", NoiseKey::new(1)).unwrap();
    let fresh = of_members(&net.first);
    assert_eq!((fresh.scaling, fresh.dropout), (2.0, 0.1));
    assert!(host(fresh.b.val()).iter().all(|b| *b == 0.0));
    let a = host(fresh.a.val());
    let bound = 10.0 * (6.0 / (WIDTHS[0] + RANK) as f64).sqrt();
    let largest = a.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert!(largest <= bound * 1.000_001 && largest > 0.8 * bound, "{largest} of {bound}");
    let n = WIDTHS[0] * RANK;
    let same = (0..n).filter(|&i| a[i] == a[n + i] || a[i] == a[2 * n + i]).count();
    assert_eq!(same, 0, "members start alike");
    let mut again = Net::new([None, None], DType::F32);
    config.attach(&mut again.first, "net.first", NoiseKey::new(1)).unwrap();
    assert_eq!(host(of_members(&again.first).a.val()), a);

    let counts = trainable_counts(&net);
    assert_eq!(counts.adapter, MEMBERS * RANK * (WIDTHS[0] + WIDTHS[1]));
    assert_eq!(counts.posterior, 0);
    let mut names = Vec::new();
    net.visit_parameters(&mut |p| {
        if p.group == Group::AdapterMean {
            names.push(p.name.to_owned());
        }
    });
    let expected = ["net.first.lora_A_members", "net.first.lora_B_members"];
    assert_eq!(names, expected);
    assert_eq!(model::ranks(&net), [("net.first".to_owned(), RANK)]);
    assert_eq!(model::members(&net).unwrap(), MEMBERS);
}

#[test]
fn members_train() {
    let kind = AdapterKind::LoraEnsemble { members: 2, gain: 1.0 };
    let config = AdapterConfig { kind, rank: 2, lora_alpha: 2.0, dropout: 0.0 };
    let mut net = Net::new([None, None], DType::F32);
    for (path, layer) in [("net.first", &mut net.first), ("net.second", &mut net.second)] {
        config.attach(layer, path, NoiseKey::new(1)).unwrap();
    }
    let before = net.snapshot();
    let mut optimizer = optimizer();
    // Four examples: two for each member.
    for step in 0..3 {
        train_step(&mut net, &mut optimizer, step, Scheme::Mean, DType::F32);
    }
    let moved = |name: &str| {
        let find = |all: &[(String, Vec<usize>, Vec<f64>)]| {
            all.iter().find(|(n, ..)| n == name).map(|(.., values)| values.clone()).unwrap()
        };
        let (old, new) = (find(&before), find(&net.snapshot()));
        old.iter().zip(&new).filter(|(a, b)| a != b).count()
    };
    assert_eq!(moved("net.first.lora_B_members"), 2 * 2 * WIDTHS[1]);
    assert_eq!(moved("net.second.lora_A_members"), 2 * WIDTHS[1] * 2);
}

#[test]
fn misfits_are_rejected() {
    let mut layer = base("net.first", D_INPUT, D_OUTPUT, DType::F32);
    let wrong = AdapterMembers {
        b: parameter(&numbers(1, 2 * RANK * D_OUTPUT), [2, RANK, D_OUTPUT], DType::F32),
        ..members(DType::F32)
    };
    let error = layer.attach("net.first", wrong, RANK).unwrap_err().to_string();
    let shape =
        format!("have shape [{MEMBERS}, {RANK}, {D_OUTPUT}], found [2, {RANK}, {D_OUTPUT}]");
    assert_eq!(error, format!("adapter `net.first`: `lora_B_members` should {shape}"));
    assert!(layer.adapter().is_none());
    assert!(members(DType::F32).member(MEMBERS).is_none());

    let mut net = Net::new([None, None], DType::F32);
    let attach = |path, layer: &mut AdaptedLinear, members| {
        let kind = AdapterKind::LoraEnsemble { members, gain: 1.0 };
        let config = AdapterConfig { kind, rank: 2, lora_alpha: 2.0, dropout: 0.0 };
        config.attach(layer, path, NoiseKey::new(1)).unwrap();
    };
    assert_eq!(model::members(&net).unwrap(), 1);
    attach("net.first", &mut net.first, 2);
    attach("net.second", &mut net.second, 3);
    let error = model::members(&net).unwrap_err();
    assert_eq!(error.to_string(), "adapter `net.second` has 3 members, others have 2");
    let mut layers = 0;
    net.visit_layers(&mut |_, layer| layers += usize::from(layer.slot().is_none()));
    assert_eq!(layers, 2, "no LoRA file can hold them");
}

#[test]
#[should_panic(expected = "a batch of 4 rows does not hold as many for each of 3 members")]
fn a_batch_that_is_not_repeated_is_a_mistake_of_the_caller() {
    let x = tensor(&numbers(1, 4 * D_INPUT), [4, 1, D_INPUT], DType::F32);
    drop(ensemble(DType::F32).forward_with(x, &Pass::mean()));
}
