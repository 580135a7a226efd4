//! Flipout: the pass by loops, its distribution, and its keys.

use crate::support::prelude::*;
use lrvd_core::moments::moments;
use lrvd_core::noise::fill_uniform;

fn key() -> NoiseKey {
    NoiseKey::new(0x55aa).at_step(6)
}

fn pass() -> Pass {
    Pass::sampled(Scheme::FLIPOUT, key())
}

/// What the layer draws for its use `use_index`.
fn flips(layer: &AdaptedLinear, use_index: u32, dtype: DType) -> Flips {
    let key = key().for_module(layer.noise_id());
    let eps = |stream, n| noise(key.on_stream(stream), n, dtype);
    let sign = |stream, n| {
        let mut values = vec![0.0f32; n];
        fill_uniform(key.on_stream(stream).with_use(use_index), 0, &mut values);
        values.into_iter().map(|u| if u >= 0.5 { 1.0 } else { -1.0 }).collect()
    };
    Flips {
        eps: [eps(Stream::WEIGHT_A, D_INPUT * RANK), eps(Stream::WEIGHT_B, RANK * D_OUTPUT)],
        input_sign: [
            sign(AdapterStream::FLIP_A_INPUT, N * D_INPUT),
            sign(AdapterStream::FLIP_B_INPUT, N * RANK),
        ],
        output_sign: [
            sign(AdapterStream::FLIP_A_OUTPUT, N * RANK),
            sign(AdapterStream::FLIP_B_OUTPUT, N * D_OUTPUT),
        ],
    }
}

#[rstest]
fn noise_on_a_equals_the_loops(
    #[values(0, 1)] use_index: u32,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 5e-6 };
    let layer = extended(element_noise(StdMap::Square, false, dtype), dtype);
    let values = numbers(1, N * D_INPUT);
    let (x, out) = if use_index == 0 {
        let x = leaf(&values, [BATCH, TOKENS, D_INPUT], dtype);
        (x.clone(), layer.forward_with(x, &pass()))
    } else {
        let x = leaf(&values, [1, N, D_INPUT], dtype);
        let rows = x.clone().squeeze_dim::<2>(0);
        (x, layer.prepare(&pass(), BATCH).forward_shared(rows))
    };
    let flips = flips(&layer, use_index, dtype);
    check("noise on A", out, &leaves_with(x, &layer), tolerance, |leaves| {
        let [x, a, b, rho] = leaves else { unreachable!("noise on A alone") };
        let std: Vec<f64> = rho.iter().map(|&rho| StdMap::Square.value(rho)).collect();
        plus(&base_of(&layer, x), &flipout(SIZES, [x, a, b], [&std, &[]], &flips))
    });
}

/// The pass of a layer with the given deviations of A and B.
fn by_hand(layer: &AdaptedLinear, std_a: &[f64], std_b: &[f64]) -> Vec<f64> {
    let x = numbers(1, N * D_INPUT);
    let (a, b) = (host(of(layer).a.val()), host(of(layer).b.val()));
    let flips = flips(layer, 0, DType::F64);
    plus(&base_of(layer, &x), &flipout(SIZES, [&x, &a, &b], [std_a, std_b], &flips))
}

#[test]
fn noise_on_both_factors_is_turned_twice() {
    let layer = extended(element_noise(StdMap::Softplus, true, DType::F64), DType::F64);
    let (std_a, std_b) = gaussian(&layer).deviations();
    let out = layer.forward_with(inputs(DType::F64), &pass());
    let expected = by_hand(&layer, &host(std_a), &host(std_b.unwrap()));
    close("both", &host(out.clone()), &expected, 1e-13);
    let gradients = layer_gradients(&layer, &out.square().sum().backward());
    assert!(gradients[2..].iter().flatten().all(|g| *g != 0.0));
}

#[test]
fn every_posterior_family_is_turned_as_well() {
    for family in VariationalFamily::ALL {
        let layer = layer(&noisy(family), DType::F64);
        let adapter = of(&layer);
        let (a, b) = (adapter.a.val(), adapter.b.val());
        let (std_a, std_b) = adapter.posterior().unwrap().deviations(&a, &b);
        let std_a = host(std_a + a.zeros_like());
        let std_b = std_b.map(|std| host(std + b.zeros_like())).unwrap_or_default();
        let out = layer.forward_with(inputs(DType::F64), &pass());
        let expected = by_hand(&layer, &std_a, &std_b);
        close(&format!("{family}"), &host(out.clone()), &expected, 1e-12);
        let gradients = layer_gradients(&layer, &out.square().sum().backward());
        assert!(gradients[2].iter().any(|g| *g != 0.0), "{family}: no gradient for the noise");
    }
}

#[test]
fn tokens_have_the_distribution_of_the_weights_and_uncorrelated_noise() {
    const DRAWS: u32 = 4000;
    // The same token twice, so that one draw without signs would give the same noise twice.
    let row = numbers(1, D_INPUT);
    let x = tensor(&row.repeat(2), [1, 2, D_INPUT], DType::F64);
    for family in [VariationalFamily::RankVariance, VariationalFamily::ElementVariance] {
        let layer = layer(&noisy(family), DType::F64);
        let adapter = HostAdapter::read(of(&layer));
        let exact = moments(&adapter.posterior().unwrap().unwrap(), &row, CrossTerm::Exact);
        let (exact, base) = (exact.unwrap(), base_of(&layer, &row));
        // Residuals by draw, token and output.
        let residuals: Vec<Vec<f64>> = (0..DRAWS)
            .map(|draw| {
                let pass = Pass::sampled(Scheme::FLIPOUT, NoiseKey::new(4).at_step(draw));
                let out = host(layer.forward_with(x.clone(), &pass));
                let centre = |o: usize| base[o] + adapter.scaling * exact.mean[o];
                out.iter().enumerate().map(|(i, y)| y - centre(i % D_OUTPUT)).collect()
            })
            .collect();
        for o in 0..D_OUTPUT {
            let variance = adapter.scaling.powi(2) * exact.variance[o];
            for token in [0, D_OUTPUT] {
                let each = residuals.iter().map(|r| r[token + o]);
                within(&format!("{family} mean {o}"), each.clone(), 0.0);
                within(&format!("{family} variance {o}"), each.map(|d| d * d), variance);
            }
            let products = residuals.iter().map(|r| r[o] * r[D_OUTPUT + o]);
            within(&format!("{family} covariance of tokens {o}"), products, 0.0);
        }
    }
}

#[test]
fn signs_are_the_only_difference_to_a_draw_per_batch() {
    // With one input and one rank a token's sign pair either keeps or turns the whole noise.
    let HostAdapter { mut a, mut b, .. } = plain();
    a.truncate(1);
    b.truncate(D_OUTPUT);
    let mut layer = layer(&HostAdapter { rank: 1, d_input: 1, a, b, ..plain() }, DType::F64);
    let noise = ElementGaussian::new(StdMap::Square, parameter(&[0.7], [1, 1], DType::F64), None);
    layer.extend(Some(Extension::Gaussian(noise))).unwrap();
    let x = tensor(&[1.0; 8], [1, 8, 1], DType::F64);
    let [mean, drawn, turned] = [Scheme::Mean, Scheme::Weights(DrawPer::Batch), Scheme::FLIPOUT]
        .map(|scheme| host(layer.forward_with(x.clone(), &Pass::sampled(scheme, key()))));
    let mut seen = [false; 2];
    for i in 0..8 * D_OUTPUT {
        let (with, against) = (drawn[i], 2.0 * mean[i] - drawn[i]);
        let kept = (turned[i] - with).abs() < 1e-12;
        assert!(kept || (turned[i] - against).abs() < 1e-12, "{i}");
        seen[usize::from(kept)] = true;
    }
    assert_eq!(seen, [true; 2], "eight tokens share a sign");
}

#[test]
fn tokens_and_shared_rows_have_one_draw_and_other_signs() {
    let noisy = extended(element_noise(StdMap::Square, false, DType::F32), DType::F32);
    let pass = pass();
    let prepared = noisy.prepare(&pass, 1);
    let rows = tensor(&numbers(1, N * D_INPUT), [N, D_INPUT], DType::F32);
    let tokens = host(prepared.forward::<3>(rows.clone().unsqueeze_dim(0)));
    assert!(tokens != host(prepared.forward_shared(rows)));
}
