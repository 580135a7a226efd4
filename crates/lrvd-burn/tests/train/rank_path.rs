//! Rotation of adapters changes no answer, and held-out rows choose the directions that matter.

use crate::prelude::*;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, ArdHyper, Extension, Posterior, Prior};
use lrvd_burn::gauge::turn;
use lrvd_burn::host::HostAdapter;
use lrvd_burn::train::{directions, keep, rank_path};
use lrvd_burn::{Scheme, attach_adapters};
use lrvd_core::family::VariationalFamily;
use lrvd_core::gauge::singular_factors;
use lrvd_core::kl::ArdScales;
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::prune::{PathTolerance, StatisticAggregate, StatisticOptions};
use lrvd_core::schedule::KlSchedule;

const INPUT: usize = 10;
const OUTPUT: usize = 6;
const RANK: usize = 5;

/// Two layers side by side, whose outputs are added.
#[derive(Module, Debug)]
struct Pair {
    one: AdaptedLinear,
    other: AdaptedLinear,
}

impl Model for Pair {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        self.one.forward_with(input.clone(), pass) + self.other.forward_with(input.clone(), pass)
    }
}

fn pair() -> Pair {
    let layer = || AdaptedLinear::new(tensor(vec![0.0; INPUT * OUTPUT], [INPUT, OUTPUT]), None);
    Pair { one: layer(), other: layer() }
}

fn both() -> AdapterTargets {
    AdapterTargets::Names(vec!["one".into(), "other".into()])
}

/// Rows whose class is drawn from two planted directions: class 0 or 1 by the first coordinate, 2 or 3
/// by the second; sharp, but not without chance.
fn rows(seed: u64, n: usize) -> LabelledRows<2> {
    let noise = normal(seed + 1000, n * OUTPUT);
    labelled(normal(seed, n * INPUT), INPUT, OUTPUT, |row, x| {
        let score = |class: usize| {
            let signal = [3.0 * x[0], -3.0 * x[0], 2.0 * x[1], -2.0 * x[1]];
            signal.get(class).copied().unwrap_or(0.0) + noise[row * OUTPUT + class]
        };
        (0..OUTPUT).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap()
    })
}

fn adapted(family: VariationalFamily) -> Pair {
    let mut model = pair();
    let kind = AdapterKind::Variational { family, initial: -4.0 };
    let config = AdapterConfig { kind, rank: RANK, lora_alpha: 10.0, dropout: 0.0 };
    attach_adapters(&mut model, &both(), &config, NoiseKey::new(1)).unwrap();
    for (seed, layer) in [(1, &mut model.one), (2, &mut model.other)] {
        layer.edit(|adapter| {
            let b = tensor(normal(seed, RANK * OUTPUT), [RANK, OUTPUT]);
            adapter.b = adapter.b.clone().map(|_| b);
        });
    }
    model
}

#[test]
fn a_turned_model_answers_the_same_by_orthogonal_directions() {
    let model = adapted(VariationalFamily::RankVariance);
    let mut turned = model.clone();
    let spectra = turn(&mut turned, None).unwrap();
    let x = rows(3, 20).inputs.0;
    let answer = |model: &Pair| -> Vec<f64> {
        model.logits(&x, &Pass::mean()).into_data().iter::<f64>().collect()
    };
    for (before, after) in answer(&model).iter().zip(answer(&turned)) {
        assert!((before - after).abs() < 1e-4 * before.abs().max(1.0), "{before} and {after}");
    }
    let before = HostAdapter::read(model.one.low_rank().unwrap());
    let expected = singular_factors(&before.a, &before.b, before.rank).unwrap();
    let host = HostAdapter::read(turned.one.low_rank().unwrap());
    for (k, value) in spectra["one"].iter().enumerate() {
        // c = 10 / 5, and each factor carries the root of the singular value.
        assert!((value - 2.0 * expected.values[k]).abs() < 1e-12);
        let square: f64 = host.a[k * INPUT..][..INPUT].iter().map(|v| v * v).sum();
        assert!((square - expected.values[k]).abs() < 1e-5 * expected.values[0]);
    }
    // All directions of both modules, by singular value.
    let order = directions(&turned);
    assert_eq!(order.len(), 2 * RANK);
    assert!(order.windows(2).all(|w| w[0].importance >= w[1].importance));
    let of_one: Vec<usize> = order.iter().filter(|d| d.path == "one").map(|d| d.index).collect();
    assert_eq!(of_one, [0, 1, 2, 3, 4]);
}

/// `Σ Var ΔW` of a layer: the variance of `ΔW·x`, summed over outputs and over `x` = every unit vector.
fn total_variance(layer: &AdaptedLinear) -> f64 {
    let host = HostAdapter::read(layer.low_rank().unwrap());
    let unit: Vec<f64> =
        (0..INPUT * INPUT).map(|i| f64::from(u8::from(i / INPUT == i % INPUT))).collect();
    let posterior = host.posterior().unwrap().unwrap();
    moments(&posterior, &unit, CrossTerm::Exact).unwrap().variance.iter().sum()
}

#[test]
fn a_rotation_keeps_the_total_variance_of_the_update() {
    for family in [VariationalFamily::RankVariance, VariationalFamily::AsymRankVariance] {
        // B as large as A, a hundredth of it, and zero as in a fresh adapter; one log-variance has drifted out of range.
        for scale in [1.0, 0.01, 0.0] {
            let mut model = adapted(family);
            for layer in [&mut model.one, &mut model.other] {
                layer.edit(|adapter| {
                    adapter.b = adapter.b.clone().map(|b| b.mul_scalar(scale));
                    if let Some(Extension::Posterior(
                        Posterior::RankVariance(noise) | Posterior::AsymRankVariance(noise),
                    )) = &mut adapter.extension
                    {
                        noise.value = noise.value.clone().map(|value| {
                            Tensor::from_data([-6.0, -3.0, -9.0, -4.5, -30.0], &value.device())
                        });
                    }
                });
            }
            let before = [&model.one, &model.other].map(total_variance);
            turn(&mut model, None).unwrap();
            for (before, layer) in before.into_iter().zip([&model.one, &model.other]) {
                let after = total_variance(layer);
                let error = (after / before - 1.0).abs();
                assert!(before == after || error < 1e-5, "{family} {scale}: {before} {after}");
            }
        }
    }
    let mut other = adapted(VariationalFamily::ElementVariance);
    let answer = turn(&mut other, None);
    assert!(answer.unwrap_err().to_string().starts_with("adapter `one` cannot be rotated"));
}

#[test]
fn keeping_cuts_what_the_order_has_last() {
    let mut model = adapted(VariationalFamily::RankVariance);
    let mut order = directions(&model);
    order.sort_by_key(|d| (d.path != "other", d.index));
    let event = keep(&mut model, &order, 2, None);
    assert_eq!(event.kept["other"], [0, 1]);
    let left: Vec<usize> = ranks(&model).into_iter().map(|(_, rank)| rank).collect();
    assert_eq!(left, [0, 2]);
}

fn method() -> BayesLora {
    BayesLora {
        rank: RANK,
        lora_alpha: RANK as f64,
        noise_rate_factor: 1.0,
        prior: Prior::Ard { scales: ArdScales::Shared, hyper: ArdHyper::EmpiricalBayes },
        kl: KlSchedule::linear_warmup(1.0, 150).unwrap(),
        scheme: Scheme::Nested,
        pruning: None,
        turn: Some(Turn { after: 150, kl_factor: 0.8 }),
        ..BayesLora::default()
    }
}

#[test]
fn two_planted_directions_are_found() {
    let (train, held_out) = (rows(10, 2000), rows(11, 1000));
    let mut config = TrainConfig {
        steps: 300,
        seed: 3,
        gradient_clip: None,
        evaluate_every: 300,
        ..TrainConfig::default()
    };
    config.groups.adapter = GroupRates { learning_rate: 3e-2, weight_decay: 0.0 };
    let mut batches = Ordered::new(&train, OrderConfig::shuffled(64), 3).unwrap();
    let targets = AdapterTargets::Names(vec!["one".into()]);
    let mut run = Run::new(pair(), method(), &targets, &config).unwrap();
    run.fit(&mut batches, &mut Watch::default()).unwrap();
    let model = &mut run.state.model;
    // By held-out rows.
    let mut turned = model.clone();
    turn(&mut turned, None).unwrap();
    let order = directions(&turned);
    let all: Vec<usize> = (0..=RANK).collect();
    let path = rank_path(&turned, &order, &all, &held_out, 500, PathTolerance::default()).unwrap();
    assert_eq!(path.rank(), 2, "{path:?}");
    let losses: Vec<f64> = path.points.iter().map(|point| point.loss).collect();
    assert!((losses[0] - (OUTPUT as f64).ln()).abs() < 1e-5, "no direction is a guess: {losses:?}");
    assert!(losses[1] < losses[0] - 0.1 && losses[2] < losses[1] - 0.1, "{losses:?}");
    // By the posterior alone.
    let energy = StatisticOptions { aggregate: StatisticAggregate::Energy, ..Default::default() };
    let event = lrvd_burn::prune::plan(model, &PruneRule::new(0.0, 0).unwrap(), energy).unwrap();
    assert_eq!(event.kept["one"].len(), 2, "{:?}", event.statistics);
    lrvd_burn::prune::apply(model, &event, None, None);
    let classes = run.predict(&Inputs::new(&held_out), 0).unwrap().classes().unwrap();
    assert_eq!((classes.len(), run.state.model.one.rank()), (1000, 2));
}

#[test]
fn a_turn_is_rejected_where_it_has_no_meaning() {
    let rejected = |method: BayesLora| method.check().unwrap_err().to_string();
    let turn = Some(Turn { after: 0, kl_factor: 1.0 });
    assert!(rejected(BayesLora { turn, ..method() }).contains("turn.after"));
    let turn = Some(Turn { after: 1, kl_factor: -1.0 });
    assert!(rejected(BayesLora { turn, ..method() }).contains("turn.kl_factor"));
    let (family, prior) = (VariationalFamily::NoiseToSignal, Prior::LogUniform);
    assert!(rejected(BayesLora { family, prior, ..method() }).contains("turning"));
}
