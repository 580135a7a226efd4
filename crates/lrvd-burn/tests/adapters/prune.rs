//! A prune shrinks tensors and moments, and training on cannot tell it from a smaller model.

use std::collections::BTreeMap;

use crate::support::net::{Net, WIDTHS, data, optimizer, train_step};
use crate::support::{RANK, host, numbers, tensor};
use burn::tensor::DType;
use lrvd_burn::adapter::Prior;
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_burn::model::{NamedModule, ranks, total_kl, trainable_counts};
use lrvd_burn::optimizer::{AdamW, Moments, NamedGradients};
use lrvd_burn::prune::{PruneEvent, apply, plan, statistics};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};

const DTYPE: DType = DType::F32;
const THRESHOLD: f64 = 3.0;

/// Rank 4 with means of ordinary size; the ranks in `noisy` drown in their noise.
fn adapter(family: VariationalFamily, index: usize, noisy: &[usize]) -> HostAdapter {
    let (d_input, d_output) = (WIDTHS[index], WIDTHS[index + 1]);
    let seed = 20 * (index as u64 + 1);
    let noise = |width: usize| -> Vec<f64> {
        let of = |k: usize| if noisy.contains(&k) { 1.9 } else { -5.0 - 0.3 * k as f64 };
        (0..RANK).flat_map(|k| vec![of(k); width]).collect()
    };
    let noise = match family {
        VariationalFamily::RankVariance => HostNoise::RankVariance(noise(1)),
        VariationalFamily::AsymRankVariance => HostNoise::AsymRankVariance(noise(1)),
        VariationalFamily::NoiseToSignal => {
            HostNoise::NoiseToSignal(noise(1).iter().map(|l| l + 2.0).collect())
        }
        VariationalFamily::ElementVariance => {
            HostNoise::ElementVariance { a: noise(d_input), b: noise(d_output) }
        }
    };
    let scaled = |seed, n| numbers(seed, n).iter().map(|v| 0.3 * v).collect();
    HostAdapter {
        rank: RANK,
        d_input,
        d_output,
        a: scaled(seed, RANK * d_input),
        b: scaled(seed + 1, RANK * d_output),
        e: None,
        noise: Some(noise),
        scaling: 1.75,
    }
}

fn rule(min_rank: usize) -> PruneRule {
    PruneRule::new(THRESHOLD, min_rank).unwrap()
}

fn prune(net: &mut Net, optimizer: &mut AdamW, rule: &PruneRule) -> PruneEvent {
    let event = plan(net, rule, StatisticOptions::default()).unwrap();
    apply(net, &event, Some(optimizer), None);
    event
}

/// The kept ranks of a tensor in memory, by the last part of its name.
fn sliced(name: &str, shape: &[usize], values: &[f64], kept: &[usize]) -> (Vec<usize>, Vec<f64>) {
    match name.rsplit_once('.').unwrap().1 {
        "lora_A" | "log_sigma2_a" => {
            let rows = values.chunks(shape[1]);
            let values = rows.flat_map(|row| kept.iter().map(move |&k| row[k])).collect();
            (vec![shape[0], kept.len()], values)
        }
        "lora_B" | "log_sigma2_b" => {
            let values = kept.iter().flat_map(|&k| values[k * shape[1]..][..shape[1]].to_vec());
            (vec![kept.len(), shape[1]], values.collect())
        }
        "rank_log_sigma2" | "rank_log_alpha" => {
            (vec![kept.len()], kept.iter().map(|&k| values[k]).collect())
        }
        _ => (shape.to_vec(), values.to_vec()),
    }
}

/// What `sliced` makes of everything, given what every layer keeps.
fn sliced_all(
    snapshot: &[(String, Vec<usize>, Vec<f64>)],
    kept: &BTreeMap<String, Vec<usize>>,
) -> Vec<(String, Vec<usize>, Vec<f64>)> {
    snapshot
        .iter()
        .map(|(name, shape, values)| match kept.get(name.rsplit_once('.').unwrap().0) {
            Some(kept) => {
                let (shape, values) = sliced(name, shape, values, kept);
                (name.clone(), shape, values)
            }
            None => (name.clone(), shape.clone(), values.clone()),
        })
        .collect()
}

type State = BTreeMap<String, (Vec<f64>, Vec<f64>, u64)>;

fn state(optimizer: &AdamW) -> State {
    let read = |m: &Moments| (host(m.first.clone()), host(m.second.clone()), m.steps);
    optimizer.state().iter().map(|(name, m)| (name.clone(), read(m))).collect()
}

/// The moments after the prune, cut on the host.
fn sliced_state(
    state: &State,
    snapshot: &[(String, Vec<usize>, Vec<f64>)],
    kept: &BTreeMap<String, Vec<usize>>,
) -> State {
    let shapes: BTreeMap<&str, &Vec<usize>> =
        snapshot.iter().map(|(name, shape, _)| (name.as_str(), shape)).collect();
    state
        .iter()
        .map(|(name, (first, second, steps))| {
            let cut = |values: &[f64]| match kept.get(name.rsplit_once('.').unwrap().0) {
                Some(kept) => sliced(name, shapes[name.as_str()], values, kept).1,
                None => values.to_vec(),
            };
            (name.clone(), (cut(first), cut(second), *steps))
        })
        .collect()
}

/// A model that never was larger, with the given adapters, values and optimiser state.
fn built(
    adapters: [&HostAdapter; 2],
    values: &[(String, Vec<usize>, Vec<f64>)],
    state: &State,
) -> (Net, AdamW) {
    let mut net = Net::new([Some(adapters[0]), Some(adapters[1])], DTYPE);
    let values: BTreeMap<&str, (&Vec<usize>, &Vec<f64>)> =
        values.iter().map(|(name, shape, v)| (name.as_str(), (shape, v))).collect();
    net.visit_parameters_mut(&mut |p| {
        let (shape, values) = values[p.name];
        assert_eq!(&p.value.shape(), shape, "{}", p.name);
        p.value.set_flat(tensor(values, [values.len()], DTYPE));
    });
    let moments = state
        .iter()
        .map(|(name, (first, second, steps))| {
            let on_device = |v: &Vec<f64>| tensor(v, [v.len()], DTYPE);
            let m = Moments { first: on_device(first), second: on_device(second), steps: *steps };
            (name.clone(), m)
        })
        .collect();
    let mut fresh = optimizer();
    fresh.restore(&net, moments).unwrap();
    (net, fresh)
}

/// `n` rank directions of the adapter; which ones does not matter, values are copied afterwards.
fn cut(host: &HostAdapter, n: usize) -> HostAdapter {
    let first = |v: &[f64]| v[..n * v.len() / RANK].to_vec();
    let noise = host.noise.as_ref().map(|noise| match noise {
        HostNoise::RankVariance(v) => HostNoise::RankVariance(first(v)),
        HostNoise::NoiseToSignal(v) => HostNoise::NoiseToSignal(first(v)),
        HostNoise::AsymRankVariance(v) => HostNoise::AsymRankVariance(first(v)),
        HostNoise::ElementVariance { a, b } => {
            HostNoise::ElementVariance { a: first(a), b: first(b) }
        }
    });
    HostAdapter { rank: n, a: first(&host.a), b: first(&host.b), noise, ..host.clone() }
}

#[test]
fn training_on_equals_a_model_built_at_the_pruned_size() {
    let schemes = [
        Scheme::Weights(DrawPer::Sequence),
        Scheme::Weights(DrawPer::Batch),
        Scheme::MomentMatched(CrossTerm::Exact),
        Scheme::Nested,
    ];
    for family in VariationalFamily::ALL {
        for scheme in schemes {
            let name = format!("{family} {scheme:?}");
            let adapters = [adapter(family, 0, &[1, 3]), adapter(family, 1, &[0])];
            let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
            let mut optimizer = optimizer();
            for step in 0..3 {
                train_step(&mut net, &mut optimizer, step, scheme, DTYPE);
            }
            let (values, moments) = (net.snapshot(), state(&optimizer));
            let event = prune(&mut net, &mut optimizer, &rule(0));
            assert_eq!(event.kept["net.first"], [0, 2], "{name} {:?}", event.statistics);
            assert_eq!(event.kept["net.second"], [1, 2, 3], "{name} {:?}", event.statistics);

            // What stayed is what was there, values and moments alike.
            let values = sliced_all(&values, &event.kept);
            assert_eq!(net.snapshot(), values, "{name}");
            let moments = sliced_state(&moments, &net_shapes(&adapters), &event.kept);
            assert_eq!(state(&optimizer), moments, "{name}");

            let small = [cut(&adapters[0], 2), cut(&adapters[1], 3)];
            let (mut fresh, mut fresh_optimizer) = built([&small[0], &small[1]], &values, &moments);
            for step in 3..6 {
                let on = train_step(&mut net, &mut optimizer, step, scheme, DTYPE);
                let anew = train_step(&mut fresh, &mut fresh_optimizer, step, scheme, DTYPE);
                assert_eq!(on, anew, "{name}: objective at step {step}");
            }
            let bits = |net: &mut Net| -> Vec<u64> {
                net.snapshot().iter().flat_map(|(_, _, v)| v).map(|v| v.to_bits()).collect()
            };
            assert_eq!(bits(&mut net), bits(&mut fresh), "{name}: values");
            assert_eq!(state(&optimizer), state(&fresh_optimizer), "{name}: moments");
            assert_ne!(net.snapshot(), values, "{name}: nothing was trained");
        }
    }
}

/// Names and shapes of the model before any prune.
fn net_shapes(adapters: &[HostAdapter; 2]) -> Vec<(String, Vec<usize>, Vec<f64>)> {
    Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE).snapshot()
}

#[test]
fn moments_that_are_not_cut_would_show() {
    // The control of the test above: the same run with the moments of other ranks differs.
    let family = VariationalFamily::RankVariance;
    let adapters = [adapter(family, 0, &[1, 3]), adapter(family, 1, &[0])];
    let run = |moved: bool| {
        let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
        let mut optimizer = optimizer();
        for step in 0..3 {
            train_step(&mut net, &mut optimizer, step, Scheme::Nested, DTYPE);
        }
        let (values, moments) = (net.snapshot(), state(&optimizer));
        let event = prune(&mut net, &mut optimizer, &rule(0));
        let mut kept = event.kept.clone();
        if moved {
            kept.insert("net.first".to_owned(), vec![1, 3]);
        }
        let small = [cut(&adapters[0], 2), cut(&adapters[1], 3)];
        let moments = sliced_state(&moments, &values, &kept);
        let (mut net, mut optimizer) = built([&small[0], &small[1]], &net.snapshot(), &moments);
        train_step(&mut net, &mut optimizer, 3, Scheme::Nested, DTYPE);
        net.snapshot()
    };
    assert_eq!(run(false), run(false));
    assert_ne!(run(false), run(true));
}

#[test]
fn a_prune_before_the_update_takes_the_gradients_along() {
    for family in VariationalFamily::ALL {
        let adapters = [adapter(family, 0, &[1, 3]), adapter(family, 1, &[0, 1, 2, 3])];
        let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
        let mut optimizer = optimizer();
        train_step(&mut net, &mut optimizer, 0, Scheme::Nested, DTYPE);
        let (x, targets) = data(DTYPE);
        let pass = Pass::sampled(Scheme::Nested, NoiseKey::new(5).at_step(1));
        let loss = net.objective(x, targets, &pass).loss();
        let mut gradients = NamedGradients::collect(&net, &loss.backward());
        let full: Vec<(String, Vec<usize>, Vec<f64>)> = net
            .snapshot()
            .into_iter()
            .filter_map(|(name, shape, _)| {
                let gradient = host(gradients.get(&name)?.clone());
                Some((name, shape, gradient))
            })
            .collect();
        let event = plan(&net, &rule(0), StatisticOptions::default()).unwrap();
        assert_eq!(event.kept["net.first"], [0, 2]);
        apply(&mut net, &event, Some(&mut optimizer), Some(&mut gradients));
        // Nothing is left of a layer without a rank; the rest is what the kept directions had.
        let expected: Vec<(String, Vec<f64>)> = sliced_all(&full, &event.kept)
            .into_iter()
            .filter(|(name, _, values)| !name.starts_with("net.second.") || !values.is_empty())
            .map(|(name, _, values)| (name, values))
            .collect();
        assert_eq!(gradients.names().count(), expected.len(), "{family}");
        for (name, values) in expected {
            assert_eq!(host(gradients.get(&name).unwrap().clone()), values, "{family} {name}");
        }
        let before = net.snapshot();
        optimizer.step(&mut net, &gradients, 1.0);
        assert_ne!(net.snapshot(), before, "{family}: the update fits the smaller tensors");
    }
}

#[test]
fn scaling_slot_and_identity_stay() {
    let family = VariationalFamily::RankVariance;
    let adapters = [adapter(family, 0, &[1, 3]), adapter(family, 1, &[0])];
    let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
    let (slot, id) = (net.first.slot(), net.first.noise_id());
    let weight = host(net.first.weight.base());
    let param = net.first.low_rank().unwrap().a.id;
    prune(&mut net, &mut optimizer(), &rule(0));
    let after = net.first.low_rank().unwrap();
    assert_eq!((after.rank(), after.scaling, after.a.id), (2, 1.75, param));
    assert_eq!((net.first.slot(), net.first.noise_id()), (slot, id));
    assert_eq!(slot.unwrap().initial_rank, RANK);
    assert_eq!(host(net.first.weight.base()), weight);
    assert!(after.a.val().is_require_grad() && after.b.val().is_require_grad());
    assert_eq!(ranks(&net), [("net.first".to_owned(), 2), ("net.second".to_owned(), 3)]);
    let counts = trainable_counts(&net);
    assert_eq!((counts.adapter, counts.posterior), (2 * 12 + 3 * 13, 5));
}

#[test]
fn the_mean_output_changes_by_the_dropped_directions_alone() {
    let family = VariationalFamily::RankVariance;
    let mut host_adapter = adapter(family, 0, &[1, 3]);
    // Directions that are zero in one factor can go without a trace.
    for k in [1, 3] {
        host_adapter.b[k * WIDTHS[1]..][..WIDTHS[1]].fill(0.0);
    }
    let mut net = Net::new([Some(&host_adapter), None], DType::F64);
    let x = data(DType::F64).0;
    let before = host(net.forward(x.clone(), &Pass::mean()));
    let event = prune(&mut net, &mut optimizer(), &rule(0));
    assert_eq!(event.kept["net.first"], [0, 2]);
    crate::support::close("outputs", &host(net.forward(x, &Pass::mean())), &before, 1e-13);
}

#[test]
fn rank_zero_leaves_the_base_and_nothing_else() {
    for family in VariationalFamily::ALL {
        let adapters = [adapter(family, 0, &[1]), adapter(family, 1, &[0, 1, 2, 3])];
        let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
        let slot = net.second.slot();
        let mut optimizer = optimizer();
        let scheme = Scheme::MomentMatched(CrossTerm::Exact);
        for step in 0..3 {
            train_step(&mut net, &mut optimizer, step, scheme, DTYPE);
        }
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
        for scheme in crate::support::SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(1)).with_dropout(NoiseKey::new(2));
            assert_eq!(host(net.second.forward_with(x.clone(), &pass)), expected);
            let shared =
                net.second.prepare(&pass, 2).forward_shared(x.clone().slice([0..1]).squeeze_dim(0));
            assert_eq!(shared.dims(), [1, 3, 6]);
        }
        let of_first = net.first.low_rank().unwrap();
        let kl = |kl: Option<burn::tensor::Tensor<1>>| host(kl.unwrap());
        assert_eq!(
            kl(total_kl(&net, Prior::LogUniform, KlReduction::Element).unwrap()),
            kl(of_first.kl(Prior::LogUniform, KlReduction::Element).unwrap())
        );
        train_step(&mut net, &mut optimizer, 3, scheme, DTYPE);

        // The last adapter goes too: the head trains on, and there is no divergence left.
        let none = PruneRule::new(-1e3, 0).unwrap();
        prune(&mut net, &mut optimizer, &none);
        assert!(total_kl(&net, Prior::LogUniform, KlReduction::Element).unwrap().is_none());
        let names: Vec<&String> = optimizer.state().keys().collect();
        assert_eq!(names, ["head.bias", "head.weight"]);
        let parts = train_step(&mut net, &mut optimizer, 4, scheme, DTYPE);
        assert_eq!((parts.kl, parts.loss), (0.0, parts.nll));
        assert_eq!(trainable_counts(&net).adapter, 0);
    }
}

#[test]
fn a_least_rank_keeps_the_clearest_directions() {
    let family = VariationalFamily::RankVariance;
    let adapters = [adapter(family, 0, &[0, 1, 2, 3]), adapter(family, 1, &[0])];
    let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
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
        let adapters = [adapter(family, 0, &[1, 3]), adapter(family, 1, &[0, 1, 2, 3])];
        let mut net = Net::new([Some(&adapters[0]), Some(&adapters[1])], DTYPE);
        let mut optimizer = optimizer();
        for step in 0..2 {
            train_step(&mut net, &mut optimizer, step, Scheme::Mean, DTYPE);
        }
        let first = prune(&mut net, &mut optimizer, &rule(0));
        assert_eq!(first.changed.len(), 2);
        let (values, moments) = (net.snapshot(), state(&optimizer));
        let again = prune(&mut net, &mut optimizer, &rule(0));
        assert!(again.changed.is_empty(), "{family}");
        assert_eq!(again.kept.keys().collect::<Vec<_>>(), ["net.first"], "{family}");
        let kept: Vec<f64> =
            first.kept["net.first"].iter().map(|&k| first.statistics["net.first"][k]).collect();
        assert_eq!(again.statistics["net.first"], kept);
        assert_eq!((net.snapshot(), state(&optimizer)), (values, moments));
    }
}

#[test]
fn adapters_without_a_posterior_are_left_alone() {
    let mut plain = adapter(VariationalFamily::RankVariance, 0, &[1]);
    plain.noise = None;
    let mut net = Net::new([Some(&plain), None], DTYPE);
    let before = net.snapshot();
    let event = prune(&mut net, &mut optimizer(), &PruneRule::new(-1e3, 0).unwrap());
    assert_eq!(event, PruneEvent::default());
    assert_eq!(net.snapshot(), before);
}

#[test]
fn a_diverged_adapter_is_not_pruned_silently() {
    let mut bad = adapter(VariationalFamily::RankVariance, 0, &[1]);
    bad.noise = Some(HostNoise::RankVariance(vec![-3.0, f64::NAN, -2.0, -1.0]));
    let net = Net::new([Some(&bad), None], DTYPE);
    let error = plan(&net, &rule(0), StatisticOptions::default()).unwrap_err();
    assert!(error.to_string().contains("is NaN at index 1"), "{error}");
}
