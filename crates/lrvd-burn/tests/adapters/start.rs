//! Values of a fresh adapter, numbers of trainable parameters, and rejected settings.

use crate::support::prelude::*;
use lrvd_burn::model::trainable_counts;

const D_IN: usize = 60;
const D_OUT: usize = 50;
const RANK: usize = 8;

const LORA: AdapterKind = AdapterKind::Lora { b_bound: 0.0 };
const BBB: AdapterKind = bbb(true, -6.0, 0.0, None);
const BLOB: AdapterKind = AdapterKind::Blob { epsilon: 0.05 };

const fn bbb(both: bool, rho: f64, rho_std: f64, mean_std: Option<f64>) -> AdapterKind {
    AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std }
}

fn config(kind: AdapterKind) -> AdapterConfig {
    AdapterConfig { kind, rank: RANK, lora_alpha: 16.0, dropout: 0.1 }
}

fn fresh(path: &str, kind: AdapterKind, seed: u64) -> AdaptedLinear {
    let mut layer = base(path, D_IN, D_OUT, DType::F32);
    config(kind).attach(&mut layer, path, NoiseKey::new(seed)).unwrap();
    layer
}

/// Smallest and largest size.
fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, 0.0), |(low, high), v| (low.min(v.abs()), high.max(v.abs())))
}

/// Asserts that sizes are between `low` and `high` and nearly reach both.
#[track_caller]
fn fills(values: &[f64], low: f64, high: f64) {
    let (found, width) = (range(values), high - low);
    assert!(found.0 >= low * (1.0 - 1e-6) && found.1 <= high * (1.0 + 1e-6), "{found:?}");
    assert!(found.0 < low + 0.15 * width && found.1 > high - 0.15 * width, "{found:?}");
}

#[rstest]
fn starts_depend_on_seed_and_path_and_leave_the_base_alone(
    #[values(LORA, AdapterKind::AdaLora, AdapterKind::bayes_lora(), BBB, BLOB)] kind: AdapterKind,
) {
    let first = fresh("p.q", kind, 1);
    let expected = leaves(&first);
    assert_eq!(leaves(&fresh("p.q", kind, 1)), expected, "same seed");
    assert!(expected != leaves(&fresh("p.q", kind, 2)), "{kind:?}");
    assert!(expected != leaves(&fresh("p.r", kind, 1)), "{kind:?}");
    let x = tensor(&numbers(1, 3 * D_IN), [1, 3, D_IN], DType::F32);
    let run = |layer: &AdaptedLinear| host(layer.forward_with(x.clone(), &Pass::mean()));
    // B is 0 but under a posterior.
    let is_base = run(&first) == run(&base("p.q", D_IN, D_OUT, DType::F32));
    assert_eq!(is_base, kind != AdapterKind::bayes_lora(), "{kind:?}");
    // Attaching over another adapter leaves nothing of it.
    let mut again = fresh("p.q", AdapterKind::AdaLora, 9);
    config(kind).attach(&mut again, "p.q", NoiseKey::new(1)).unwrap();
    assert_eq!(leaves(&again), expected, "over another adapter");
}

#[test]
fn factors_start_where_they_should() {
    let leaves = |kind| leaves(&fresh("p.q", kind, 1));
    let lora = leaves(LORA);
    fills(&lora[0], 0.0, (D_IN as f64).sqrt().recip());
    let bayes = leaves(AdapterKind::bayes_lora());
    fills(&bayes[1], 0.0, 1e-3);
    assert_eq!(bayes[2], [-8.0; RANK]);
    assert_eq!(leaves(AdapterKind::AdaLora)[2], [0.0; RANK]);
    let scaling = |kind| of(&fresh("p.q", kind, 1)).scaling;
    assert_eq!((scaling(LORA), scaling(AdapterKind::AdaLora)), (2.0, 16.0 / 8.00001));
    assert_eq!(of(&fresh("p.q", BBB, 1)).dropout, 0.1);

    let both = leaves(BBB);
    assert_eq!((&both[0], &both[2]), (&lora[0], &vec![-6.0; D_IN * RANK]));
    assert_eq!(both[3], vec![-6.0; RANK * D_OUT]);
    // As Bayesian-Torch: 480 and 400 numbers, five standard errors of mean and deviation.
    let torch = leaves(bbb(false, -3.0, 0.1, Some(0.1)));
    for (values, centre) in torch.iter().zip([0.0, 0.0, -3.0]) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let sd = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        let five = 0.5 / n.sqrt();
        assert!((mean - centre).abs() < five && (sd - 0.1).abs() < five, "{mean} {sd}");
    }
    let std: Vec<f64> = leaves(BLOB)[2].iter().map(|g| g * g).collect();
    fills(&std, 0.00125, 0.0025);
}

/// Parameters of the kind, those of them that are noise, and the names.
#[rstest]
#[case::lora(LORA, RANK, RANK * 12, 0, &["lora_A", "lora_B"])]
#[case::bayes_by_backprop(BBB, RANK, 2 * RANK * 12, RANK * 12,
    &["lora_A", "lora_B", "lora_A_rho", "lora_B_rho"])]
#[case::blob(BLOB, RANK, RANK * 12 + RANK * 5, RANK * 5, &["lora_A", "lora_B", "lora_A_G"])]
fn parameters_are_counted_and_named(
    #[case] kind: AdapterKind,
    #[case] rank: usize,
    #[case] expected: usize,
    #[case] noise: usize,
    #[case] names: &[&str],
) {
    let config = AdapterConfig { rank, ..config(kind) };
    let mut net = Net::new([None, None], DType::F32);
    config.attach(&mut net.first, "net.first", NoiseKey::new(1)).unwrap();
    let counts = trainable_counts(&net);
    assert_eq!(counts.adapter + counts.posterior, expected);
    assert_eq!(config.parameter_count(WIDTHS[0], WIDTHS[1]), expected);
    assert_eq!((counts.posterior, counts.backbone), (noise, 0));
    let mut walked = Vec::new();
    net.visit_parameters(&mut |p| {
        if matches!(p.group, Group::AdapterMean | Group::LogVariance) {
            walked.push(p.name.strip_prefix("net.first.").unwrap().to_owned());
        }
    });
    assert_eq!(walked, names);
    assert_eq!(kind.parameters().iter().map(|p| p.name).collect::<Vec<_>>(), names);
    assert_eq!(ranks(&net), [("net.first".to_owned(), rank)]);
}

#[rstest]
#[case(bbb(true, f64::NAN, 0.0, None), "rho")]
#[case(bbb(true, -6.0, -0.1, None), "rho_std")]
#[case(bbb(true, -6.0, 0.0, Some(0.0)), "mean_std")]
#[case(AdapterKind::Blob { epsilon: 0.0 }, "epsilon")]
fn settings_out_of_range_are_rejected_by_name(#[case] kind: AdapterKind, #[case] setting: &str) {
    let mut narrow = base("p.q", 5, 7, DType::F32);
    match config(kind).attach(&mut narrow, "p.q", NoiseKey::new(1)).unwrap_err() {
        lrvd_core::Error::OutOfRange { name, .. } => assert_eq!(name, setting),
        other => panic!("{other}"),
    }
    assert!(narrow.low_rank().is_none());
}

#[rstest]
#[case(BLOB, r#"{"blob":{"epsilon":0.05}}"#)]
#[case(BBB, r#"{"bayes-by-backprop":{"both":true,"rho":-6.0,"rho_std":0.0,"mean_std":null}}"#)]
fn kinds_have_stable_names_in_files(#[case] kind: AdapterKind, #[case] expected: &str) {
    assert_eq!(serde_json::to_string(&kind).unwrap(), expected);
    assert_eq!(serde_json::from_str::<AdapterKind>(expected).unwrap(), kind);
}
