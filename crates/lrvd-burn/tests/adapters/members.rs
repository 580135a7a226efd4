//! An ensemble on one layer: the numbers of separate adapters, in one product.

use crate::support::prelude::*;
use lrvd_burn::adapter::{Adapter, AdapterMembers, LowRankAdapter, repeat_for_members};
use lrvd_burn::model;

const MEMBERS: usize = 3;

fn members(dtype: DType) -> AdapterMembers {
    let (a, b) = ([MEMBERS, D_INPUT, RANK], [MEMBERS, RANK, D_OUTPUT]);
    let (a, b) = (random(41, a, dtype), random(42, b, dtype));
    AdapterMembers { a, b, scaling: SCALING, dropout: 0.0 }
}

fn on_layer(adapter: impl Into<Adapter>, dtype: DType) -> AdaptedLinear {
    let mut layer = bare(dtype);
    layer.attach("net.first", adapter, RANK).unwrap();
    layer
}

fn ensemble(dtype: DType) -> AdaptedLinear {
    on_layer(members(dtype), dtype)
}

/// The layer with member `index` alone, trainable.
fn single(index: usize, dtype: DType) -> AdaptedLinear {
    let member = members(dtype).member(index).unwrap();
    let a = parameter(&host(member.a.val()), [D_INPUT, RANK], dtype);
    let b = parameter(&host(member.b.val()), [RANK, D_OUTPUT], dtype);
    on_layer(LowRankAdapter { a, b, ..member }, dtype)
}

fn attach(layer: &mut AdaptedLinear, path: &str, members: usize) {
    let kind = AdapterKind::LoraEnsemble { members, gain: 1.0 };
    let config = AdapterConfig { kind, rank: 2, lora_alpha: 2.0, dropout: 0.0 };
    config.attach(layer, path, NoiseKey::new(1)).unwrap();
}

#[rstest]
#[case(DType::F64, 1e-13)]
#[case(DType::F32, 2e-6)]
fn one_product_gives_every_member_its_own_numbers(#[case] dtype: DType, #[case] tolerance: f64) {
    let layer = ensemble(dtype);
    assert_eq!((layer.members(), layer.rank()), (Some(MEMBERS), RANK));
    let x = inputs(dtype);
    let shape = [MEMBERS * BATCH, TOKENS, D_OUTPUT];
    let weights = tensor(&numbers(2, shape.iter().product()), shape, dtype);
    let out = layer.forward_with(repeat_for_members(x.clone(), MEMBERS), &Pass::mean());
    let gradients = (out.clone() * weights.clone()).sum().backward();
    let by_factor = layer_gradients(&layer, &gradients);

    let mut by_x = vec![0.0; BATCH * TOKENS * D_INPUT];
    for m in 0..MEMBERS {
        let (alone, x) = (single(m, dtype), inputs(dtype));
        let expected = alone.forward_with(x.clone(), &Pass::mean());
        let share = weights.clone().narrow(0, m * BATCH, BATCH);
        let slopes = (expected.clone() * share).sum().backward();
        let got = host(out.clone().narrow(0, m * BATCH, BATCH));
        close(&format!("member {m}"), &got, &host(expected), tolerance);
        let of_alone = layer_gradients(&alone, &slopes);
        for (factor, (all, expected)) in by_factor.iter().zip(&of_alone).enumerate() {
            let got = &all[m * expected.len()..][..expected.len()];
            close(&format!("factor {factor} of {m}"), got, expected, tolerance);
        }
        for (sum, share) in by_x.iter_mut().zip(gradient(&x, &slopes)) {
            *sum += share;
        }
    }
    close("x", &gradient(&x, &gradients), &by_x, tolerance);
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
    let slopes = |out: Tensor<3>| layer_gradients(&layer, &out.square().sum().backward());
    for (shared, tokens) in slopes(shared).iter().zip(slopes(tokens)) {
        close("gradient", shared, &tokens, 1e-12);
    }
}

#[test]
fn members_are_deterministic_under_every_scheme() {
    let layer = ensemble(DType::F32);
    let x = tensor(&numbers(1, MEMBERS * TOKENS * D_INPUT), [MEMBERS, TOKENS, D_INPUT], DType::F32);
    let expected = host(layer.forward_with(x.clone(), &Pass::mean()));
    for scheme in [Scheme::Weights(DrawPer::Sequence), Scheme::FLIPOUT, Scheme::Nested] {
        assert!(layer.supports(scheme));
        let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, NoiseKey::new(2)));
        same(&format!("{scheme:?}"), &host(out), &expected);
    }
}

#[test]
fn dropout_masks_differ_between_members() {
    let one = members(DType::F64).member(0).unwrap();
    let all = |p: Tensor<2>| host(p).repeat(MEMBERS);
    let equal = AdapterMembers {
        a: parameter(&all(one.a.val()), [MEMBERS, D_INPUT, RANK], DType::F64),
        b: parameter(&all(one.b.val()), [MEMBERS, RANK, D_OUTPUT], DType::F64),
        scaling: SCALING,
        dropout: 0.4,
    };
    let layer = on_layer(equal, DType::F64);
    let x = tensor(&numbers(1, TOKENS * D_INPUT), [1, TOKENS, D_INPUT], DType::F64);
    let x = repeat_for_members(x, MEMBERS);
    let run = |pass: Pass| host(layer.forward_with(x.clone(), &pass));
    let member = |out: &[f64], m: usize| out[m * TOKENS * D_OUTPUT..][..TOKENS * D_OUTPUT].to_vec();
    let plain = run(Pass::mean());
    close("without dropout", &member(&plain, 1), &member(&plain, 0), 1e-14);
    let dropped = run(Pass::mean().with_adapter_dropout(NoiseKey::new(9)));
    assert!(member(&dropped, 0) != member(&plain, 0));
    assert!(member(&dropped, 0) != member(&dropped, 1));
}

#[test]
fn members_train() {
    let mut net = Net::new([None, None], DType::F32);
    attach(&mut net.first, "net.first", 2);
    attach(&mut net.second, "net.second", 2);
    let before = net.snapshot();
    let mut optimizer = optimizer();
    // Four examples: two for each member.
    for step in 0..3 {
        train_step(&mut net, &mut optimizer, step, Scheme::Mean);
    }
    let after = net.snapshot();
    let moved = |name: &str| {
        let at = before.iter().position(|(found, ..)| found == name).unwrap();
        before[at].2.iter().zip(&after[at].2).filter(|(a, b)| a != b).count()
    };
    assert_eq!(moved("net.first.lora_B_members"), 2 * 2 * WIDTHS[1]);
    assert_eq!(moved("net.second.lora_A_members"), 2 * WIDTHS[1] * 2);
}

#[test]
fn misfits_are_rejected() {
    let mut layer = bare(DType::F32);
    let b = random(1, [2, RANK, D_OUTPUT], DType::F32);
    let wrong = AdapterMembers { b, ..members(DType::F32) };
    let error = layer.attach("net.first", wrong, RANK).unwrap_err().to_string();
    let shape =
        format!("have shape [{MEMBERS}, {RANK}, {D_OUTPUT}], found [2, {RANK}, {D_OUTPUT}]");
    assert_eq!(error, format!("adapter `net.first`: `lora_B_members` should {shape}"));
    assert!(layer.adapter().is_none());
    assert!(members(DType::F32).member(MEMBERS).is_none());

    let mut net = Net::new([None, None], DType::F32);
    assert_eq!(model::members(&net).unwrap(), 1);
    attach(&mut net.first, "net.first", 2);
    attach(&mut net.second, "net.second", 3);
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
