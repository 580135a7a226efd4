//! KL of every family against every prior: the core's values, and their slopes.

use crate::support::net::Net;
use crate::support::reference::{pieces, posterior_gradient, posterior_slopes};
use crate::support::{RANK, SLOPES, adapter, close, host, host_adapter, numbers, tensor};
use burn::tensor::DType;
use lrvd_burn::adapter::{ArdHyper, Prior};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::model::total_kl;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::kl::{
    ArdPrior, ArdScales, KlReduction, LogUniformOptions, gaussian_kl, kl_ard, kl_log_uniform,
};
use lrvd_core::noise::NoiseKey;

const STD: f64 = 0.3;

const PRIORS: [Prior; 6] = [
    Prior::LogUniform,
    Prior::Ard { scales: ArdScales::Shared, hyper: ArdHyper::EmpiricalBayes },
    Prior::Ard { scales: ArdScales::Separate, hyper: ArdHyper::EmpiricalBayes },
    Prior::Ard {
        scales: ArdScales::Shared,
        hyper: ArdHyper::InverseGamma { shape: 0.7, rate: 0.2 },
    },
    Prior::Ard {
        scales: ArdScales::Separate,
        hyper: ArdHyper::InverseGamma { shape: 1e-3, rate: 1e-3 },
    },
    Prior::Gaussian { std: STD },
];

/// Families for which the prior is defined.
fn families(prior: Prior) -> impl Iterator<Item = VariationalFamily> {
    VariationalFamily::ALL.into_iter().filter(move |family| {
        prior == Prior::LogUniform || *family != VariationalFamily::NoiseToSignal
    })
}

/// Value by the core.
fn expected(adapter: &HostAdapter, prior: Prior, reduction: KlReduction) -> f64 {
    let posterior = &adapter.posterior().unwrap().unwrap();
    match prior {
        Prior::LogUniform => {
            let options = LogUniformOptions { reduction, ..LogUniformOptions::default() };
            kl_log_uniform(posterior, options).total()
        }
        Prior::Ard { scales, hyper } => {
            let law = match hyper {
                ArdHyper::EmpiricalBayes => ArdPrior::EmpiricalBayes,
                ArdHyper::InverseGamma { shape, rate } => ArdPrior::InverseGamma { shape, rate },
            };
            kl_ard(posterior, law, scales).unwrap().total()
        }
        Prior::Gaussian { std } => {
            let variance = posterior.variance();
            let of = |means: &[f64], variance: &[f64]| -> f64 {
                means.iter().zip(variance).map(|(m, v)| gaussian_kl(*m, v.sqrt(), std)).sum()
            };
            let b = if posterior.family().has_random_b() {
                of(posterior.b_mean(), &variance.b)
            } else {
                0.0
            };
            of(posterior.a_mean(), &variance.a) + b
        }
    }
}

fn check(dtype: DType, tolerance: f64) {
    for prior in PRIORS {
        for family in families(prior) {
            for reduction in [KlReduction::Element, KlReduction::PerRank] {
                if reduction == KlReduction::PerRank && prior != Prior::LogUniform {
                    continue;
                }
                let module = adapter(&host_adapter(Some(family), 10), dtype);
                let read = HostAdapter::read(&module);
                let value = |read: &HostAdapter| expected(read, prior, reduction);
                let name = format!("{family} {prior:?} {reduction:?} {dtype:?}");

                let kl = module.kl(prior, reduction).unwrap().unwrap();
                assert_eq!(kl.dims(), [1]);
                // The core's form of this one loses digits where a deviation is far below the
                // prior's, as that of the clamped entry is.
                let gaussian = matches!(prior, Prior::Gaussian { .. });
                let slack = if gaussian { tolerance.max(1e-11) } else { tolerance };
                close(&name, &host(kl.clone()), &[value(&read)], slack);
                let got = posterior_gradient(&module, &kl.backward());
                let gradient = posterior_slopes(&read, value);
                for ((piece, g), (_, w)) in pieces(&got).into_iter().zip(pieces(&gradient)) {
                    close(&format!("{name} {piece}"), g, w, tolerance.max(SLOPES));
                }
            }
        }
    }
}

#[test]
fn double_precision_equals_the_core() {
    check(DType::F64, 1e-12);
}

#[test]
fn single_precision_equals_the_core() {
    check(DType::F32, 3e-6);
}

#[test]
fn one_entry_of_the_gaussian_prior_by_hand() {
    // ln(0.3/0.5) + (0.25 + 0.04)/(2·0.09) − ½
    let value = gaussian_kl(0.2, 0.5, STD);
    assert!((value - ((STD / 0.5f64).ln() + 0.29 / 0.18 - 0.5)).abs() < 1e-15);
}

#[test]
fn the_ends_of_the_clamp_pass_the_gradient() {
    let mut host = host_adapter(Some(VariationalFamily::RankVariance), 10);
    let values = vec![2.0, 2.0001, -20.0, -20.0001];
    host.noise = Some(lrvd_burn::host::HostNoise::RankVariance(values));
    for prior in PRIORS {
        let module = adapter(&host, DType::F64);
        let kl = module.kl(prior, KlReduction::Element).unwrap().unwrap();
        let gradient = posterior_gradient(&module, &kl.backward());
        let slope = &gradient.noise[0];
        assert!(slope[0] != 0.0 && slope[2] != 0.0, "{prior:?}: {slope:?}");
        assert_eq!([slope[1], slope[3]], [0.0; 2], "{prior:?}");
    }
}

#[test]
fn an_adapter_without_ranks_costs_nothing() {
    for prior in PRIORS {
        for family in families(prior) {
            let module = adapter(&host_adapter(Some(family), 10), DType::F32).select_ranks(&[]);
            assert_eq!(module.rank(), 0);
            let kl = module.kl(prior, KlReduction::Element).unwrap().unwrap();
            assert_eq!(host(kl), [0.0], "{family} {prior:?}");
        }
    }
    let plain = adapter(&host_adapter(None, 10), DType::F32);
    assert!(plain.kl(Prior::LogUniform, KlReduction::Element).unwrap().is_none());
}

#[test]
fn a_model_sums_its_adapters_once_whatever_their_use() {
    let first = host_adapter(Some(VariationalFamily::RankVariance), 10);
    let second = HostAdapter {
        d_input: 7,
        d_output: 6,
        a: numbers(31, RANK * 7),
        b: numbers(32, RANK * 6),
        ..first.clone()
    };
    let net = Net::new([Some(&first), Some(&second)], DType::F64);
    for prior in PRIORS {
        let of = |host: &HostAdapter| {
            let kl = adapter(host, DType::F64).kl(prior, KlReduction::Element).unwrap().unwrap();
            crate::support::host(kl)[0]
        };
        let total = || host(total_kl(&net, prior, KlReduction::Element).unwrap().unwrap())[0];
        let before = total();
        close("sum", &[before], &[of(&first) + of(&second)], 1e-13);
        // Two uses of the first layer within one forward.
        let pass = Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(2));
        let prepared = net.first.prepare(&pass, 2);
        let _ = prepared.forward(tensor(&numbers(1, 30), [2, 3, 5], DType::F64));
        let _ = prepared.forward_shared(tensor(&numbers(2, 10), [2, 5], DType::F64));
        assert_eq!(before, total());
    }
    let bare = Net::new([None, None], DType::F64);
    assert!(total_kl(&bare, Prior::LogUniform, KlReduction::Element).unwrap().is_none());
}

#[test]
fn a_noise_to_signal_posterior_has_no_divergence_from_a_gaussian() {
    let noisy = host_adapter(Some(VariationalFamily::NoiseToSignal), 10);
    let module = adapter(&noisy, DType::F64);
    let net = Net::new([Some(&noisy), None], DType::F64);
    for prior in PRIORS {
        for outcome in
            [module.kl(prior, KlReduction::Element), total_kl(&net, prior, KlReduction::Element)]
        {
            match outcome {
                Ok(Some(_)) => assert_eq!(prior, Prior::LogUniform),
                Err(lrvd_burn::Error::Core(lrvd_core::Error::Undefined { reason, .. })) => {
                    assert!(reason.contains("noise-to-signal"), "{reason}");
                    assert_ne!(prior, Prior::LogUniform);
                }
                other => panic!("{prior:?}: {other:?}"),
            }
        }
    }
}
