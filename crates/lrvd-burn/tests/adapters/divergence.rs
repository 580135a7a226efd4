//! Divergences: the core's values and their slopes for every family and prior, for noise per entry, and for scales.

use crate::support::prelude::*;
use lrvd_burn::adapter::{ArdHyper, ScaleGaussian};
use lrvd_burn::model::{total_kl, total_over_adapters};
use lrvd_core::baselines::bayes_by_backprop::{element_kl, sampled_element_kl};
use lrvd_core::baselines::{ElementReduction, KlDirection, ScaleMixture, scala_bl_kl};
use lrvd_core::kl::{ArdPrior, ArdScales, LogUniformOptions, gaussian_kl, kl_ard, kl_log_uniform};

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
            let has_b = posterior.family().has_random_b();
            let b = if has_b { of(posterior.b_mean(), &variance.b) } else { 0.0 };
            of(posterior.a_mean(), &variance.a) + b
        }
    }
}

fn kl(layer: &AdaptedLinear, prior: Prior) -> Tensor<1> {
    of(layer).kl(prior, KlReduction::Element).unwrap().unwrap()
}

#[rstest]
#[case(DType::F64, 1e-12)]
#[case(DType::F32, 3e-6)]
fn every_family_and_prior_equals_the_core(#[case] dtype: DType, #[case] tolerance: f64) {
    let per_rank = [(Prior::LogUniform, KlReduction::PerRank)];
    for (prior, reduction) in PRIORS.map(|p| (p, KlReduction::Element)).into_iter().chain(per_rank)
    {
        for family in families(prior) {
            let layer = layer(&noisy(family), dtype);
            let kl = of(&layer).kl(prior, reduction).unwrap().unwrap();
            assert_eq!(kl.dims(), [1]);
            // The core's form of this one loses digits where a deviation is far below the prior's, as that of the
            // clamped entry is.
            let is_gaussian = matches!(prior, Prior::Gaussian { .. });
            let tolerance = if is_gaussian { tolerance.max(1e-11) } else { tolerance };
            let read = HostAdapter::read(of(&layer));
            let name = format!("{family} {prior:?} {reduction:?}");
            check(&name, kl, &leaves_of(&layer), tolerance, |leaves| {
                vec![expected(&with_leaves(&read, leaves), prior, reduction)]
            });
        }
    }
}

#[test]
fn the_ends_of_the_clamp_pass_the_gradient() {
    let noise = Some(host_noise(
        VariationalFamily::RankVariance,
        vec![2.0, 2.0001, -20.0, -20.0001],
        Vec::new(),
    ));
    for prior in PRIORS {
        let layer = layer(&HostAdapter { noise: noise.clone(), ..plain() }, DType::F64);
        let slope = layer_gradients(&layer, &kl(&layer, prior).backward()).remove(2);
        assert!(slope[0] != 0.0 && slope[2] != 0.0, "{prior:?}: {slope:?}");
        assert_eq!([slope[1], slope[3]], [0.0; 2], "{prior:?}");
    }
}

#[test]
fn an_adapter_without_ranks_costs_nothing() {
    for prior in PRIORS {
        for family in families(prior) {
            let layer = layer(&noisy(family), DType::F32);
            let module = of(&layer).clone().select_ranks(&[]);
            assert_eq!(module.rank(), 0);
            let kl = module.kl(prior, KlReduction::Element).unwrap().unwrap();
            assert_eq!(host(kl), [0.0], "{family} {prior:?}");
        }
    }
    let plain = layer(&plain(), DType::F32);
    assert!(of(&plain).kl(Prior::LogUniform, KlReduction::Element).unwrap().is_none());
}

#[test]
fn a_model_sums_its_adapters_once_whatever_their_use() {
    let first = noisy(VariationalFamily::RankVariance);
    let second = HostAdapter { noise: first.noise.clone(), ..factors(1) };
    let net = Net::new([Some(&first), Some(&second)], DType::F64);
    for prior in PRIORS {
        let total = || host(total_kl(&net, prior, KlReduction::Element).unwrap().unwrap())[0];
        let [first, second] = [&net.first, &net.second].map(|layer| host(kl(layer, prior))[0]);
        let before = total();
        close("sum", &[before], &[first + second], 1e-13);
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
    let net = Net::new([Some(&noisy(VariationalFamily::NoiseToSignal)), None], DType::F64);
    let reduction = KlReduction::Element;
    for prior in PRIORS {
        for outcome in [of(&net.first).kl(prior, reduction), total_kl(&net, prior, reduction)] {
            match outcome {
                Ok(Some(_)) => assert_eq!(prior, Prior::LogUniform),
                Err(lrvd_burn::Error::Core(lrvd_core::Error::Undefined { reason, .. })) => {
                    assert!(reason.contains("noise-to-signal"), "{reason}");
                    assert_ne!(prior, Prior::LogUniform);
                }
                other => panic!("{prior:?}: {:?}", other.map(drop)),
            }
        }
    }
}

const PRIOR: f64 = 0.2;

/// A layer with deviations of every size, none zero.
fn of_elements(map: StdMap, both: bool, dtype: DType) -> AdaptedLinear {
    let rho = |seed, shape: [usize; 2]| {
        let values = numbers(seed, shape[0] * shape[1]);
        let values = values.into_iter().map(|v| match map {
            StdMap::Softplus => 6.0 * v - 3.0,
            StdMap::Square => 0.6 * v,
        });
        parameter(&values.collect::<Vec<_>>(), shape, dtype)
    };
    let b = both.then(|| rho(32, [RANK, D_OUTPUT]));
    let noise = ElementGaussian::new(map, rho(31, [D_INPUT, RANK]), b);
    extended(Extension::Gaussian(noise), dtype)
}

/// The leaves of the random factors: means, then noise parameters.
fn random_leaves(layer: &AdaptedLinear) -> Vec<Tracked> {
    let mut leaves = leaves_of(layer);
    if gaussian(layer).b.is_none() {
        leaves.remove(1);
    }
    leaves
}

/// Sum over the factors of `cost(mean, deviations, index)`, for [`random_leaves`].
fn over_factors(
    map: StdMap,
    leaves: &[Vec<f64>],
    cost: impl Fn(&[f64], &[f64], usize) -> f64,
) -> Vec<f64> {
    let (means, rho) = leaves.split_at(leaves.len() / 2);
    let one = |(i, (mean, rho)): (usize, (&Vec<f64>, &Vec<f64>))| {
        let std: Vec<f64> = rho.iter().map(|&rho| map.value(rho)).collect();
        cost(mean, &std, i)
    };
    vec![means.iter().zip(rho).enumerate().map(one).sum()]
}

#[rstest]
fn the_closed_form_equals_the_core(
    #[values(StdMap::Softplus, StdMap::Square)] map: StdMap,
    #[values(false, true)] both: bool,
    #[values(ElementReduction::Sum, ElementReduction::Mean)] reduction: ElementReduction,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    // In single precision the parameters are rounded, the sums are not.
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-6 };
    let layer = of_elements(map, both, dtype);
    let kl = layer.kl_elements(PRIOR, reduction).unwrap();
    assert_eq!(kl.dtype(), dtype);
    let gradients = check("KL", kl, &random_leaves(&layer), tolerance, |leaves| {
        over_factors(map, leaves, |mean, std, _| element_kl(mean, std, PRIOR, reduction).unwrap())
    });
    assert_eq!(of(&layer).b.val().grad(&gradients).is_some(), both);
}

#[rstest]
fn the_sampled_form_equals_the_core_for_the_draw_of_the_pass(
    #[values(StdMap::Softplus, StdMap::Square)] map: StdMap,
    #[values(0.0, 0.25, 1.0)] weight: f64,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-6 };
    let (key, reduction) = (NoiseKey::new(12).at_step(5), ElementReduction::Sum);
    let prior = ScaleMixture::new(weight, 1.0, 0.1).unwrap();
    let layer = of_elements(map, true, dtype);
    let sampled = |per, key| {
        let pass = Pass::sampled(Scheme::Weights(per), key);
        layer.kl_mixture(&pass, &prior, reduction).unwrap()
    };
    let eps = |stream, n| noise(key.for_module(layer.noise_id()).on_stream(stream), n, dtype);
    let eps = [eps(Stream::WEIGHT_A, D_INPUT * RANK), eps(Stream::WEIGHT_B, RANK * D_OUTPUT)];
    check("KL", sampled(DrawPer::Batch, key), &random_leaves(&layer), tolerance, |leaves| {
        over_factors(map, leaves, |mean, std, i| {
            sampled_element_kl(mean, std, &eps[i], &prior, reduction).unwrap()
        })
    });
    // Flipout turns the same draw; another step is another draw.
    let found = host(sampled(DrawPer::Batch, key))[0];
    assert_eq!(host(sampled(DrawPer::Token, key)), [found]);
    assert!((host(sampled(DrawPer::Token, key.at_step(6)))[0] - found).abs() > 1e-6);
}

#[test]
fn a_mixture_of_one_width_averages_to_the_closed_form() {
    let layer = of_elements(StdMap::Softplus, false, DType::F64);
    let prior = ScaleMixture::new(0.5, 0.7, 0.7).unwrap();
    let values: Vec<f64> = (0..3000)
        .map(|step| {
            let pass = Pass::sampled(Scheme::FLIPOUT, NoiseKey::new(3).at_step(step));
            host(layer.kl_mixture(&pass, &prior, ElementReduction::Sum).unwrap())[0]
        })
        .collect();
    let expected = host(layer.kl_elements(0.7, ElementReduction::Sum).unwrap())[0];
    within("KL", values.iter().copied(), expected);
}

#[rstest]
fn the_divergence_of_scales_equals_the_core(
    #[values(KlDirection::PosteriorFromPrior, KlDirection::PriorFromPosterior)]
    direction: KlDirection,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-6 };
    let log_std = parameter(&[-3.0, 0.0, -0.4, 0.9], [RANK], dtype);
    let scales = ScaleGaussian { log_mean: random(33, [RANK], dtype), log_std };
    let layer = extended(Extension::Scale(scales), dtype);
    let kl = layer.kl_scale(direction).unwrap();
    check("KL", kl, &leaves_of(&layer)[2..], tolerance, |leaves| {
        vec![scala_bl_kl(&leaves[0], &leaves[1], direction).unwrap()]
    });
    assert!(layer.kl_elements(PRIOR, ElementReduction::Sum).is_none());
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
    let noise = ElementGaussian::new(StdMap::Square, noise, None);
    wide.extend(Some(Extension::Gaussian(noise))).unwrap();
    let kl = host(wide.kl_elements(PRIOR, ElementReduction::Sum).unwrap())[0];
    let leaves: Vec<Vec<f64>> = random_leaves(&wide).into_iter().map(|leaf| leaf.values).collect();
    let expected = over_factors(StdMap::Square, &leaves, |mean, std, _| {
        element_kl(mean, std, PRIOR, ElementReduction::Sum).unwrap()
    });
    // One rounding to single precision, at the end.
    assert!((kl / expected[0] - 1.0).abs() < 6.1e-8, "{kl}, expected {}", expected[0]);
}

#[test]
fn costs_add_up_over_a_model() {
    let mut net = Net::new([Some(&plain()), None], DType::F64);
    let cost = |layer: &AdaptedLinear| layer.kl_elements(PRIOR, ElementReduction::Sum);
    assert!(total_over_adapters(&net, cost).is_none());
    net.first = of_elements(StdMap::Square, false, DType::F64);
    let one = host(cost(&net.first).unwrap());
    assert_eq!(host(total_over_adapters(&net, cost).unwrap()), one);
    let twice = total_over_adapters(&net, |layer| cost(layer).map(|kl| kl.mul_scalar(2.0)));
    assert_eq!(host(twice.unwrap())[0], 2.0 * one[0]);
}
