//! Divergences: the core's values and their slopes for every family and prior, for noise per entry, of scales and of
//! contexts.

use crate::support::prelude::*;
use lrvd_burn::adapter::ArdHyper;
use lrvd_burn::model::{total_kl, total_over_adapters};
use lrvd_core::baselines::{ElementReduction, ScaleMixture};
use lrvd_core::kl::{ArdPrior, ArdScales, kl_ard, kl_log_uniform};

/// Standard deviation of Gaussian priors.
const STD: f64 = 0.3;

const PRIORS: [Prior; 3] = [
    Prior::LogUniform,
    Prior::Ard { scales: ArdScales::Shared, hyper: ArdHyper::EmpiricalBayes },
    Prior::Ard {
        scales: ArdScales::Separate,
        hyper: ArdHyper::InverseGamma { shape: 0.7, rate: 0.2 },
    },
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
        Prior::LogUniform => kl_log_uniform(posterior, reduction).total(),
        Prior::Ard { scales, hyper } => {
            let law = match hyper {
                ArdHyper::EmpiricalBayes => ArdPrior::EmpiricalBayes,
                ArdHyper::InverseGamma { shape, rate } => ArdPrior::InverseGamma { shape, rate },
            };
            kl_ard(posterior, law, scales).unwrap().total()
        }
    }
}

fn kl(layer: &AdaptedLinear, prior: Prior, reduction: KlReduction) -> Tensor<1> {
    of(layer).kl(prior, reduction).unwrap().unwrap()
}

#[rstest]
#[case(DType::F64, 1e-12)]
#[case(DType::F32, 3e-6)]
fn every_family_and_prior_equals_the_core(#[case] dtype: DType, #[case] tolerance: f64) {
    let per_rank = (Prior::LogUniform, KlReduction::PerRank);
    for (prior, reduction) in
        PRIORS.map(|p| (p, KlReduction::Element)).into_iter().chain([per_rank])
    {
        for family in families(prior) {
            let layer = layer(&noisy(family), dtype);
            let read = HostAdapter::read(of(&layer));
            let (name, kl) = (format!("{family} {prior:?}"), kl(&layer, prior, reduction));
            check(&name, kl, None, &layer, tolerance, |leaves| {
                vec![expected(&with_leaves(&read, leaves), prior, reduction)]
            });
            let empty = of(&layer).clone().select_ranks(&[]).kl(prior, reduction).unwrap().unwrap();
            assert_eq!(host(empty), [0.0], "{name}: no ranks");
        }
    }
    let plain = layer(&plain(), DType::F32);
    assert!(of(&plain).kl(Prior::LogUniform, KlReduction::Element).unwrap().is_none());
}

#[test]
fn a_hyper_prior_without_a_shape_is_an_error() {
    let layer = layer(&noisy(VariationalFamily::RankVariance), DType::F32);
    let hyper = ArdHyper::InverseGamma { shape: 0.0, rate: 1.0 };
    let prior = Prior::Ard { scales: ArdScales::Shared, hyper };
    let error = of(&layer).kl(prior, KlReduction::Element).unwrap_err().to_string();
    assert!(error.contains("`hyper.shape`"), "{error}");
}

#[test]
fn the_ends_of_the_clamp_pass_the_gradient() {
    let noise = Some(host_noise(
        VariationalFamily::RankVariance,
        vec![2.0, 2.0001, -20.0, -20.0001],
        Vec::new(),
    ));
    let layer = layer(&HostAdapter { noise, ..plain() }, DType::F64);
    for prior in PRIORS {
        let gradients = kl(&layer, prior, KlReduction::Element).backward();
        let slope = layer_gradients(&layer, &gradients).remove(2);
        assert!(slope[0] != 0.0 && slope[2] != 0.0, "{prior:?}: {slope:?}");
        assert_eq!([slope[1], slope[3]], [0.0; 2], "{prior:?}");
    }
}

#[test]
fn a_noise_to_signal_posterior_has_no_divergence_from_a_gaussian() {
    let net = Net::new([Some(&noisy(VariationalFamily::NoiseToSignal)), None], DType::F64);
    let reduction = KlReduction::Element;
    for prior in PRIORS.into_iter().skip(1) {
        for outcome in [of(&net.first).kl(prior, reduction), total_kl(&net, prior, reduction)] {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("noise-to-signal"), "{prior:?}: {error}");
        }
    }
}

/// A layer with deviations of every size, none zero.
fn of_elements(map: NoiseMap, both: bool, dtype: DType) -> AdaptedLinear {
    let rho = |seed, shape: [usize; 2]| {
        let values = numbers(seed, shape[0] * shape[1]);
        let values = values.into_iter().map(|v| match map {
            NoiseMap::Softplus => 6.0 * v - 3.0,
            _ => 0.6 * v,
        });
        parameter(&values.collect::<Vec<_>>(), shape, dtype)
    };
    let b = both.then(|| rho(32, [RANK, D_OUTPUT]));
    let noise = Gaussian::per_entry(map, rho(31, [D_INPUT, RANK]), b);
    extended(Extension::Gaussian(noise), dtype)
}

/// Sum over the random factors of `cost(mean, deviations, index)`.
fn over_factors(
    map: NoiseMap,
    leaves: &[Vec<f64>],
    cost: impl Fn(&[f64], &[f64], usize) -> f64,
) -> Vec<f64> {
    let one = |(i, (mean, rho)): (usize, (&Vec<f64>, &Vec<f64>))| {
        let std = std_devs(map, rho);
        cost(mean, &std, i)
    };
    vec![leaves.iter().zip(&leaves[2..]).enumerate().map(one).sum()]
}

#[rstest]
#[case(NoiseMap::Softplus, true, ElementReduction::Sum)]
#[case(NoiseMap::Softplus, true, ElementReduction::Mean)]
#[case(NoiseMap::Square, false, ElementReduction::Sum)]
fn divergences_of_entries_equal_the_core(
    #[case] map: NoiseMap,
    #[case] both: bool,
    #[case] reduction: ElementReduction,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    // In single precision the parameters are rounded, the sums are not.
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-6 };
    let layer = of_elements(map, both, dtype);
    let kl = layer.kl_elements(STD, reduction).unwrap();
    assert_eq!(kl.dtype(), dtype);
    check("closed form", kl, None, &layer, tolerance, |leaves| {
        over_factors(map, leaves, |mean, std, _| {
            reduction.weight(mean.len()) * element_kl(mean, std, STD)
        })
    });
    // The sampled form, for the draw of the pass.
    let key = NoiseKey::new(12).at_step(5);
    let sampled = |weight, scheme, key| {
        let prior = ScaleMixture::new(weight, 1.0, 0.1).unwrap();
        let pass = Pass::sampled(scheme, key);
        (prior, layer.kl_mixture(&pass, &prior, reduction).unwrap())
    };
    let eps = |stream, n| noise(key.for_module(layer.noise_id()).on_stream(stream), n, dtype);
    let eps = [eps(Stream::WEIGHT_A, D_INPUT * RANK), eps(Stream::WEIGHT_B, RANK * D_OUTPUT)];
    for weight in [0.0, 0.25, 1.0] {
        let (prior, kl) = sampled(weight, Scheme::PerBatch, key);
        let found = host(kl.clone());
        check("sampled form", kl, None, &layer, tolerance, |leaves| {
            over_factors(map, leaves, |mean, std, i| {
                reduction.weight(mean.len()) * sampled_kl(mean, std, &eps[i], &prior)
            })
        });
        // Flipout uses the same draw with signs.
        assert_eq!(host(sampled(weight, Scheme::PerToken, key).1), found);
    }
}

#[test]
fn a_narrow_posterior_keeps_its_digits_in_single_precision() {
    // BLoB's start: 20 000 entries with σ near 0.002, whose shares of the sum are alike.
    let n = 20_000;
    let d_input = n / RANK;
    let g: Vec<f64> = numbers(5, n).iter().map(|v| 0.0425 + 0.007 * v).collect();
    let a = numbers(6, n).iter().map(|v| 0.01 * v).collect();
    let mut wide = layer(&HostAdapter { d_input, a, ..plain() }, DType::F32);
    let noise = parameter(&g, [d_input, RANK], DType::F32);
    let noise = Gaussian::per_entry(NoiseMap::Square, noise, None);
    wide.extend(Some(Extension::Gaussian(noise))).unwrap();
    let kl = host(wide.kl_elements(0.2, ElementReduction::Sum).unwrap())[0];
    let expected =
        over_factors(NoiseMap::Square, &leaves(&wide), |mean, std, _| element_kl(mean, std, 0.2));
    // One rounding to single precision, at the end.
    assert!((kl / expected[0] - 1.0).abs() < 6.1e-8, "{kl}, expected {}", expected[0]);
}

#[test]
fn costs_add_up_over_a_model() {
    let mut net = Net::new([Some(&noisy(VariationalFamily::RankVariance)), None], DType::F64);
    let second = HostAdapter { noise: noisy(VariationalFamily::RankVariance).noise, ..factors(1) };
    for prior in PRIORS {
        let total = |net: &Net| total_kl(net, prior, KlReduction::Element).unwrap().map(host);
        let of = |layer| host(kl(layer, prior, KlReduction::Element))[0];
        let both = Net::new([None, Some(&second)], DType::F64);
        let both = Net { first: net.first.clone(), ..both };
        close("sum", &total(&both).unwrap(), &[of(&both.first) + of(&both.second)], 1e-13);
        assert_eq!(total(&net).unwrap(), [of(&net.first)]);
        assert!(total(&Net::new([None, None], DType::F64)).is_none());
    }
    let cost = |layer: &AdaptedLinear| layer.kl_elements(STD, ElementReduction::Sum);
    assert!(total_over_adapters(&net, cost).is_none());
    *net.first = of_elements(NoiseMap::Square, false, DType::F64);
    assert_eq!(host(total_over_adapters(&net, cost).unwrap()), host(cost(&net.first).unwrap()));
}
