//! Divergences of adapters with noise: the core's values and their slopes, in single precision parameters too.

use crate::support::net::Net;
use crate::support::noisy::gaussian;
use crate::support::reference::noise;
use crate::support::{
    D_INPUT, D_OUTPUT, RANK, close, close_to_slopes, gradient, host, host_adapter, layer, numbers,
    of, parameter,
};
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, ElementGaussian, Extension, ScaleGaussian};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::bayes_by_backprop::{element_kl, sampled_element_kl};
use lrvd_core::baselines::{ElementReduction, KlDirection, ScaleMixture, StdMap, scala_bl_kl};
use lrvd_core::noise::{NoiseKey, Stream};

const PRIOR: f64 = 0.2;
const REDUCTIONS: [ElementReduction; 2] = [ElementReduction::Sum, ElementReduction::Mean];
/// f64, then f32: the parameters are rounded, the sums are not.
const DTYPES: [(DType, f64); 2] = [(DType::F64, 1e-12), (DType::F32, 1e-6)];

/// Deviations of every size, none zero.
fn extended(map: StdMap, both: bool, dtype: DType) -> AdaptedLinear {
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
    let mut layer = layer("net.first", &host_adapter(None, 10), dtype);
    layer.extend(Some(Extension::Gaussian(noise))).unwrap();
    layer
}

fn widths(map: StdMap, rho: &[f64]) -> Vec<f64> {
    rho.iter().map(|&rho| map.value(rho)).collect()
}

/// Mean, noise parameter and noise stream of the random factors, in memory order.
fn factors(layer: &AdaptedLinear) -> Vec<(Tensor<2>, Tensor<2>, u32)> {
    let noise = gaussian(layer);
    let mut all = vec![(of(layer).a.val(), noise.a.val(), Stream::WEIGHT_A)];
    if let Some(b) = &noise.b {
        all.push((of(layer).b.val(), b.val(), Stream::WEIGHT_B));
    }
    all
}

#[test]
fn the_closed_form_equals_the_core() {
    for (dtype, tolerance) in DTYPES {
        for map in StdMap::ALL {
            for both in [false, true] {
                for reduction in REDUCTIONS {
                    let layer = extended(map, both, dtype);
                    let kl = layer.kl_elements(PRIOR, reduction).unwrap();
                    assert_eq!(kl.dtype(), dtype);
                    let gradients = kl.clone().backward();
                    let mut total = 0.0;
                    for (mean, rho, _) in factors(&layer) {
                        let (m, r) = (host(mean.clone()), host(rho.clone()));
                        let value = |leaves: &[Vec<f64>]| {
                            let std = widths(map, &leaves[1]);
                            element_kl(&leaves[0], &std, PRIOR, reduction).unwrap()
                        };
                        let leaves = [m, r];
                        total += value(&leaves);
                        let name = format!("{map:?} {reduction:?} {dtype:?}");
                        let found = [
                            ("mean", gradient(&mean, &gradients)),
                            ("rho", gradient(&rho, &gradients)),
                        ];
                        close_to_slopes(&name, &found, &leaves, tolerance, value);
                    }
                    close(&format!("{map:?} {dtype:?}"), &host(kl), &[total], tolerance);
                    if !both {
                        let b = of(&layer).b.val();
                        assert!(b.grad(&gradients).is_none(), "B gets a gradient");
                    }
                }
            }
        }
    }
}

#[test]
fn the_sampled_form_equals_the_core_for_the_draw_of_the_pass() {
    let key = NoiseKey::new(12).at_step(5);
    for (dtype, tolerance) in DTYPES {
        for map in StdMap::ALL {
            for weight in [0.0, 0.25, 1.0] {
                let prior = ScaleMixture::new(weight, 1.0, 0.1).unwrap();
                let layer = extended(map, true, dtype);
                let reduction = ElementReduction::Sum;
                let pass = Pass::sampled(Scheme::Weights(DrawPer::Batch), key);
                let kl = layer.kl_mixture(&pass, &prior, reduction).unwrap();
                let gradients = kl.clone().backward();
                let mut total = 0.0;
                let name = format!("{map:?} {weight} {dtype:?}");
                for (mean, rho, stream) in factors(&layer) {
                    let (m, r) = (host(mean.clone()), host(rho.clone()));
                    let stream = key.for_module(layer.noise_id()).on_stream(stream);
                    let eps = noise(stream, m.len(), dtype);
                    let value = |leaves: &[Vec<f64>]| {
                        let std = widths(map, &leaves[1]);
                        sampled_element_kl(&leaves[0], &std, &eps, &prior, reduction).unwrap()
                    };
                    let leaves = [m, r];
                    total += value(&leaves);
                    let found = [
                        ("mean", gradient(&mean, &gradients)),
                        ("rho", gradient(&rho, &gradients)),
                    ];
                    close_to_slopes(&name, &found, &leaves, tolerance, value);
                }
                close(&name, &host(kl), &[total], tolerance);
                // Flipout turns the same draw; another step is another draw.
                let flipped = Pass::sampled(Scheme::FLIPOUT, key);
                let again = layer.kl_mixture(&flipped, &prior, reduction).unwrap();
                assert_eq!(host(again), host(layer.kl_mixture(&pass, &prior, reduction).unwrap()));
                let other = Pass::sampled(Scheme::FLIPOUT, key.at_step(6));
                let other = layer.kl_mixture(&other, &prior, reduction).unwrap();
                assert!((host(other)[0] - total).abs() > 1e-6);
            }
        }
    }
}

#[test]
fn a_mixture_of_one_width_averages_to_the_closed_form() {
    const DRAWS: u32 = 3000;
    let layer = extended(StdMap::Softplus, false, DType::F64);
    let prior = ScaleMixture::new(0.5, 0.7, 0.7).unwrap();
    let values: Vec<f64> = (0..DRAWS)
        .map(|step| {
            let pass = Pass::sampled(Scheme::FLIPOUT, NoiseKey::new(3).at_step(step));
            host(layer.kl_mixture(&pass, &prior, ElementReduction::Sum).unwrap())[0]
        })
        .collect();
    let n = f64::from(DRAWS);
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let expected = host(layer.kl_elements(0.7, ElementReduction::Sum).unwrap())[0];
    let bound = 5.0 * (variance / n).sqrt();
    assert!((mean - expected).abs() < bound, "{mean}, expected {expected} ± {bound}");
}

#[test]
fn the_divergence_of_scales_equals_the_core() {
    for (dtype, tolerance) in DTYPES {
        for direction in [KlDirection::PosteriorFromPrior, KlDirection::PriorFromPosterior] {
            let mut layer = layer("net.first", &host_adapter(None, 10), dtype);
            let scales = ScaleGaussian {
                log_mean: parameter(&numbers(33, RANK), [RANK], dtype),
                log_std: parameter(&[-3.0, 0.0, -0.4, 0.9], [RANK], dtype),
            };
            let (log_mean, log_std) = (scales.log_mean.val(), scales.log_std.val());
            layer.extend(Some(Extension::Scale(scales))).unwrap();
            let kl = layer.kl_scale(direction).unwrap();
            let gradients = kl.clone().backward();
            let leaves = [host(log_mean.clone()), host(log_std.clone())];
            let value =
                |leaves: &[Vec<f64>]| scala_bl_kl(&leaves[0], &leaves[1], direction).unwrap();
            let name = format!("{direction:?} {dtype:?}");
            close(&name, &host(kl), &[value(&leaves)], tolerance);
            let found = [
                ("mean", gradient(&log_mean, &gradients)),
                ("std", gradient(&log_std, &gradients)),
            ];
            close_to_slopes(&name, &found, &leaves, tolerance, value);
            assert!(layer.kl_elements(PRIOR, ElementReduction::Sum).is_none());
        }
    }
}

#[test]
fn a_narrow_posterior_keeps_its_digits_in_single_precision() {
    // BLoB's start: 100 000 entries with σ near 0.002, whose shares of the sum are alike.
    let n = 20_000;
    let (d_input, rank) = (n / 4, 4);
    let g: Vec<f64> = numbers(5, n).iter().map(|v| 0.0425 + 0.007 * v).collect();
    let host_of = lrvd_burn::host::HostAdapter {
        d_input,
        a: numbers(6, n).iter().map(|v| 0.01 * v).collect(),
        ..host_adapter(None, 10)
    };
    let mut wide = layer("net.first", &host_of, DType::F32);
    let noise = parameter(&g, [d_input, rank], DType::F32);
    let noise = ElementGaussian::new(StdMap::Square, noise, None);
    wide.extend(Some(Extension::Gaussian(noise))).unwrap();
    let kl = host(wide.kl_elements(PRIOR, ElementReduction::Sum).unwrap())[0];
    let (m, r) = (host(of(&wide).a.val()), host(gaussian(&wide).a.val()));
    let std = widths(StdMap::Square, &r);
    let expected = element_kl(&m, &std, PRIOR, ElementReduction::Sum).unwrap();
    // One rounding to single precision, at the end.
    assert!((kl / expected - 1.0).abs() < 6.1e-8, "{kl}, expected {expected}");
}

#[test]
fn costs_add_up_over_a_model() {
    let mut net = Net::new([Some(&host_adapter(None, 10)), None], DType::F64);
    let cost = |layer: &AdaptedLinear| layer.kl_elements(PRIOR, ElementReduction::Sum);
    assert!(total_over_adapters(&net, cost).is_none());
    net.first = extended(StdMap::Square, false, DType::F64);
    let one = host(cost(&net.first).unwrap());
    assert_eq!(host(total_over_adapters(&net, cost).unwrap()), one);
    let twice = total_over_adapters(&net, |layer| cost(layer).map(|kl| kl.mul_scalar(2.0)));
    assert_eq!(host(twice.unwrap())[0], 2.0 * one[0]);
}
