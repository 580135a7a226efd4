//! Every family under every scheme: the core's output for the same noise, and the slopes of that.

use crate::support::reference::{noise, pieces, posterior_gradient, reference};
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, SCHEMES, SLOPES, TOKENS, adapter, close, gradient, host,
    host_adapter, layer, leaf, numbers, of, tensor,
};
use burn::module::Param;
use burn::tensor::DType;
use lrvd_burn::adapter::{AdaptedLinear, Prior};
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::family::{EPS_VARIANCE, VariationalFamily};
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream};
use lrvd_core::prune::{StatisticOptions, rank_statistic};

fn key() -> NoiseKey {
    NoiseKey::new(0x1234_5678_9abc).at_step(3)
}

/// Output and gradients of one forward pass against the core.
fn check(layer: &AdaptedLinear, pass: &Pass, dtype: DType, tolerance: f64) {
    let n = BATCH * TOKENS;
    let x = leaf(&numbers(1, n * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype);
    let weights = tensor(&numbers(2, n * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
    let out = layer.forward_with(x.clone(), pass);
    assert_eq!(out.dims(), [BATCH, TOKENS, D_OUTPUT]);
    let gradients = (out.clone() * weights.clone()).sum().backward();

    let expected = reference(layer, &host(x.clone()), BATCH, &host(weights), pass, 0);
    let name = format!(
        "{:?} {:?} {dtype:?}",
        of(layer).posterior().map(lrvd_burn::adapter::Posterior::family),
        pass.scheme
    );
    close(&format!("{name} output"), &host(out), &expected.out, tolerance);
    let tolerance = tolerance.max(SLOPES);
    close(&format!("{name} x"), &gradient(&x, &gradients), &expected.x, tolerance);
    let got = posterior_gradient(of(layer), &gradients);
    for ((piece, got), (_, expected)) in pieces(&got).into_iter().zip(pieces(&expected.posterior)) {
        close(&format!("{name} {piece}"), got, expected, tolerance);
    }
    if pass.scheme != Scheme::Mean {
        let moved = pieces(&got).into_iter().skip(2).any(|(_, g)| g.iter().any(|g| *g != 0.0));
        assert!(moved, "{name}: the noise parameters get no gradient");
    }
}

#[test]
fn double_precision_equals_the_core() {
    for family in VariationalFamily::ALL {
        let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
        for scheme in SCHEMES {
            check(&layer, &Pass::sampled(scheme, key()), DType::F64, 1e-12);
        }
    }
}

#[test]
fn single_precision_equals_the_core() {
    for family in VariationalFamily::ALL {
        let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F32);
        for scheme in SCHEMES {
            check(&layer, &Pass::sampled(scheme, key()), DType::F32, 5e-6);
        }
    }
}

#[test]
fn plain_adapters_are_their_mean_under_every_scheme() {
    let mut plain = host_adapter(None, 10);
    let x = tensor(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F64);
    for e in [None, Some(vec![0.5, -2.0, 0.25, 1.5])] {
        plain.e = e;
        let layer = layer("net.first", &plain, DType::F64);
        let scaled = |k: usize| plain.scaling * plain.e.as_ref().map_or(1.0, |e| e[k]);
        // c·Σ_k (Σ_i x_i A_ki) E_k B_ko by hand.
        let update: Vec<f64> = host(x.clone())
            .chunks(D_INPUT)
            .flat_map(|x| {
                let s: Vec<f64> = plain
                    .a
                    .chunks(D_INPUT)
                    .enumerate()
                    .map(|(k, a)| scaled(k) * a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>())
                    .collect();
                let b = &plain.b;
                (0..D_OUTPUT)
                    .map(|o| s.iter().enumerate().map(|(k, s)| s * b[k * D_OUTPUT + o]).sum())
                    .collect::<Vec<f64>>()
            })
            .collect();
        let mut bare = layer.clone();
        bare.detach();
        let base = host(bare.forward_with(x.clone(), &Pass::mean()));
        let expected: Vec<f64> = base.iter().zip(&update).map(|(b, u)| b + u).collect();
        for scheme in SCHEMES {
            let got = host(layer.forward_with(x.clone(), &Pass::sampled(scheme, key())));
            close("plain", &got, &expected, 1e-13);
        }
    }
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
        let host = HostAdapter {
            rank: 2,
            d_input: 3,
            d_output: 2,
            a: A.to_vec(),
            b: B.to_vec(),
            e: None,
            noise: Some(noise),
            scaling: 1.0,
        };
        // A zero base, so that the output is the update.
        let weight = tensor(&[0.0; 6], [3, 2], DType::F64);
        let mut layer = AdaptedLinear::new(weight, None);
        layer.attach("example", adapter(&host, DType::F64), 2).unwrap();
        layer
    }

    fn additive() -> AdaptedLinear {
        example(HostNoise::RankVariance(vec![-4.0, -3.0]))
    }

    fn multiplicative() -> AdaptedLinear {
        example(HostNoise::NoiseToSignal(vec![-1.0, 0.5]))
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

    /// Output, and the gradients of `<g, output>` for A, B, the noise parameters and x.
    fn run(layer: &AdaptedLinear, pass: &Pass, g: &[f64]) -> (Vec<f64>, [Vec<f64>; 4]) {
        let x = leaf(&X, [1, 2, 3], DType::F64);
        let out = layer.forward_with(x.clone(), pass);
        let gradients = (out.clone() * tensor(g, [1, 2, 2], DType::F64)).sum().backward();
        let posterior = posterior_gradient(of(layer), &gradients);
        let parameters = posterior.noise[0].clone();
        let all = [posterior.a_mean, posterior.b_mean, parameters, gradient(&x, &gradients)];
        (host(out), all)
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

    #[test]
    fn the_additive_family() {
        let layer = additive();
        let (v, y, [a, b, l, x]) = with_noise_e(&layer, CrossTerm::Exact);
        close("V", &v, &[0.02188615998, 0.03507431615, 0.002557509994, 0.003244393128], DIGITS);
        close("Y", &y, &[0.04888987559, -0.137121409, 0.1573963578, -0.09826508443], DIGITS);
        let expected = [
            -0.8794964446,
            -1.166576879,
            0.4351844368,
            -0.02274848177,
            -0.05214621638,
            0.0277354214,
        ];
        close("dA", &a, &expected, DIGITS);
        close("dB", &b, &[-0.3772384287, 0.3550283332, 0.08210569187, 0.1524381043], DIGITS);
        close("dl", &l, &[-0.1366902656, -0.1386687962], DIGITS);
        let expected = [
            -0.3412679634,
            0.04657462247,
            -0.02276584907,
            -0.3599733534,
            0.1482369877,
            -0.1061673993,
        ];
        close("dX", &x, &expected, DIGITS);
        let (v, _, _) = with_noise_e(&layer, CrossTerm::Omitted);
        let expected = [0.005000871151, 0.01818902732, 0.001678067868, 0.002364951002];
        close("V without the cross term", &v, &expected, DIGITS);
    }

    #[test]
    fn the_multiplicative_family() {
        let layer = multiplicative();
        let (v, y, [a, b, l, x]) = with_noise_e(&layer, CrossTerm::Exact);
        close("V", &v, &[0.01060875025, 0.04243500099, 0.002441687546, 0.009766750183], DIGITS);
        close("Y", &y, &[0.02641941807, -0.1558375995, 0.1550795721, -0.08779826992], DIGITS);
        let expected = [
            -1.241883638,
            -0.391001776,
            0.3097846794,
            0.003993720376,
            0.00597916437,
            -0.002490739656,
        ];
        close("dA", &a, &expected, DIGITS);
        close("dB", &b, &[-0.642886947, 0.8897272515, 0.08240843715, 0.158325559], DIGITS);
        close("da", &l, &[-0.2769943358, -5.026513568e-07], DIGITS);
        let expected = [
            -0.4397150956,
            0.04893501364,
            -0.05658933598,
            -0.3623735722,
            0.1366829225,
            -0.07116611542,
        ];
        close("dX", &x, &expected, DIGITS);
        let (v, _, _) = with_noise_e(&layer, CrossTerm::Omitted);
        let expected = [0.007817452963, 0.03126981185, 0.002098062582, 0.008392250329];
        close("V without the cross term", &v, &expected, DIGITS);
    }

    #[test]
    fn divergences() {
        let layer = additive();
        let kl = of(&layer).kl(Prior::LogUniform, KlReduction::Element).unwrap().unwrap();
        close("KL", &host(kl.clone()), &[5.7781603806], DIGITS);
        let g = posterior_gradient(of(&layer), &kl.backward());
        let expected =
            [2.256503429, -4.983053462, 5.142182228, 0.2032882099, 0.4096449137, -0.6166451485];
        close("dKL/dA", &g.a_mean, &expected, DIGITS);
        let expected = [5.517257614, -3.01613563, -0.02011538647, 0.04028626615];
        close("dKL/dB", &g.b_mean, &expected, DIGITS);
        close("dKL/dl", &g.noise[0], &[-2.66334732, -0.0144134195], DIGITS);
        let layer = multiplicative();
        let kl = of(&layer).kl(Prior::LogUniform, KlReduction::Element).unwrap().unwrap();
        close("KL", &host(kl), &[5.9709441013], DIGITS);
        let kl = of(&layer).kl(Prior::LogUniform, KlReduction::PerRank).unwrap().unwrap();
        close("KL per rank", &host(kl), &[0.913872285 + 0.2803165352], DIGITS);
    }

    #[test]
    fn prune_statistic() {
        let host = HostAdapter::read(of(&additive()));
        let posterior = host.posterior().unwrap().unwrap();
        let got = rank_statistic(&posterior, StatisticOptions::default()).unwrap();
        close("log alpha", &got, &[-1.697415018, 7.125370164], DIGITS);
    }
}

#[test]
fn a_clamped_log_variance_is_used_clamped_and_gets_no_gradient() {
    let wide = HostNoise::RankVariance(vec![-25.0, 2.0, 3.5, -20.0]);
    let clamped = HostNoise::RankVariance(vec![-20.0, 2.0, 2.0, -20.0]);
    let [wide, clamped] = [wide, clamped].map(|noise| {
        let host = HostAdapter { noise: Some(noise), ..host_adapter(None, 10) };
        layer("net.first", &host, DType::F64)
    });
    let x = tensor(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F64);
    for scheme in [
        Scheme::Weights(DrawPer::Sequence),
        Scheme::MomentMatched(CrossTerm::Exact),
        Scheme::Nested,
    ] {
        let pass = Pass::sampled(scheme, key());
        let out = wide.forward_with(x.clone(), &pass);
        assert_eq!(host(out.clone()), host(clamped.forward_with(x.clone(), &pass)), "{scheme:?}");
        let gradients = out.square().sum().backward();
        let slope = posterior_gradient(of(&wide), &gradients).noise.remove(0);
        // The ends of the range pass the gradient, what lies beyond does not.
        assert_eq!([slope[0], slope[2]], [0.0; 2], "{scheme:?}");
        assert!(slope[1] != 0.0 && slope[3] != 0.0, "{scheme:?}: {slope:?}");
    }
}

#[test]
fn reading_back_keeps_every_entry_in_its_place() {
    for family in VariationalFamily::ALL {
        let expected = host_adapter(Some(family), 10);
        let read = HostAdapter::read(of(&layer("net.first", &expected, DType::F64)));
        assert_eq!(read, expected);
    }
    let mut plain = host_adapter(None, 10);
    plain.e = Some(numbers(3, 4));
    let mut read = adapter(&plain, DType::F64);
    assert_eq!(HostAdapter::read(&read), plain);
    // Frozen parameters are read alike.
    read.a = Param::from_tensor(read.a.val().inner());
    assert_eq!(HostAdapter::read(&read).a, plain.a);
}
