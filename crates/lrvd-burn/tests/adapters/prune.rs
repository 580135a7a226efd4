//! A prune shrinks tensors and moments, and training on cannot tell it from a smaller model.

use crate::support::prelude::*;
use lrvd_burn::model::{ranks, total_kl, trainable_counts};
use lrvd_burn::optimizer::{AdamW, Moments};
use lrvd_burn::prune::{PruneEvent, apply, plan, statistics};
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};
use std::collections::BTreeMap;

const DTYPE: DType = DType::F32;
const THRESHOLD: f64 = 3.0;
const FAMILY: VariationalFamily = VariationalFamily::RankVariance;

/// Of `rank`, with means of ordinary size; the ranks in `noisy` drown in their noise.
fn adapter(family: VariationalFamily, index: usize, noisy: &[usize], rank: usize) -> HostAdapter {
    let plain = factors(index);
    let noise = |width: usize| -> Vec<f64> {
        let shift = if family == VariationalFamily::NoiseToSignal { 2.0 } else { 0.0 };
        let of = |k: usize| if noisy.contains(&k) { 1.9 } else { -5.0 - 0.3 * k as f64 };
        (0..rank).flat_map(|k| vec![of(k) + shift; width]).collect()
    };
    let noise = match family {
        VariationalFamily::ElementVariance => {
            host_noise(family, noise(plain.d_input), noise(plain.d_output))
        }
        _ => host_noise(family, noise(1), Vec::new()),
    };
    let scaled = |v: &[f64]| v[..v.len() / RANK * rank].iter().map(|v| 0.3 * v).collect();
    let (a, b) = (scaled(&plain.a), scaled(&plain.b));
    HostAdapter { rank, a, b, noise: Some(noise), ..plain }
}

/// A net of which the given ranks drown in their noise.
fn noisy_net(family: VariationalFamily, noisy: [&[usize]; 2]) -> Net {
    let adapters = [0, 1].map(|i| adapter(family, i, noisy[i], RANK));
    Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE)
}

/// [`noisy_net`] after some steps, with its optimiser.
fn trained(
    family: VariationalFamily,
    noisy: [&[usize]; 2],
    steps: u32,
    scheme: Scheme,
) -> (Net, AdamW) {
    let (mut net, mut optimizer) = (noisy_net(family, noisy), optimizer());
    for step in 0..steps {
        train_step(&mut net, &mut optimizer, step, scheme);
    }
    (net, optimizer)
}

fn rule(min_rank: usize) -> PruneRule {
    PruneRule::new(THRESHOLD, min_rank).unwrap()
}

fn prune(net: &mut Net, optimizer: &mut AdamW, rule: &PruneRule) -> PruneEvent {
    let event = plan(net, rule, StatisticOptions::default()).unwrap();
    apply(net, &event, Some(optimizer), None);
    event
}

/// A parameter with the moments and the number of its updates.
#[derive(Clone, PartialEq)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    values: Vec<f64>,
    moments: Option<([Vec<f64>; 2], u64)>,
}

fn entries(net: &Net, optimizer: &AdamW) -> Vec<Entry> {
    let read = |m: &Moments| ([host(m.first.clone()), host(m.second.clone())], m.steps);
    let entry = |(name, shape, values)| {
        let moments = optimizer.state().get(&name).map(read);
        Entry { name, shape, values, moments }
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

impl Entry {
    /// The entry after a prune, cut on the host.
    fn sliced(mut self, kept: &BTreeMap<String, Vec<usize>>) -> Self {
        let Some(kept) = kept.get(self.name.rsplit_once('.').unwrap().0) else { return self };
        let cut = |values: &[f64]| sliced(&self.shape, values, kept);
        self.values = cut(&self.values);
        self.moments = self.moments.map(|(all, steps)| (all.map(|values| cut(&values)), steps));
        for n in self.shape.iter_mut().filter(|n| **n == RANK) {
            *n = kept.len();
        }
        self
    }
}

fn all_sliced(entries: Vec<Entry>, kept: &BTreeMap<String, Vec<usize>>) -> Vec<Entry> {
    entries.into_iter().map(|entry| entry.sliced(kept)).collect()
}

/// A model that never was larger, of ranks 2 and 3, with the given values and optimiser state.
fn built(family: VariationalFamily, entries: &[Entry]) -> (Net, AdamW) {
    let small = [2, 3].map(|rank| adapter(family, rank - 2, &[], rank));
    let mut net = Net::new([Some(&small[0]), Some(&small[1])], DTYPE);
    let on_device = |v: &[f64]| tensor(v, [v.len()], DTYPE);
    net.visit_parameters_mut(&mut |p| {
        let entry = entries.iter().find(|entry| entry.name == p.name).unwrap();
        assert_eq!(p.value.shape(), entry.shape, "{}", p.name);
        p.value.set_flat(on_device(&entry.values));
    });
    let moments = entries.iter().filter_map(|entry| {
        let ([first, second], steps) = entry.moments.as_ref()?;
        let (first, second) = (on_device(first), on_device(second));
        Some((entry.name.clone(), Moments { first, second, steps: *steps }))
    });
    let mut fresh = optimizer();
    fresh.restore(&net, moments.collect()).unwrap();
    (net, fresh)
}

#[rstest]
fn training_on_equals_a_model_built_at_the_pruned_size(
    #[values(0, 1, 2, 3)] family: usize,
    #[values(SCHEMES[1], SCHEMES[2], SCHEMES[3], Scheme::Nested)] scheme: Scheme,
) {
    let family = VariationalFamily::ALL[family];
    let (mut net, mut optimizer) = trained(family, [&[1, 3], &[0]], 3, scheme);
    let before = entries(&net, &optimizer);
    let event = prune(&mut net, &mut optimizer, &rule(0));
    assert_eq!(event.kept["net.first"], [0, 2], "{family} {:?}", event.statistics);
    assert_eq!(event.kept["net.second"], [1, 2, 3], "{family} {:?}", event.statistics);

    // What stayed is what was there, values and moments alike.
    let after = all_sliced(before, &event.kept);
    assert!(entries(&net, &optimizer) == after, "{family}");

    let (mut fresh, mut fresh_optimizer) = built(family, &after);
    for step in 3..6 {
        let on = train_step(&mut net, &mut optimizer, step, scheme);
        let anew = train_step(&mut fresh, &mut fresh_optimizer, step, scheme);
        assert_eq!(on, anew, "{family}: objective at step {step}");
    }
    let (found, expected) = (entries(&net, &optimizer), entries(&fresh, &fresh_optimizer));
    let bits = |entries: &[Entry]| -> Vec<u64> {
        entries.iter().flat_map(|entry| &entry.values).map(|v| v.to_bits()).collect()
    };
    assert!(bits(&found) == bits(&expected), "{family}: values");
    assert!(found == expected, "{family}: moments");
    assert!(found.iter().zip(&after).any(|(a, b)| a.values != b.values), "nothing was trained");
}

#[test]
fn moments_that_are_not_cut_would_show() {
    // The control of the test above: the same run with the moments of other ranks differs.
    let run = |moved: bool| {
        let (mut net, mut optimizer) = trained(FAMILY, [&[1, 3], &[0]], 3, Scheme::Nested);
        let before = entries(&net, &optimizer);
        let event = prune(&mut net, &mut optimizer, &rule(0));
        let mut kept = event.kept.clone();
        if moved {
            kept.insert("net.first".to_owned(), vec![1, 3]);
        }
        let mut after = entries(&net, &optimizer);
        for (entry, moved) in after.iter_mut().zip(all_sliced(before, &kept)) {
            entry.moments = moved.moments;
        }
        let (mut net, mut optimizer) = built(FAMILY, &after);
        train_step(&mut net, &mut optimizer, 3, Scheme::Nested);
        net.snapshot()
    };
    assert!(run(false) == run(false));
    assert!(run(false) != run(true));
}

#[test]
fn a_prune_before_the_update_takes_the_gradients_along() {
    for family in VariationalFamily::ALL {
        let (mut net, mut optimizer) = trained(family, [&[1, 3], &[0, 1, 2, 3]], 1, Scheme::Nested);
        let (x, targets) = data(DTYPE);
        let pass = Pass::sampled(Scheme::Nested, NoiseKey::new(5).at_step(1));
        let loss = net.objective(x, targets, &pass).loss();
        let mut gradients = NamedGradients::collect(&net, &loss.backward());
        let full: Vec<Entry> = entries(&net, &optimizer)
            .into_iter()
            .filter_map(|entry| {
                let values = host(gradients.get(&entry.name)?.clone());
                Some(Entry { values, ..entry })
            })
            .collect();
        let event = plan(&net, &rule(0), StatisticOptions::default()).unwrap();
        assert_eq!(event.kept["net.first"], [0, 2]);
        apply(&mut net, &event, Some(&mut optimizer), Some(&mut gradients));
        // Nothing is left of a layer without a rank; the rest is what the kept directions had.
        let mut expected = all_sliced(full, &event.kept);
        expected.retain(|e| !e.name.starts_with("net.second.") || !e.values.is_empty());
        assert_eq!(gradients.names().count(), expected.len(), "{family}");
        for Entry { name, values, .. } in expected {
            same(&name, &host(gradients.get(&name).unwrap().clone()), &values);
        }
        let before = net.snapshot();
        optimizer.step(&mut net, &gradients, 1.0);
        assert!(net.snapshot() != before, "{family}: the update fits the smaller tensors");
    }
}

#[test]
fn scaling_slot_and_identity_stay() {
    let mut net = noisy_net(FAMILY, [&[1, 3], &[0]]);
    let (slot, id) = (net.first.slot(), net.first.noise_id());
    let weight = host(net.first.weight.base());
    let param = net.first.low_rank().unwrap().a.id;
    prune(&mut net, &mut optimizer(), &rule(0));
    let after = net.first.low_rank().unwrap();
    assert_eq!((after.rank(), after.scaling, after.a.id), (2, 1.75, param));
    assert_eq!((net.first.slot(), net.first.noise_id()), (slot, id));
    assert_eq!(slot.unwrap().initial_rank, RANK);
    same("base", &host(net.first.weight.base()), &weight);
    assert!(after.a.val().is_require_grad() && after.b.val().is_require_grad());
    assert_eq!(ranks(&net), [("net.first".to_owned(), 2), ("net.second".to_owned(), 3)]);
    let counts = trainable_counts(&net);
    assert_eq!((counts.adapter, counts.posterior), (2 * 12 + 3 * 13, 5));
}

#[test]
fn the_mean_output_changes_by_the_dropped_directions_alone() {
    let mut host_adapter = adapter(FAMILY, 0, &[1, 3], RANK);
    // Directions that are zero in one factor can go without a trace.
    for k in [1, 3] {
        host_adapter.b[k * WIDTHS[1]..][..WIDTHS[1]].fill(0.0);
    }
    let mut net = Net::new([Some(&host_adapter), None], DType::F64);
    let x = data(DType::F64).0;
    let before = host(net.forward(x.clone(), &Pass::mean()));
    let event = prune(&mut net, &mut optimizer(), &rule(0));
    assert_eq!(event.kept["net.first"], [0, 2]);
    close("outputs", &host(net.forward(x, &Pass::mean())), &before, 1e-13);
}

#[test]
fn rank_zero_leaves_the_base_and_nothing_else() {
    for family in VariationalFamily::ALL {
        let scheme = Scheme::MomentMatched(CrossTerm::Exact);
        let (mut net, mut optimizer) = trained(family, [&[1], &[0, 1, 2, 3]], 3, scheme);
        let slot = net.second.slot();
        prune(&mut net, &mut optimizer, &rule(0));
        assert!(net.second.adapter().is_none(), "{family}");
        assert_eq!((net.second.slot(), net.second.rank()), (slot, 0));
        assert_eq!(ranks(&net), [("net.first".to_owned(), 3), ("net.second".to_owned(), 0)]);
        let of_second = |name: &String| name.starts_with("net.second.");
        let left: Vec<String> = net.snapshot().into_iter().map(|s| s.0).filter(of_second).collect();
        assert_eq!(left, ["net.second.weight", "net.second.bias"]);
        assert!(!optimizer.state().keys().any(of_second), "{family}");

        // The layer is its base, whatever the pass.
        let x = tensor(&numbers(4, 42), [2, 3, 7], DTYPE);
        let bare = Net::new([None, None], DTYPE).second;
        let expected = host(bare.forward_with(x.clone(), &Pass::mean()));
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(1)).with_dropout(NoiseKey::new(2));
            same("base", &host(net.second.forward_with(x.clone(), &pass)), &expected);
            let shared =
                net.second.prepare(&pass, 2).forward_shared(x.clone().slice([0..1]).squeeze_dim(0));
            assert_eq!(shared.dims(), [1, 3, 6]);
        }
        let of_first = net.first.low_rank().unwrap();
        let kl = |kl: Option<Tensor<1>>| host(kl.unwrap());
        assert_eq!(
            kl(total_kl(&net, Prior::LogUniform, KlReduction::Element).unwrap()),
            kl(of_first.kl(Prior::LogUniform, KlReduction::Element).unwrap())
        );
        train_step(&mut net, &mut optimizer, 3, scheme);

        // The last adapter goes too: the head trains on, and there is no divergence left.
        let none = PruneRule::new(-1e3, 0).unwrap();
        prune(&mut net, &mut optimizer, &none);
        assert!(total_kl(&net, Prior::LogUniform, KlReduction::Element).unwrap().is_none());
        let names: Vec<&String> = optimizer.state().keys().collect();
        assert_eq!(names, ["head.bias", "head.weight"]);
        let parts = train_step(&mut net, &mut optimizer, 4, scheme);
        assert_eq!((parts.kl, parts.loss), (0.0, parts.nll));
        assert_eq!(trainable_counts(&net).adapter, 0);
    }
}

#[test]
fn a_least_rank_keeps_the_clearest_directions() {
    let mut net = noisy_net(FAMILY, [&[0, 1, 2, 3], &[0]]);
    let found = statistics(&net, StatisticOptions::default()).unwrap();
    let posterior = HostAdapter::read(net.first.low_rank().unwrap());
    let posterior = posterior.posterior().unwrap().unwrap();
    let expected = rank_statistic(&posterior, StatisticOptions::default()).unwrap();
    assert_eq!(found["net.first"], expected);
    let mut order: Vec<usize> = (0..RANK).collect();
    order.sort_by(|&i, &j| expected[i].total_cmp(&expected[j]));
    let mut clearest = order[..2].to_vec();
    clearest.sort_unstable();
    let event = prune(&mut net, &mut optimizer(), &rule(2));
    assert_eq!(event.kept["net.first"], clearest);
    assert_eq!(event.kept["net.second"], [1, 2, 3]);
}

#[test]
fn a_second_prune_finds_nothing() {
    for family in VariationalFamily::ALL {
        let (mut net, mut optimizer) = trained(family, [&[1, 3], &[0, 1, 2, 3]], 2, Scheme::Mean);
        let first = prune(&mut net, &mut optimizer, &rule(0));
        assert_eq!(first.changed.len(), 2);
        let before = entries(&net, &optimizer);
        let again = prune(&mut net, &mut optimizer, &rule(0));
        assert!(again.changed.is_empty(), "{family}");
        assert_eq!(again.kept.keys().collect::<Vec<_>>(), ["net.first"], "{family}");
        let kept: Vec<f64> =
            first.kept["net.first"].iter().map(|&k| first.statistics["net.first"][k]).collect();
        assert_eq!(again.statistics["net.first"], kept);
        assert!(entries(&net, &optimizer) == before, "{family}");
    }
}

#[test]
fn adapters_without_a_posterior_are_left_alone() {
    let mut net = Net::new([Some(&factors(0)), None], DTYPE);
    let before = net.snapshot();
    let event = prune(&mut net, &mut optimizer(), &PruneRule::new(-1e3, 0).unwrap());
    assert_eq!(event, PruneEvent::default());
    assert!(net.snapshot() == before);
}

#[test]
fn a_diverged_adapter_is_not_pruned_silently() {
    let noise = Some(host_noise(
        VariationalFamily::RankVariance,
        vec![-3.0, f64::NAN, -2.0, -1.0],
        Vec::new(),
    ));
    let net = Net::new([Some(&HostAdapter { noise, ..factors(0) }), None], DTYPE);
    let error = plan(&net, &rule(0), StatisticOptions::default()).unwrap_err();
    assert!(error.to_string().contains("is NaN at index 1"), "{error}");
}
