//! What a fresh adapter holds, how many parameters train, and which settings are rejected.

use crate::support::prelude::*;
use lrvd_burn::adapter::Adapter;
use lrvd_burn::model::{self, trainable_counts};
use lrvd_burn::parameters::Group;

const D_IN: usize = 60;
const D_OUT: usize = 50;
const RANK: usize = 8;

const LORA: AdapterKind = AdapterKind::Lora { b_bound: 0.0 };
const BBB: AdapterKind =
    AdapterKind::BayesByBackprop { both: true, rho: -6.0, rho_std: 0.0, mean_std: None };
const BLOB: AdapterKind = AdapterKind::Blob { epsilon: 0.05 };
const SCALA: AdapterKind = AdapterKind::ScalaBl { epsilon: 0.05 };
const CLORA: AdapterKind = AdapterKind::CLora { hidden: 64 };

const fn ensemble(members: usize, gain: f64) -> AdapterKind {
    AdapterKind::LoraEnsemble { members, gain }
}

fn config(kind: AdapterKind) -> AdapterConfig {
    AdapterConfig { kind, rank: RANK, lora_alpha: 16.0, dropout: 0.1 }
}

fn fresh(path: &str, kind: AdapterKind, seed: u64) -> AdaptedLinear {
    let mut layer = base(path, D_IN, D_OUT, DType::F32);
    config(kind).attach(&mut layer, path, NoiseKey::new(seed)).unwrap();
    layer
}

/// The net with a fresh adapter on its first layer.
fn fresh_net(config: AdapterConfig) -> Net {
    let mut net = Net::new([None, None], DType::F32);
    config.attach(&mut net.first, "net.first", NoiseKey::new(1)).unwrap();
    net
}

/// Every adapter value in the order of the walk.
fn values(layer: &AdaptedLinear) -> Vec<f64> {
    let mut all = Vec::new();
    layer.visit_parameters(&mut |p| {
        if p.group != Group::Backbone {
            all.extend(host(p.value.flat()));
        }
    });
    all
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

#[rstest]
fn starts_depend_on_seed_and_path_and_leave_the_base_alone(
    #[values(
        LORA,
        AdapterKind::AdaLora,
        AdapterKind::bayes_lora(),
        BBB,
        BLOB,
        SCALA,
        CLORA,
        ensemble(1, 10.0)
    )]
    kind: AdapterKind,
) {
    let first = fresh("p.q", kind, 1);
    let expected = values(&first);
    same("same seed", &values(&fresh("p.q", kind, 1)), &expected);
    assert!(expected != values(&fresh("p.q", kind, 2)), "{kind:?}");
    assert!(expected != values(&fresh("p.r", kind, 1)), "{kind:?}");
    let x = tensor(&numbers(1, 3 * D_IN), [1, 3, D_IN], DType::F32);
    let run = |layer: &AdaptedLinear| host(layer.forward_with(x.clone(), &Pass::mean()));
    // B is 0 but under a posterior.
    let is_base = run(&first) == run(&base("p.q", D_IN, D_OUT, DType::F32));
    assert_eq!(is_base, kind != AdapterKind::bayes_lora(), "{kind:?}");
    // Attaching over another adapter leaves nothing of it.
    let mut again = fresh("p.q", ensemble(2, 1.0), 9);
    config(kind).attach(&mut again, "p.q", NoiseKey::new(1)).unwrap();
    same("over another adapter", &values(&again), &expected);
}

#[test]
fn lora_ada_lora_and_bayes_lora_start_where_they_should() {
    let read = |kind| HostAdapter::read(of(&fresh("p.q", kind, 1)));
    let lora = read(LORA);
    assert_eq!((lora.a.len(), lora.b.len(), lora.scaling), (RANK * D_IN, RANK * D_OUT, 2.0));
    assert!(largest(&lora.b) == 0.0 && largest(&lora.a) <= (D_IN as f64).sqrt().recip());
    let bayes = read(AdapterKind::bayes_lora());
    assert!((5e-4..1.0001e-3).contains(&largest(&bayes.b)));
    assert_eq!(
        bayes.noise,
        Some(host_noise(VariationalFamily::RankVariance, vec![-8.0; RANK], Vec::new()))
    );
    let ada = read(AdapterKind::AdaLora);
    assert_eq!((ada.e, ada.scaling), (Some(vec![0.0; RANK]), 16.0 / 8.00001));
}

#[test]
fn bayes_by_backprop_starts_as_lora_or_as_bayesian_torch() {
    let layer = fresh("p.q", BBB, 1);
    same("A is LoRA's", &host(of(&layer).a.val()), &host(of(&fresh("p.q", LORA, 1)).a.val()));
    assert_eq!((of(&layer).scaling, of(&layer).dropout), (2.0, 0.1));
    let noise = gaussian(&layer);
    assert_eq!(noise.std_map(), StdMap::Softplus);
    for rho in [host(noise.a.val()), host(noise.b.as_ref().unwrap().val())] {
        assert!(rho.iter().all(|r| *r == -6.0));
    }

    let torch =
        AdapterKind::BayesByBackprop { both: false, rho: -3.0, rho_std: 0.1, mean_std: Some(0.1) };
    let layer = fresh("p.q", torch, 1);
    let noise = gaussian(&layer);
    assert!(noise.b.is_none());
    // 480 and 400 numbers: five standard errors of mean and deviation.
    let (a, b) = (host(of(&layer).a.val()), host(of(&layer).b.val()));
    for (values, centre) in [(a, 0.0), (b, 0.0), (host(noise.a.val()), -3.0)] {
        let (mean, sd) = moments(&values);
        let five = 0.5 / (values.len() as f64).sqrt();
        assert!((mean - centre).abs() < five && (sd - 0.1).abs() < five, "{mean} {sd}");
    }
}

#[test]
fn blob_starts_with_narrow_noise_on_a() {
    let layer = fresh("p.q", BLOB, 1);
    let noise = gaussian(&layer);
    assert!(noise.b.is_none() && noise.std_map() == StdMap::Square);
    let std = host(noise.deviations().0);
    let (low, high) = std.iter().fold((1.0f64, 0.0f64), |(l, h), s| (l.min(*s), h.max(*s)));
    assert!(low >= 0.00125 * (1.0 - 1e-6) && high <= 0.0025 * (1.0 + 1e-6), "{low} {high}");
    assert!(low < 0.001_27 && high > 0.002_46, "{low} {high}");
}

#[test]
fn scala_bl_starts_in_the_basis_of_a_lora() {
    let (layer, lora) = (fresh("p.q", SCALA, 1), fresh("p.q", LORA, 1));
    let (scales, a) = (scales(&layer), of(&layer).a.val());
    let gram = |t: Tensor<2>| t.clone().transpose().matmul(t);
    let eye: Vec<f64> =
        (0..RANK * RANK).map(|i| f64::from(u8::from(i % (RANK + 1) == 0))).collect();
    close("orthonormal", &host(gram(a.clone())), &eye, 1e-6);
    // A·diag(s²)·Aᵀ is the LoRA's own A·Aᵀ: the rotation that the start drops has no part in it.
    let scaled = a * scales.mean().unsqueeze_dim(0);
    let outer = |t: Tensor<2>| t.clone().matmul(t.transpose());
    close("span", &host(outer(scaled)), &host(outer(of(&lora).a.val())), 1e-5);
    let std: Vec<f64> = host(scales.log_std.val()).into_iter().map(f64::exp).collect();
    let range = 0.05 / 2f64.sqrt() * (1.0 - 1e-6)..=0.05 * (1.0 + 1e-6);
    assert!(std.iter().all(|s| range.contains(s)), "{std:?}");
}

#[test]
fn c_lora_starts_as_a_linear_layer_of_pytorch() {
    let net = fresh_net(config(CLORA));
    // 8·(5 + 7) of the factors, and the network of the publication.
    let counts = trainable_counts(&net);
    assert_eq!((counts.adapter, counts.posterior), (RANK * (WIDTHS[0] + WIDTHS[1]) + 8896, 0));
    let fresh = context(&net.first);
    for (values, bound) in [
        (host(fresh.w1.val()), 1.0 / 8f64.sqrt()),
        (host(fresh.b1.val()), 1.0 / 8f64.sqrt()),
        (host(fresh.w2.val()), 0.125),
        (host(fresh.b2.val()), 0.125),
    ] {
        let found = largest(&values);
        assert!(found <= bound * 1.000_001 && found > 0.9 * bound, "{found} of {bound}");
    }
    assert_eq!(largest(&host(of(&net.first).b.val())), 0.0);
    assert!(net.first.slot().is_none() && net.first.delta().is_none());
}

#[test]
fn members_of_an_ensemble_start_apart() {
    let net = fresh_net(config(ensemble(3, 10.0)));
    let Some(Adapter::Members(fresh)) = net.first.adapter() else { unreachable!() };
    assert_eq!((fresh.scaling, fresh.dropout), (2.0, 0.1));
    assert_eq!(largest(&host(fresh.b.val())), 0.0);
    let a = host(fresh.a.val());
    let (bound, found) = (10.0 * (6.0 / (WIDTHS[0] + RANK) as f64).sqrt(), largest(&a));
    assert!(found <= bound * 1.000_001 && found > 0.8 * bound, "{found} of {bound}");
    let n = WIDTHS[0] * RANK;
    assert!((0..n).all(|i| a[i] != a[n + i] && a[i] != a[2 * n + i]), "members start alike");
    assert_eq!(model::ranks(&net), [("net.first".to_owned(), RANK)]);
    assert_eq!(model::members(&net).unwrap(), 3);
}

/// Parameters of the kind, those of them that are noise, and the names beside the two factors.
#[rstest]
#[case::lora(LORA, RANK, RANK * 12, 0, &["lora_A", "lora_B"])]
#[case::bayes_by_backprop(BBB, RANK, 2 * RANK * 12, RANK * 12,
    &["lora_A", "lora_B", "lora_A_rho", "lora_B_rho"])]
#[case::on_a(
    AdapterKind::BayesByBackprop { both: false, rho: -6.0, rho_std: 0.0, mean_std: None },
    RANK, RANK * 12 + RANK * 5, RANK * 5, &["lora_A", "lora_B", "lora_A_rho"])]
#[case::blob(BLOB, RANK, RANK * 12 + RANK * 5, RANK * 5, &["lora_A", "lora_B", "lora_A_G"])]
// The basis needs as many inputs as ranks.
#[case::scala_bl(SCALA, 4, 4 * 12 + 2 * 4, 4,
    &["lora_A", "lora_B", "lora_scale_log_mean", "lora_scale_log_std"])]
#[case::c_lora(CLORA, RANK, RANK * 12 + 8896, 0, &[])]
#[case::ensemble(ensemble(3, 1.0), RANK, 3 * RANK * 12, 0, &["lora_A_members", "lora_B_members"])]
fn parameters_are_counted_and_named(
    #[case] kind: AdapterKind,
    #[case] rank: usize,
    #[case] expected: usize,
    #[case] noise: usize,
    #[case] names: &[&str],
) {
    let config = AdapterConfig { rank, ..config(kind) };
    let net = fresh_net(config);
    let counts = trainable_counts(&net);
    assert_eq!(counts.adapter + counts.posterior, expected);
    assert_eq!(config.parameter_count(WIDTHS[0], WIDTHS[1]), expected);
    assert_eq!((counts.posterior, counts.backbone), (noise, 0));
    let mut walked = Vec::new();
    net.visit_parameters(&mut |p| {
        if matches!(p.group, Group::AdapterMean | Group::LogVariance) {
            walked.push(p.name.to_owned());
        }
    });
    let named = kind.parameters().into_iter().map(|p| format!("net.first.{}", p.name));
    assert_eq!(walked, named.collect::<Vec<_>>());
    if !names.is_empty() {
        let found: Vec<&str> = walked.iter().map(|name| &name["net.first.".len()..]).collect();
        assert_eq!(found, names);
    }
}

const fn bbb(rho: f64, rho_std: f64, mean_std: Option<f64>) -> AdapterKind {
    AdapterKind::BayesByBackprop { both: true, rho, rho_std, mean_std }
}

#[rstest]
#[case(bbb(f64::NAN, 0.0, None), "rho")]
#[case(bbb(-6.0, -0.1, None), "rho_std")]
#[case(bbb(-6.0, 0.0, Some(0.0)), "mean_std")]
#[case(AdapterKind::Blob { epsilon: 0.0 }, "epsilon")]
#[case(AdapterKind::ScalaBl { epsilon: 1.5 }, "epsilon")]
#[case(AdapterKind::CLora { hidden: 0 }, "hidden")]
#[case(ensemble(0, 1.0), "members")]
#[case(ensemble(2, 0.0), "gain")]
fn settings_out_of_range_are_rejected_by_name(#[case] kind: AdapterKind, #[case] setting: &str) {
    match config(kind).check().unwrap_err() {
        lrvd_core::Error::OutOfRange { name, .. } => assert_eq!(name, setting),
        other => panic!("{other}"),
    }
}

#[test]
fn a_basis_has_no_more_directions_than_the_layer_has_inputs() {
    let mut narrow = base("p.q", 5, 7, DType::F32);
    let error = config(SCALA).attach(&mut narrow, "p.q", NoiseKey::new(1)).unwrap_err();
    assert!(matches!(error, lrvd_core::Error::OutOfRange { name: "rank", .. }), "{error}");
    assert!(narrow.adapter().is_none() && narrow.extension().is_none());
}

#[rstest]
#[case(BLOB, r#"{"blob":{"epsilon":0.05}}"#)]
#[case(SCALA, r#"{"scala-bl":{"epsilon":0.05}}"#)]
#[case(CLORA, r#"{"c-lora":{"hidden":64}}"#)]
#[case(ensemble(4, 10.0), r#"{"lora-ensemble":{"members":4,"gain":10.0}}"#)]
#[case(BBB, r#"{"bayes-by-backprop":{"both":true,"rho":-6.0,"rho_std":0.0,"mean_std":null}}"#)]
fn kinds_have_stable_names_in_files(#[case] kind: AdapterKind, #[case] expected: &str) {
    assert_eq!(serde_json::to_string(&kind).unwrap(), expected);
    assert_eq!(serde_json::from_str::<AdapterKind>(expected).unwrap(), kind);
}
