//! What a fresh baseline adapter holds, how much of it trains, and which settings are rejected.

use crate::support::net::{Net, WIDTHS};
use crate::support::{base, close, host, numbers, of, tensor};
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig, AdapterKind, Extension};
use lrvd_burn::model::{NamedModule, trainable_counts};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_core::baselines::StdMap;
use lrvd_core::noise::NoiseKey;

const D_IN: usize = 60;
const D_OUT: usize = 50;
const RANK: usize = 8;

const BBB: AdapterKind =
    AdapterKind::BayesByBackprop { both: true, rho: -6.0, rho_std: 0.0, mean_std: None };
const BLOB: AdapterKind = AdapterKind::Blob { epsilon: 0.05 };
const SCALA: AdapterKind = AdapterKind::ScalaBl { epsilon: 0.05 };

fn config(kind: AdapterKind) -> AdapterConfig {
    AdapterConfig { kind, rank: RANK, lora_alpha: 16.0, dropout: 0.1 }
}

fn fresh(path: &str, kind: AdapterKind, seed: u64) -> AdaptedLinear {
    let mut layer = base(path, D_IN, D_OUT, DType::F32);
    config(kind).attach(&mut layer, path, NoiseKey::new(seed)).unwrap();
    layer
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

fn mean_and_sd(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
}

#[test]
fn starts_depend_on_seed_and_path_and_leave_the_base_alone() {
    let x = tensor(&numbers(1, 3 * D_IN), [1, 3, D_IN], DType::F32);
    for kind in [
        BBB,
        BLOB,
        SCALA,
        AdapterKind::CLora { hidden: 16 },
        AdapterKind::LoraEnsemble { members: 1, gain: 10.0 },
    ] {
        let first = fresh("p.q", kind, 1);
        let expected = values(&first);
        assert_eq!(expected, values(&fresh("p.q", kind, 1)), "{kind:?}");
        assert_ne!(expected, values(&fresh("p.q", kind, 2)), "{kind:?}");
        assert_ne!(expected, values(&fresh("p.r", kind, 1)), "{kind:?}");
        let bare = base("p.q", D_IN, D_OUT, DType::F32);
        let plain = host(bare.forward_with(x.clone(), &Pass::mean()));
        assert_eq!(
            host(first.forward_with(x.clone(), &Pass::mean())),
            plain,
            "{kind:?}: B is not 0"
        );
        // Attaching over another adapter leaves nothing of it.
        let mut again = fresh("p.q", AdapterKind::LoraEnsemble { members: 2, gain: 1.0 }, 9);
        config(kind).attach(&mut again, "p.q", NoiseKey::new(1)).unwrap();
        assert_eq!(values(&again), expected, "{kind:?}");
    }
}

#[test]
fn bayes_by_backprop_starts_as_lora_or_as_bayesian_torch() {
    let layer = fresh("p.q", BBB, 1);
    let lora = fresh("p.q", AdapterKind::Lora { b_bound: 0.0 }, 1);
    assert_eq!(host(of(&layer).a.val()), host(of(&lora).a.val()), "A is not LoRA's");
    assert_eq!((of(&layer).scaling, of(&layer).dropout), (2.0, 0.1));
    let Some(Extension::Gaussian(noise)) = layer.extension() else { unreachable!() };
    assert_eq!(noise.std_map(), StdMap::Softplus);
    for rho in [host(noise.a.val()), host(noise.b.as_ref().unwrap().val())] {
        assert!(rho.iter().all(|r| *r == -6.0));
    }

    let torch =
        AdapterKind::BayesByBackprop { both: false, rho: -3.0, rho_std: 0.1, mean_std: Some(0.1) };
    let layer = fresh("p.q", torch, 1);
    let Some(Extension::Gaussian(noise)) = layer.extension() else { unreachable!() };
    assert!(noise.b.is_none());
    // 480 and 400 numbers: five standard errors of mean and deviation.
    for (values, centre) in [
        (host(of(&layer).a.val()), 0.0),
        (host(of(&layer).b.val()), 0.0),
        (host(noise.a.val()), -3.0),
    ] {
        let (mean, sd) = mean_and_sd(&values);
        let error = 0.1 / (values.len() as f64).sqrt();
        assert!(
            (mean - centre).abs() < 5.0 * error && (sd - 0.1).abs() < 5.0 * error,
            "{mean} {sd}"
        );
    }
}

#[test]
fn blob_starts_with_narrow_noise_on_a() {
    let layer = fresh("p.q", BLOB, 1);
    let Some(Extension::Gaussian(noise)) = layer.extension() else { unreachable!() };
    assert!(noise.b.is_none() && noise.std_map() == StdMap::Square);
    let std = host(noise.deviations().0);
    let (low, high) = std.iter().fold((1.0f64, 0.0f64), |(l, h), s| (l.min(*s), h.max(*s)));
    assert!(low >= 0.00125 * (1.0 - 1e-6) && high <= 0.0025 * (1.0 + 1e-6), "{low} {high}");
    assert!(low < 0.001_27 && high > 0.002_46, "{low} {high}");
}

#[test]
fn scala_bl_starts_in_the_basis_of_a_lora() {
    let layer = fresh("p.q", SCALA, 1);
    let lora = fresh("p.q", AdapterKind::Lora { b_bound: 0.0 }, 1);
    let Some(Extension::Scale(scales)) = layer.extension() else { unreachable!() };
    let a = of(&layer).a.val();
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
fn parameters_are_counted_exactly() {
    let [inputs, outputs] = [WIDTHS[0], WIDTHS[1]];
    let lora = |rank: usize| rank * (inputs + outputs);
    // Both layers of the network with their biases, of which the second has a mean and a deviation per entry.
    let context = 64 * (RANK + 1) + 2 * RANK * RANK * (64 + 1);
    let on_a =
        AdapterKind::BayesByBackprop { both: false, rho: -6.0, rho_std: 0.0, mean_std: None };
    let members = AdapterKind::LoraEnsemble { members: 3, gain: 1.0 };
    // ScalaBL's basis needs as many inputs as ranks.
    for (kind, rank, expected, noise) in [
        (AdapterKind::Lora { b_bound: 0.0 }, RANK, lora(RANK), 0),
        (BBB, RANK, 2 * lora(RANK), lora(RANK)),
        (on_a, RANK, lora(RANK) + RANK * inputs, RANK * inputs),
        (BLOB, RANK, lora(RANK) + RANK * inputs, RANK * inputs),
        (SCALA, 4, lora(4) + 2 * 4, 4),
        (AdapterKind::CLora { hidden: 64 }, RANK, lora(RANK) + context, 0),
        (members, RANK, 3 * lora(RANK), 0),
    ] {
        let mut net = Net::new([None, None], DType::F32);
        let config = AdapterConfig { rank, ..config(kind) };
        config.attach(&mut net.first, "net.first", NoiseKey::new(1)).unwrap();
        let counts = trainable_counts(&net);
        assert_eq!(counts.adapter + counts.posterior, expected, "{kind:?}");
        assert_eq!(config.parameter_count(WIDTHS[0], WIDTHS[1]), expected, "{kind:?}");
        let mut walked = Vec::new();
        net.visit_parameters(&mut |p| {
            if matches!(p.group, Group::AdapterMean | Group::LogVariance) {
                walked.push(p.name.to_owned());
            }
        });
        let named = kind.parameters().into_iter().map(|p| format!("net.first.{}", p.name));
        assert_eq!(walked, named.collect::<Vec<_>>(), "{kind:?}");
        assert_eq!((counts.posterior, counts.backbone), (noise, 0), "{kind:?}");
    }
}

#[test]
fn settings_out_of_range_are_rejected_by_name() {
    let reject = |kind, name: &str| {
        let error = config(kind).check().unwrap_err();
        assert!(
            matches!(error, lrvd_core::Error::OutOfRange { name: n, .. } if n == name),
            "{error}"
        );
    };
    let bbb = |rho, rho_std, mean_std| AdapterKind::BayesByBackprop {
        both: true,
        rho,
        rho_std,
        mean_std,
    };
    reject(bbb(f64::NAN, 0.0, None), "rho");
    reject(bbb(-6.0, -0.1, None), "rho_std");
    reject(bbb(-6.0, 0.0, Some(0.0)), "mean_std");
    reject(AdapterKind::Blob { epsilon: 0.0 }, "epsilon");
    reject(AdapterKind::ScalaBl { epsilon: 1.5 }, "epsilon");
    reject(AdapterKind::CLora { hidden: 0 }, "hidden");
    reject(AdapterKind::LoraEnsemble { members: 0, gain: 1.0 }, "members");
    reject(AdapterKind::LoraEnsemble { members: 2, gain: 0.0 }, "gain");
    // A basis has no more directions than the layer has inputs.
    let mut narrow = base("p.q", 5, 7, DType::F32);
    let error = config(SCALA).attach(&mut narrow, "p.q", NoiseKey::new(1)).unwrap_err();
    assert!(matches!(error, lrvd_core::Error::OutOfRange { name: "rank", .. }), "{error}");
    assert!(narrow.adapter().is_none() && narrow.extension().is_none());
}

#[test]
fn kinds_have_stable_names_in_files() {
    for (kind, expected) in [
        (BLOB, r#"{"blob":{"epsilon":0.05}}"#),
        (SCALA, r#"{"scala-bl":{"epsilon":0.05}}"#),
        (AdapterKind::CLora { hidden: 64 }, r#"{"c-lora":{"hidden":64}}"#),
        (
            AdapterKind::LoraEnsemble { members: 4, gain: 10.0 },
            r#"{"lora-ensemble":{"members":4,"gain":10.0}}"#,
        ),
        (BBB, r#"{"bayes-by-backprop":{"both":true,"rho":-6.0,"rho_std":0.0,"mean_std":null}}"#),
    ] {
        let text = serde_json::to_string(&kind).unwrap();
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<AdapterKind>(&text).unwrap(), kind);
    }
}
