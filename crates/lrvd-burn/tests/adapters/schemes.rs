//! Every family under every scheme: the core's output for the same noise, and the slopes of that.

use crate::support::prelude::*;
use burn::tensor::FloatDType;
use lrvd_core::family::EPS_VARIANCE;

fn key() -> NoiseKey {
    NoiseKey::new(0x1234_5678_9abc).at_step(3)
}

#[rstest]
#[case(DType::F64, 1e-12)]
#[case(DType::F32, 5e-6)]
fn every_family_and_scheme_equals_the_core(#[case] dtype: DType, #[case] tolerance: f64) {
    for family in VariationalFamily::ALL {
        let layer = layer(&noisy(family), dtype);
        for scheme in SCHEMES {
            let (name, pass) = (format!("{family} {scheme:?}"), Pass::sampled(scheme, key()));
            let x = inputs(dtype);
            let out = layer.forward_with(x.clone(), &pass);
            assert_eq!(out.dims()[1..], [N / BATCH, D_OUTPUT]);
            let expected = reference(&layer, [BATCH, N], pass, 0);
            let gradients = check(&name, out, &leaves_with(x, &layer), tolerance, expected);
            let noise = layer_gradients(&layer, &gradients).split_off(2).concat();
            assert_eq!(noise.iter().any(|g| *g != 0.0), scheme != Scheme::Mean, "{name}");
        }
    }
}

#[test]
fn plain_adapters_are_their_mean_under_every_scheme() {
    for plain in [plain(), with_singular_values()] {
        let layer = layer(&plain, DType::F64);
        let delta = dense_update(&plain);
        let update = product(&host(inputs(DType::F64)), &delta, D_INPUT, D_OUTPUT);
        let mut bare = layer.clone();
        bare.detach();
        let base = host(bare.forward_with(inputs(DType::F64), &Pass::mean()));
        let mean = host(layer.forward_with(inputs(DType::F64), &Pass::mean()));
        close("mean", &mean, &plus(&base, &update), 1e-13);
        for scheme in SCHEMES.into_iter().chain([Scheme::FLIPOUT]) {
            let got = layer.forward_with(inputs(DType::F64), &Pass::sampled(scheme, key()));
            same(&format!("{scheme:?}"), &host(got), &mean);
        }
        let found = layer.delta().unwrap();
        assert_eq!(found.dims(), [D_INPUT, D_OUTPUT]);
        close("delta", &host(found), &delta, 1e-14);
        assert!(bare.delta().is_none());
    }
}

/// `c·Σ_k A[k,i]·E[k]·B[k,o]`.
fn dense_update(plain: &HostAdapter) -> Vec<f64> {
    let e = plain.e.clone().unwrap_or_else(|| vec![1.0; RANK]);
    let a = transposed(&plain.a, RANK, D_INPUT);
    let scaled = a.iter().enumerate().map(|(i, a)| plain.scaling * a * e[i % RANK]);
    product(&scaled.collect::<Vec<f64>>(), &plain.b, RANK, D_OUTPUT)
}

/// For every kind of adapter: plain, with singular values, and with each posterior.
#[rstest]
#[case(DType::F32, 1e-6)]
#[case(DType::F64, 1e-14)]
fn a_merged_layer_is_the_mean_forward(#[case] dtype: DType, #[case] tolerance: f64) {
    let posteriors = VariationalFamily::ALL.map(noisy);
    for adapter in [plain(), with_singular_values()].into_iter().chain(posteriors) {
        let layer = layer(&adapter, dtype);
        let expected = host(layer.forward_with(inputs(dtype), &Pass::mean()));
        let merged = layer.clone().merge();
        close("merged", &host(merged.forward(inputs(dtype))), &expected, tolerance);
        assert_eq!(merged.weight.val().dtype(), dtype);
        // The base is not the merged weight: the update is there.
        assert!(host(merged.weight.val()) != host(layer.weight.base()));
    }
    let bare = bare(dtype);
    same("bare", &host(bare.clone().merge().weight.val()), &host(bare.weight.base()));
}

#[test]
fn a_narrow_weight_takes_the_update_in_with_one_rounding() {
    let mut layer = layer(&plain(), DType::F32);
    let narrow = layer.weight.base().cast(FloatDType::BF16);
    let wide = narrow.clone().cast(FloatDType::F32) + layer.delta().unwrap();
    layer.set_weight(narrow);
    let merged = layer.merge().weight.val();
    assert_eq!(merged.dtype(), DType::BF16);
    same("merged", &host(merged), &host(wide.cast(FloatDType::BF16)));
}

/// The worked example of the specification, section 11: rank 2, widths 3 and 2, scaling 1.
mod worked_example {
    use super::*;

    const A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.02, -0.03];
    /// `[d_output, rank]` there, rank-major here.
    const B: [f64; 4] = [0.2, -0.4, -0.001, 0.002];
    const X: [f64; 6] = [1.0, 2.0, -1.0, 0.5, 0.0, 0.25];
    const E: [f64; 4] = [0.5, -1.0, 2.0, 0.25];
    const G: [f64; 4] = [1.0, 2.0, -1.0, 0.5];

    fn example(noise: HostNoise) -> AdaptedLinear {
        let (a, b, noise) = (A.to_vec(), B.to_vec(), Some(noise));
        let host =
            HostAdapter { rank: 2, d_input: 3, d_output: 2, a, b, e: None, noise, scaling: 1.0 };
        // A zero base, so that the output is the update.
        let weight = tensor(&[0.0; 6], [3, 2], DType::F64);
        let mut layer = AdaptedLinear::new(weight, None);
        layer.attach("example", adapter(&host, DType::F64), 2).unwrap();
        layer
    }

    fn additive() -> AdaptedLinear {
        example(host_noise(VariationalFamily::RankVariance, vec![-4.0, -3.0], Vec::new()))
    }

    fn multiplicative() -> AdaptedLinear {
        example(host_noise(VariationalFamily::NoiseToSignal, vec![-1.0, 0.5], Vec::new()))
    }

    /// A key whose four output normals are all far enough from 0 to divide by.
    fn key_and_eps(layer: &AdaptedLinear) -> (NoiseKey, Vec<f64>) {
        (0..100)
            .map(|step| {
                let key = NoiseKey::new(8).at_step(step);
                let of_layer = key.for_module(layer.noise_id()).on_stream(Stream::OUTPUT);
                (key, noise(of_layer, 4, DType::F64))
            })
            .find(|(_, eps)| eps.iter().all(|e| e.abs() > 0.5))
            .unwrap()
    }

    /// Gradients of A in the core's layout, of B and of the noise parameters.
    fn in_the_core(gradients: Vec<Vec<f64>>) -> [Vec<f64>; 3] {
        let [a, b, noise] = gradients.try_into().unwrap();
        [transposed(&a, 3, 2), b, noise]
    }

    /// Output, and the gradients of `<g, output>` for A, B, the noise parameters and x.
    fn run(layer: &AdaptedLinear, pass: &Pass, g: &[f64]) -> (Vec<f64>, [Vec<f64>; 4]) {
        let x = leaf(&X, [1, 2, 3], DType::F64);
        let out = layer.forward_with(x.clone(), pass);
        let gradients = (out.clone() * tensor(g, [1, 2, 2], DType::F64)).sum().backward();
        let [a, b, noise] = in_the_core(layer_gradients(layer, &gradients));
        (host(out), [a, b, noise, gradient(&x, &gradients)])
    }

    /// Variance, output and gradients for the example's own noise `E`.
    ///
    /// The layer draws its noise itself. The output is linear in it, and so is each gradient in
    /// (G, G∘noise), which turns three runs into the one with `E`.
    fn with_noise_e(
        layer: &AdaptedLinear,
        cross: CrossTerm,
    ) -> (Vec<f64>, Vec<f64>, [Vec<f64>; 4]) {
        let (key, eps) = key_and_eps(layer);
        let noisy = Pass::sampled(Scheme::MomentMatched(cross), key);
        let moved: Vec<f64> = (0..4).map(|i| G[i] * E[i] / eps[i]).collect();
        let (out, through_both) = run(layer, &noisy, &moved);
        let (mean, of_moved) = run(layer, &Pass::mean(), &moved);
        let (_, of_g) = run(layer, &Pass::mean(), &G);
        let std: Vec<f64> = (0..4).map(|i| (out[i] - mean[i]) / eps[i]).collect();
        let variance = std.iter().map(|s| s * s - EPS_VARIANCE).collect();
        let y = (0..4).map(|i| mean[i] + E[i] * std[i]).collect();
        let gradients = [0, 1, 2, 3].map(|p| {
            let all = through_both[p].iter().zip(&of_moved[p]).zip(&of_g[p]);
            all.map(|((both, moved), g)| both - moved + g).collect()
        });
        (variance, y, gradients)
    }

    /// The table has ten significant digits.
    const DIGITS: f64 = 2e-9;

    /// Variance with and without the cross term, output, and gradients in the example's order.
    struct Expected {
        v: [f64; 4],
        without_cross: [f64; 4],
        y: [f64; 4],
        a: [[f64; 3]; 2],
        b: [f64; 4],
        noise: [f64; 2],
        x: [[f64; 3]; 2],
    }

    const ADDITIVE: Expected = Expected {
        v: [0.02188615998, 0.03507431615, 0.002557509994, 0.003244393128],
        without_cross: [0.005000871151, 0.01818902732, 0.001678067868, 0.002364951002],
        y: [0.04888987559, -0.137121409, 0.1573963578, -0.09826508443],
        a: [
            [-0.8794964446, -1.166576879, 0.4351844368],
            [-0.02274848177, -0.05214621638, 0.0277354214],
        ],
        b: [-0.3772384287, 0.3550283332, 0.08210569187, 0.1524381043],
        noise: [-0.1366902656, -0.1386687962],
        x: [
            [-0.3412679634, 0.04657462247, -0.02276584907],
            [-0.3599733534, 0.1482369877, -0.1061673993],
        ],
    };

    const MULTIPLICATIVE: Expected = Expected {
        v: [0.01060875025, 0.04243500099, 0.002441687546, 0.009766750183],
        without_cross: [0.007817452963, 0.03126981185, 0.002098062582, 0.008392250329],
        y: [0.02641941807, -0.1558375995, 0.1550795721, -0.08779826992],
        a: [
            [-1.241883638, -0.391001776, 0.3097846794],
            [0.003993720376, 0.00597916437, -0.002490739656],
        ],
        b: [-0.642886947, 0.8897272515, 0.08240843715, 0.158325559],
        noise: [-0.2769943358, -5.026513568e-07],
        x: [
            [-0.4397150956, 0.04893501364, -0.05658933598],
            [-0.3623735722, 0.1366829225, -0.07116611542],
        ],
    };

    #[rstest]
    #[case::additive(additive(), ADDITIVE)]
    #[case::multiplicative(multiplicative(), MULTIPLICATIVE)]
    fn moment_matched_passes(#[case] layer: AdaptedLinear, #[case] expected: Expected) {
        let (v, y, [a, b, noise, x]) = with_noise_e(&layer, CrossTerm::Exact);
        close("V", &v, &expected.v, DIGITS);
        close("Y", &y, &expected.y, DIGITS);
        close("dA", &a, expected.a.as_flattened(), DIGITS);
        close("dB", &b, &expected.b, DIGITS);
        close("dl", &noise, &expected.noise, DIGITS);
        close("dX", &x, expected.x.as_flattened(), DIGITS);
        let (v, _, _) = with_noise_e(&layer, CrossTerm::Omitted);
        close("V without the cross term", &v, &expected.without_cross, DIGITS);
    }

    #[test]
    fn divergences() {
        let kl = |layer: &AdaptedLinear, reduction| {
            of(layer).kl(Prior::LogUniform, reduction).unwrap().unwrap()
        };
        let layer = additive();
        let element = kl(&layer, KlReduction::Element);
        close("KL", &host(element.clone()), &[5.7781603806], DIGITS);
        let [a, b, l] = in_the_core(layer_gradients(&layer, &element.backward()));
        let of_a =
            [[2.256503429, -4.983053462, 5.142182228], [0.2032882099, 0.4096449137, -0.6166451485]];
        close("dKL/dA", &a, of_a.as_flattened(), DIGITS);
        let of_b = [5.517257614, -3.01613563, -0.02011538647, 0.04028626615];
        close("dKL/dB", &b, &of_b, DIGITS);
        close("dKL/dl", &l, &[-2.66334732, -0.0144134195], DIGITS);
        let layer = multiplicative();
        close("KL", &host(kl(&layer, KlReduction::Element)), &[5.9709441013], DIGITS);
        let per_rank = host(kl(&layer, KlReduction::PerRank));
        close("KL per rank", &per_rank, &[0.913872285 + 0.2803165352], DIGITS);
    }
}

#[test]
fn a_clamped_log_variance_is_used_clamped_and_gets_no_gradient() {
    let [wide, clamped] = [vec![-25.0, 2.0, 3.5, -20.0], vec![-20.0, 2.0, 2.0, -20.0]].map(|v| {
        let noise = Some(host_noise(VariationalFamily::RankVariance, v, Vec::new()));
        layer(&HostAdapter { noise, ..plain() }, DType::F64)
    });
    for scheme in [
        Scheme::Weights(DrawPer::Sequence),
        Scheme::MomentMatched(CrossTerm::Exact),
        Scheme::Nested,
    ] {
        let pass = Pass::sampled(scheme, key());
        let run = |layer: &AdaptedLinear| layer.forward_with(inputs(DType::F64), &pass);
        let out = run(&wide);
        same(&format!("{scheme:?}"), &host(out.clone()), &host(run(&clamped)));
        let slope = layer_gradients(&wide, &out.square().sum().backward()).remove(2);
        // The ends of the range pass the gradient, what is beyond does not.
        assert_eq!([slope[0], slope[2]], [0.0; 2], "{scheme:?}");
        assert!(slope[1] != 0.0 && slope[3] != 0.0, "{scheme:?}: {slope:?}");
    }
}

#[test]
fn a_large_noise_to_signal_ratio_is_finite_in_single_precision() {
    let noise = Some(host_noise(VariationalFamily::NoiseToSignal, vec![50.0; RANK], Vec::new()));
    let layer = layer(&HostAdapter { noise, ..plain() }, DType::F32);
    for scheme in SCHEMES {
        let out = layer.forward_with(inputs(DType::F32), &Pass::sampled(scheme, key()));
        assert!(host(out).iter().all(|v| v.is_finite()), "{scheme:?}");
    }
}

#[test]
fn reading_back_keeps_every_entry_in_its_place() {
    for family in VariationalFamily::ALL {
        let expected = noisy(family);
        assert!(HostAdapter::read(of(&layer(&expected, DType::F64))) == expected, "{family}");
    }
    let plain = with_singular_values();
    let mut read = adapter(&plain, DType::F64);
    assert!(HostAdapter::read(&read) == plain);
    // Frozen parameters are read alike.
    read.a = Param::from_tensor(read.a.val().inner());
    assert!(HostAdapter::read(&read).a == plain.a);
}
