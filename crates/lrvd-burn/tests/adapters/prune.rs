//! A prune shrinks tensors, moments and gradients, and training on cannot tell it from a smaller model; AdaLoRA's masks.

use crate::support::prelude::*;
use lrvd_burn::model::{total_kl, trainable_counts};
use lrvd_burn::optimizer::{AdamW, Moments};
use lrvd_burn::prune::{PruneEvent, apply, plan, statistics};
use lrvd_burn::train::{BudgetAllocator, orthogonality};
use lrvd_core::adalora::AdaLoraConfig;
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};
use std::collections::BTreeMap;

const DTYPE: DType = DType::F32;
const FAMILY: VariationalFamily = VariationalFamily::RankVariance;

/// With means of ordinary size; the ranks in `noisy` drown in their noise.
fn adapter(family: VariationalFamily, index: usize, noisy: &[usize]) -> HostAdapter {
    let HostAdapter { d_input, d_output, mut a, mut b, .. } = factors(index);
    a.iter_mut().chain(&mut b).for_each(|mean| *mean *= 0.3);
    let noise = |width: usize| -> Vec<f64> {
        let shift = if family == VariationalFamily::NoiseToSignal { 2.0 } else { 0.0 };
        let of = |k: usize| if noisy.contains(&k) { 1.9 } else { -5.0 - 0.3 * k as f64 };
        (0..RANK).flat_map(|k| vec![of(k) + shift; width]).collect()
    };
    let [of_a, of_b] = match family {
        VariationalFamily::ElementVariance => [noise(d_input), noise(d_output)],
        _ => [noise(1), Vec::new()],
    };
    HostAdapter { a, b, noise: Some(host_noise(family, of_a, of_b)), ..factors(index) }
}

/// A net of which the given ranks drown in their noise, after some steps, with its optimizer.
fn trained(
    family: VariationalFamily,
    noisy: [&[usize]; 2],
    steps: u32,
    scheme: Scheme,
) -> (Net, AdamW) {
    let adapters = [0, 1].map(|i| adapter(family, i, noisy[i]));
    let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
    let mut optimizer = optimizer();
    for step in 0..steps {
        train_step(&mut net, &mut optimizer, step, scheme);
    }
    (net, optimizer)
}

fn planned(net: &Net, min_rank: usize) -> PruneEvent {
    plan(net, &PruneRule::new(3.0, min_rank).unwrap(), StatisticOptions::default()).unwrap()
}

fn prune(net: &mut Net, optimizer: &mut AdamW) -> PruneEvent {
    let event = planned(net, 0);
    apply(net, &event, Some(optimizer), None);
    event
}

/// The values of a parameter and of its moments, and the number of its updates.
#[derive(PartialEq)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    values: Vec<Vec<f64>>,
    steps: u64,
}

fn entries(net: &Net, optimizer: &AdamW) -> Vec<Entry> {
    let entry = |(name, shape, values)| match optimizer.state().get(&name) {
        None => Entry { name, shape, values: vec![values], steps: 0 },
        Some(Moments { first, second, steps }) => {
            let values = vec![values, host(first.clone()), host(second.clone())];
            Entry { name, shape, values, steps: *steps }
        }
    };
    net.snapshot().into_iter().map(entry).collect()
}

/// The kept ranks along the axis that is as long as the rank, if there is one.
fn sliced(shape: &[usize], values: &[f64], kept: &[usize]) -> Vec<f64> {
    match shape.iter().position(|&n| n == RANK) {
        None => values.to_vec(),
        Some(0) => {
            let width = values.len() / RANK;
            kept.iter().flat_map(|&k| values[k * width..][..width].to_vec()).collect()
        }
        Some(_) => values.chunks(RANK).flat_map(|row| kept.iter().map(|&k| row[k])).collect(),
    }
}

/// The entries after a prune, cut on the host.
fn all_sliced(mut entries: Vec<Entry>, kept: &BTreeMap<String, Vec<usize>>) -> Vec<Entry> {
    for entry in &mut entries {
        let Some(kept) = kept.get(entry.name.rsplit_once('.').unwrap().0) else { continue };
        for values in &mut entry.values {
            *values = sliced(&entry.shape, values, kept);
        }
        for n in entry.shape.iter_mut().filter(|n| **n == RANK) {
            *n = kept.len();
        }
    }
    entries
}

#[rstest]
#[case(VariationalFamily::RankVariance, Scheme::MomentMatched(CrossTerm::Exact))]
#[case(VariationalFamily::NoiseToSignal, Scheme::Nested)]
#[case(VariationalFamily::ElementVariance, WEIGHTS[1])]
#[case(VariationalFamily::AsymRankVariance, WEIGHTS[0])]
fn training_on_equals_a_model_built_at_the_pruned_size(
    #[case] family: VariationalFamily,
    #[case] scheme: Scheme,
) {
    let (mut net, mut adamw) = trained(family, [&[1, 3], &[0]], 3, scheme);
    let (before, weight) = (entries(&net, &adamw), host(net.first.weight.base()));
    let (slot, id, param) = (net.first.slot(), net.first.noise_id(), of(&net.first).a.id);
    let event = prune(&mut net, &mut adamw);
    assert_eq!(event.kept["net.first"], [0, 2], "{:?}", event.statistics);
    assert_eq!(event.kept["net.second"], [1, 2, 3], "{:?}", event.statistics);
    assert_eq!(ranks(&net), [("net.first".to_owned(), 2), ("net.second".to_owned(), 3)]);

    // What stayed is what was there, values and moments alike.
    let after = all_sliced(before, &event.kept);
    assert!(entries(&net, &adamw) == after);
    same("base", &host(net.first.weight.base()), &weight);
    assert_eq!((net.first.slot(), net.first.noise_id()), (slot, id));
    assert_eq!((slot.unwrap().initial_rank, of(&net.first).scaling), (RANK, SCALING));
    assert_ne!(of(&net.first).a.id, param, "an optimizer of Burn's has no moments of this shape");

    // A model that never was larger, with the same values and the same state of the optimizer.
    let small = [&net.first, &net.second].map(|layer| HostAdapter::read(of(layer)));
    let fresh = Net::new([Some(&small[0]), Some(&small[1])], DTYPE);
    let (head_weight, head_bias) = (net.head_weight.clone(), net.head_bias.clone());
    let (mut fresh, mut fresh_adamw) = (Net { head_weight, head_bias, ..fresh }, optimizer());
    fresh_adamw.restore(&fresh, adamw.state().clone()).unwrap();
    for step in 3..6 {
        let on = train_step(&mut net, &mut adamw, step, scheme);
        let anew = train_step(&mut fresh, &mut fresh_adamw, step, scheme);
        assert_eq!(on, anew, "objective at step {step}");
    }
    let (found, expected) = (entries(&net, &adamw), entries(&fresh, &fresh_adamw));
    assert!(found == expected);
    let moves = |(a, b): (&Entry, &Entry)| (a.values != b.values) == (a.steps > 0);
    assert!(found.iter().zip(&after).all(moves), "what trains moves");
}

#[test]
fn a_prune_before_the_update_takes_the_gradients_along() {
    let (mut net, mut optimizer) = trained(FAMILY, [&[1, 3], &[0, 1, 2, 3]], 1, Scheme::Nested);
    let (x, targets) = data(DTYPE);
    let loss = net.objective(x, targets, &Pass::mean()).loss();
    let mut gradients = NamedGradients::collect(&net, &loss.backward());
    let full = entries(&net, &optimizer).into_iter().filter_map(|entry| {
        Some(Entry { values: vec![host(gradients.get(&entry.name)?.clone())], ..entry })
    });
    let (full, event) = (full.collect(), planned(&net, 0));
    apply(&mut net, &event, Some(&mut optimizer), Some(&mut gradients));
    // Nothing is left of a layer without a rank; the rest is what the kept directions had.
    let mut expected = all_sliced(full, &event.kept);
    expected.retain(|entry| !entry.values[0].is_empty());
    assert_eq!(gradients.names().count(), expected.len());
    for Entry { name, values, .. } in expected {
        same(&name, &host(gradients.get(&name).unwrap().clone()), &values[0]);
    }
    optimizer.step(&mut net, &gradients, 1.0);
}

#[test]
fn rank_zero_leaves_the_base_and_nothing_else() {
    let scheme = Scheme::MomentMatched(CrossTerm::Exact);
    let (mut net, mut optimizer) = trained(FAMILY, [&[1], &[0, 1, 2, 3]], 3, scheme);
    let slot = net.second.slot();
    prune(&mut net, &mut optimizer);
    assert!(net.second.low_rank().is_none());
    assert_eq!((net.second.slot(), net.second.rank()), (slot, 0));
    assert_eq!(ranks(&net), [("net.first".to_owned(), 3), ("net.second".to_owned(), 0)]);
    assert!(!optimizer.state().keys().any(|name| name.starts_with("net.second.")));

    // The layer is its base, whatever the pass.
    let x = tensor(&numbers(4, 42), [2, 3, 7], DTYPE);
    let bare = Net::new([None, None], DTYPE).second;
    let expected = host(bare.forward_with(x.clone(), &Pass::mean()));
    for scheme in SCHEMES {
        let pass = Pass::sampled(scheme, NoiseKey::new(1)).with_dropout(NoiseKey::new(2));
        same("base", &host(net.second.forward_with(x.clone(), &pass)), &expected);
        let rows = x.clone().slice([0..1]).squeeze_dim(0);
        assert_eq!(net.second.prepare(&pass, 2).forward_shared(rows).dims(), [1, 3, 6]);
    }
    train_step(&mut net, &mut optimizer, 3, scheme);

    // The last adapter goes too: the head trains on, and there is no divergence left.
    let none = PruneRule::new(-1e3, 0).unwrap();
    let event = plan(&net, &none, StatisticOptions::default()).unwrap();
    apply(&mut net, &event, Some(&mut optimizer), None);
    assert!(total_kl(&net, Prior::LogUniform, KlReduction::Element).unwrap().is_none());
    assert_eq!(optimizer.state().keys().collect::<Vec<_>>(), ["head.bias", "head.weight"]);
    let parts = train_step(&mut net, &mut optimizer, 4, scheme);
    assert_eq!((parts.kl, parts.loss), (0.0, parts.nll));
    assert_eq!(trainable_counts(&net).adapter, 0);
}

#[test]
fn plans_follow_the_statistic_of_the_core() {
    let (mut net, mut optimizer) = trained(FAMILY, [&[0, 1, 2, 3], &[0]], 0, Scheme::Mean);
    let found = statistics(&net, StatisticOptions::default()).unwrap();
    let posterior = HostAdapter::read(of(&net.first));
    let posterior = posterior.posterior().unwrap().unwrap();
    let expected = rank_statistic(&posterior, StatisticOptions::default()).unwrap();
    assert_eq!(found["net.first"], expected);
    // A least rank keeps the clearest directions.
    let mut order: Vec<usize> = (0..RANK).collect();
    order.sort_by(|&i, &j| expected[i].total_cmp(&expected[j]));
    let event = planned(&net, 2);
    assert!(event.kept["net.first"].iter().all(|k| order[..2].contains(k)));
    assert_eq!((event.kept["net.first"].len(), &event.kept["net.second"][..]), (2, &[1, 2, 3][..]));
    // What is left is not pruned again.
    prune(&mut net, &mut optimizer);
    let again = planned(&net, 0);
    assert!(again.changed.is_empty());
    assert_eq!(again.kept.keys().collect::<Vec<_>>(), ["net.second"]);
    // Nor is an adapter without a posterior; one that diverged is an error.
    let net = Net::new([Some(&factors(0)), None], DTYPE);
    assert_eq!(planned(&net, 0), PruneEvent::default());
    let noise = Some(host_noise(
        VariationalFamily::RankVariance,
        vec![-3.0, f64::NAN, -2.0, -1.0],
        Vec::new(),
    ));
    let net = Net::new([Some(&HostAdapter { noise, ..factors(0) }), None], DTYPE);
    let rule = PruneRule::new(3.0, 0).unwrap();
    let error = plan(&net, &rule, StatisticOptions::default()).unwrap_err();
    assert!(error.to_string().contains("is NaN at index 1"), "{error}");
}

#[test]
fn dropping_directions_drops_their_noise() {
    let kept = [0, 2];
    for mut layer in every_layer(DType::F64) {
        let full = leaves(&layer);
        // The same with the other directions zero.
        let mut zeroed = layer.clone();
        let mask = tensor(&[1.0, 0.0, 1.0, 0.0], [4], DType::F64);
        zeroed.edit(|adapter| {
            let (a, b) = (adapter.a.val().inner(), adapter.b.val().inner());
            adapter.a = Param::from_tensor(a * mask.clone().unsqueeze_dim(0));
            adapter.b = Param::from_tensor(b * mask.unsqueeze_dim(1));
        });
        layer.select_ranks(&kept);
        assert_eq!(layer.rank(), 2);
        let run =
            |layer: &AdaptedLinear| host(layer.forward_with(inputs(DType::F64), &Pass::mean()));
        close("cut", &run(&layer), &run(&zeroed), 1e-13);
        for (found, full) in leaves(&layer).iter().zip(full) {
            let shape = match full.len() {
                RANK => vec![RANK],
                n if n == D_INPUT * RANK => vec![D_INPUT, RANK],
                _ => vec![RANK, D_OUTPUT],
            };
            assert_eq!(*found, sliced(&shape, &full, &kept));
        }
        layer.select_ranks(&[]);
        assert!(layer.low_rank().is_none() && layer.extension().is_none());
    }
}

fn with_values(index: usize) -> HostAdapter {
    HostAdapter { e: Some(numbers(22 + 20 * index as u64, RANK)), ..factors(index) }
}

/// Gradients of a batch at the mean.
fn gradients(net: &Net) -> NamedGradients {
    let (x, targets) = data(DTYPE);
    let loss = net.objective(x, targets, &Pass::mean()).loss();
    NamedGradients::collect(net, &loss.backward())
}

/// A whole run of AdaLoRA, which ends masked.
fn allocated() -> (Net, BudgetAllocator) {
    let config = AdaLoraConfig {
        init_r: RANK,
        target_r: 1,
        tinit: 1,
        tfinal: 2,
        delta_t: 2,
        total_step: 8,
        beta1: 0.85,
        beta2: 0.85,
        orth_reg_weight: 0.5,
    };
    let mut net = Net::new([Some(&with_values(0)), Some(&with_values(1))], DTYPE);
    let (mut optimizer, mut bridge) = (optimizer(), BudgetAllocator::new(config, &net).unwrap());
    for step in 0..8 {
        let gradients = gradients(&net);
        optimizer.step(&mut net, &gradients, 1.0);
        bridge.update(step, &mut net, &gradients).unwrap();
    }
    (net, bridge)
}

#[test]
fn adalora_masks_and_compacts() {
    let (mut net, mut bridge) = allocated();
    let run = |net: &Net| host(net.forward(data(DTYPE).0, &Pass::mean()));
    let zeros = |net: &Net| {
        let of = |layer| host(of(layer).singular_values().unwrap().val());
        [of(&net.first), of(&net.second)].concat().iter().filter(|e| **e == 0.0).count()
    };
    let (masked, expected) = (zeros(&net), run(&net));
    assert_eq!(masked, 2 * RANK - 2, "the target is an average rank of 1");

    // A compact model gives the masked outputs, and stays as it is.
    let full = net.clone();
    for _ in 0..2 {
        bridge.compact(&mut net);
        close("compact", &run(&net), &expected, 1e-6);
        assert_eq!(ranks(&net).iter().map(|(_, rank)| rank).sum::<usize>(), 2);
    }
    // One that was cut otherwise is an error.
    let (gradients, mut net) = (gradients(&full), full);
    for (kept, message) in [
        (&[0, 2][..], "`E of module 0` has length 2, expected 4"),
        (&[], "`model` has length 1, expected 2"),
    ] {
        net.first.select_ranks(kept);
        let error = bridge.update(7, &mut net, &gradients).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn an_orthonormal_factor_has_a_finite_gradient() {
    // Rows of A are unit vectors; B is arbitrary.
    let a = (0..RANK * 5).map(|i| f64::from(u8::from(i % 5 == i / 5))).collect();
    let net = Net::new([Some(&HostAdapter { a, ..with_values(0) }), None], DTYPE);
    let gradients = orthogonality(&net).unwrap().backward();
    assert!(layer_gradients(&net.first, &gradients)[0].iter().all(|g| *g == 0.0));
    assert!(orthogonality(&Net::new([None, None], DTYPE)).is_none());
}
