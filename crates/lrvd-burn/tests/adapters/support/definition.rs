//! Passes by loops, as functions of a layer's leaves in memory order: A is `[d_input, rank]`, B `[rank, d_output]`.
//!
//! `pytorch.rs` compares those with noise on weights with PyTorch; divergences of noise on entries follow.

use lrvd_core::baselines::ScaleMixture;
use lrvd_core::noise::{fill_normal, fill_normal_f64};
use lrvd_core::posterior::EPS_VARIANCE;
use lrvd_core::special::softplus;

use super::activation_noise::{moment_matched, nested};
use super::prelude::*;

/// Probability of the tests of dropout.
pub(crate) const RATE: f64 = 0.4;

/// The standard normals of `key` as a tensor of `dtype` holds them.
pub(crate) fn noise(key: NoiseKey, n: usize, dtype: DType) -> Vec<f64> {
    if dtype == DType::F64 {
        let mut values = vec![0.0; n];
        fill_normal_f64(key, 0, &mut values);
        return values;
    }
    let mut values = vec![0.0f32; n];
    fill_normal(key, 0, &mut values);
    values.into_iter().map(f64::from).collect()
}

/// The adapter with other values of A, B and the noise parameters.
pub(crate) fn with_leaves(adapter: &HostAdapter, leaves: &[Vec<f64>]) -> HostAdapter {
    let of_a = |values: &[f64]| transpose(values, adapter.d_input, adapter.rank);
    let family = adapter.posterior().unwrap().unwrap().family();
    let noise = match &leaves[2..] {
        [a, b] => host_noise(family, of_a(a), b.clone()),
        noise => host_noise(family, noise[0].clone(), Vec::new()),
    };
    let (a, b) = (of_a(&leaves[0]), leaves[1].clone());
    HostAdapter { a, b, noise: Some(noise), ..adapter.clone() }
}

/// Base product with bias.
fn base_of(layer: &AdaptedLinear, x: &[f64]) -> Vec<f64> {
    let bias = host(layer.bias.as_ref().unwrap().val());
    let out = product(x, &host(layer.weight.base()), D_INPUT, D_OUTPUT);
    out.iter().zip(bias.iter().cycle()).map(|(o, bias)| o + bias).collect()
}

/// Sizes of an adapter.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) d_input: usize,
    pub(crate) rank: usize,
    pub(crate) d_output: usize,
    pub(crate) scaling: f64,
}

/// Sizes of the layers of the tests.
pub(crate) const SIZES: Sizes =
    Sizes { d_input: D_INPUT, rank: RANK, d_output: D_OUTPUT, scaling: SCALING };

impl Sizes {
    /// `x·A`.
    fn down(self, x: &[f64], a: &[f64]) -> Vec<f64> {
        product(x, a, self.d_input, self.rank)
    }

    /// `scaling · h·B`.
    fn up(self, h: &[f64], b: &[f64]) -> Vec<f64> {
        product(h, b, self.rank, self.d_output).iter().map(|y| self.scaling * y).collect()
    }
}

/// `scaling · ((x·A) ∘ s)·B` with a scale for each rank.
pub(crate) fn scaled(sizes: Sizes, [x, a, b]: [&[f64]; 3], scale: &[f64]) -> Vec<f64> {
    let h = sizes.down(x, a);
    let h: Vec<f64> = h.iter().zip(scale.iter().cycle()).map(|(h, s)| h * s).collect();
    sizes.up(&h, b)
}

/// Draws of a flipout pass, for A and for B: normals in memory order, and signs of the factor's inputs and outputs.
pub(crate) struct Flips {
    pub(crate) eps: [Vec<f64>; 2],
    pub(crate) input_sign: [Vec<f64>; 2],
    pub(crate) output_sign: [Vec<f64>; 2],
}

/// Flipout with standard deviations of A and of B; with signs of 1 it is a draw of the weights.
///
/// ```text
/// h = x·A + ((x ∘ r)·(σ_A ∘ eps_A)) ∘ q,   out = scaling · (h·B + ((h ∘ t)·(σ_B ∘ eps_B)) ∘ u)
/// ```
pub(crate) fn flipout(
    sizes: Sizes,
    [x, a, b]: [&[f64]; 3],
    [std_a, std_b]: [&[f64]; 2],
    Flips { eps, input_sign, output_sign }: &Flips,
) -> Vec<f64> {
    let drawn = sizes.down(&times(x, &input_sign[0]), &times(std_a, &eps[0]));
    let h = plus(&sizes.down(x, a), &times(&drawn, &output_sign[0]));
    let drawn = sizes.up(&times(&h, &input_sign[1]), &times(std_b, &eps[1]));
    plus(&sizes.up(&h, b), &times(&drawn, &output_sign[1]))
}

/// Standard deviations of A and B in memory order, zeros of a factor that is not random.
fn deviations(layer: &AdaptedLinear, leaves: &[Vec<f64>]) -> [Vec<f64>; 2] {
    if let (Some(Extension::Gaussian(noise)), None) = (layer.extension(), of(layer).posterior()) {
        let of = |rho: &Vec<f64>| std_devs(noise.map(), rho);
        return [of(&leaves[2]), leaves.get(3).map_or_else(|| vec![0.0; RANK * D_OUTPUT], of)];
    }
    let adapter = with_leaves(&HostAdapter::read(of(layer)), leaves);
    let posterior = adapter.posterior().unwrap().unwrap();
    let is_ratio = posterior.family() == VariationalFamily::NoiseToSignal;
    // The deviation of a ratio has the sign of the mean that it multiplies.
    let signed = |(variance, mean): (&f64, &f64)| {
        if is_ratio { variance.sqrt().copysign(*mean) } else { variance.sqrt() }
    };
    let of = |variance: &[f64], mean: &[f64]| -> Vec<f64> {
        variance.iter().zip(mean).map(signed).collect()
    };
    let variance = posterior.variance();
    let a = of(&variance.a, &posterior.factors().a);
    let b = of(&variance.b, &posterior.factors().b);
    [transpose(&a, RANK, D_INPUT), transpose(&b, D_OUTPUT, RANK)]
}

/// Update that `layer` adds to its base product of `x`, which is one draw's share of `total` rows, for the values of its leaves.
///
/// `index` is 0 for tokens, 1 for shared rows; `draw` counts the sequences that have a draw each.
fn update(
    layer: &AdaptedLinear,
    pass: &Pass,
    [index, draw]: [usize; 2],
    x: &[f64],
    leaves: &[Vec<f64>],
) -> Vec<f64> {
    let (dtype, rows, scheme) = (layer.weight.base().dtype(), x.len() / D_INPUT, pass.scheme);
    let key = pass.noise.for_module(layer.noise_id());
    let of_use = |stream: u32| key.on_stream(stream).with_use(index as u32);
    // What all rows of a draw share.
    let drawn = |stream, n: usize| match scheme {
        Scheme::Mean => vec![0.0; n],
        _ => noise(key.on_stream(stream), (draw + 1) * n, dtype).split_off(draw * n),
    };
    let (a, b) = (&leaves[0], &leaves[1]);
    match (layer.extension(), scheme) {
        (None, _) => scaled(SIZES, [x, a, b], &[1.0; RANK]),
        (Some(Extension::SingularValues(_) | Extension::Op(_)), _) => {
            scaled(SIZES, [x, a, b], &leaves[2])
        }
        (Some(Extension::Gaussian(_)), Scheme::MomentMatched(_) | Scheme::Nested)
            if of(layer).posterior().is_none() =>
        {
            let output = noise(of_use(Stream::OUTPUT), rows * D_OUTPUT, dtype);
            let rank = noise(of_use(Stream::RANK), rows * RANK, dtype);
            let stds = deviations(layer, leaves);
            of_entries([x, a, b], stds, [&rank, &output], scheme)
        }
        (Some(Extension::Gaussian(_)), Scheme::MomentMatched(_) | Scheme::Nested) => {
            let adapter = with_leaves(&HostAdapter::read(of(layer)), leaves);
            let q = &adapter.posterior().unwrap().unwrap();
            let output = noise(of_use(Stream::OUTPUT), rows * D_OUTPUT, dtype);
            match scheme {
                Scheme::MomentMatched(cross) => moment_matched(q, x, &output, SCALING, cross),
                _ => {
                    let rank = noise(of_use(Stream::RANK), rows * RANK, dtype);
                    nested(q, x, [&rank, &output], SCALING)
                }
            }
            .unwrap()
        }
        (Some(Extension::Gaussian(_)), _) => {
            let sign = |stream, width: usize| {
                let mut uniform = vec![1.0f32; rows * width];
                if scheme == Scheme::PerToken {
                    fill_uniform(of_use(stream), 0, &mut uniform);
                }
                uniform.into_iter().map(|u| if u >= 0.5 { 1.0 } else { -1.0 }).collect()
            };
            let flips = Flips {
                eps: [
                    drawn(Stream::WEIGHT_A, D_INPUT * RANK),
                    drawn(Stream::WEIGHT_B, RANK * D_OUTPUT),
                ],
                input_sign: [sign(Stream::FLIP_A_INPUT, D_INPUT), sign(Stream::FLIP_B_INPUT, RANK)],
                output_sign: [
                    sign(Stream::FLIP_A_OUTPUT, RANK),
                    sign(Stream::FLIP_B_OUTPUT, D_OUTPUT),
                ],
            };
            let [std_a, std_b] = deviations(layer, leaves);
            flipout(SIZES, [x, a, b], [&std_a, &std_b], &flips)
        }
    }
}

/// Noise on activations by independent noise on the entries, from standard deviations in memory order.
///
/// ```text
/// moment-matched   out = c · (s·B + eps ∘ √(v·(B² + κ σ_B²) + s²·σ_B² + 1e-8)),     s = x·A,  v = x²·σ_A²
/// nested           h = s + eps_1 ∘ √(v + 1e-8),   out = c · (h·B + eps_2 ∘ √(h²·σ_B² + 1e-8))
/// ```
fn of_entries(
    [x, a, b]: [&[f64]; 3],
    [std_a, std_b]: [Vec<f64>; 2],
    [rank_noise, output_noise]: [&[f64]; 2],
    scheme: Scheme,
) -> Vec<f64> {
    let square = |values: &[f64]| times(values, values);
    let up = |h: &[f64], b: &[f64]| product(h, b, RANK, D_OUTPUT);
    let drawn = |mean: &[f64], variance: &[f64], eps: &[f64]| -> Vec<f64> {
        let entries = mean.iter().zip(variance).zip(eps);
        entries.map(|((m, v), e)| m + e * (v + EPS_VARIANCE).sqrt()).collect()
    };
    let of_b = square(&std_b);
    let s = SIZES.down(x, a);
    let v = SIZES.down(&square(x), &square(&std_a));
    let out = match scheme {
        Scheme::MomentMatched(cross) => {
            let kappa = if cross == CrossTerm::Exact { 1.0 } else { 0.0 };
            let inner: Vec<f64> =
                b.iter().zip(&of_b).map(|(b, variance)| b * b + kappa * variance).collect();
            let variance = plus(&up(&v, &inner), &up(&square(&s), &of_b));
            drawn(&up(&s, b), &variance, output_noise)
        }
        _ => {
            let h = drawn(&s, &v, rank_noise);
            drawn(&up(&h, b), &up(&square(&h), &of_b), output_noise)
        }
    };
    out.iter().map(|y| SCALING * y).collect()
}

/// Draws of the weights in a pass, each for its share of the sequences.
pub(crate) fn draws(layer: &AdaptedLinear, scheme: Scheme) -> usize {
    let is_random =
        !matches!(layer.extension(), None | Some(Extension::SingularValues(_) | Extension::Op(_)));
    if scheme == WEIGHTS[1] && is_random { BATCH } else { 1 }
}

/// The output of `layer` for the leaves `x` and its own: of tokens, or of rows that all sequences share.
pub(crate) fn definition(
    layer: &AdaptedLinear,
    pass: &Pass,
    shared: bool,
) -> impl Fn(&[Vec<f64>]) -> Vec<f64> {
    let draws = draws(layer, pass.scheme);
    let index = usize::from(shared);
    move |leaves| {
        let x = &leaves[0];
        let mut kept = vec![1.0f32; x.len()];
        let mut rate = 0.0;
        if let Some(key) = pass.dropout {
            rate = of(layer).dropout;
            let key = key.for_module(layer.noise_id()).on_stream(Stream::DROPOUT);
            fill_uniform(key.with_use(index as u32), 0, &mut kept);
        }
        let kept =
            kept.into_iter().map(|u| if f64::from(u) >= rate { 1.0 / (1.0 - rate) } else { 0.0 });
        let masked = times(x, &kept.collect::<Vec<_>>());
        let share = if shared { x.len() } else { x.len() / draws };
        let of_draw = |draw: usize| {
            let at = if shared { 0 } else { draw * share };
            let update = update(layer, pass, [index, draw], &masked[at..][..share], &leaves[1..]);
            plus(&base_of(layer, &x[at..][..share]), &update)
        };
        (0..draws).flat_map(of_draw).collect()
    }
}

/// Standard deviations of `rho`.
pub(crate) fn std_devs(map: NoiseMap, rho: &[f64]) -> Vec<f64> {
    let of = |rho: &f64| match map {
        NoiseMap::Softplus => softplus(*rho),
        NoiseMap::Square => rho * rho,
        NoiseMap::Additive | NoiseMap::Relative => panic!("a posterior of BayesLoRA"),
    };
    rho.iter().map(of).collect()
}

/// KL of `N(mean, std²)` from `N(0, prior²)`, nats: `ln(prior/std) + (std² + mean²)/(2·prior²) − ½`.
pub(crate) fn gaussian_kl(mean: f64, std: f64, prior: f64) -> f64 {
    let ratio = std / prior;
    0.5 * (ratio * ratio - 1.0 + (mean / prior).powi(2)) - ratio.ln()
}

/// KL of independent entries `N(mean, std²)` from `N(0, prior²)`, nats.
pub(crate) fn element_kl(mean: &[f64], std: &[f64], prior: f64) -> f64 {
    mean.iter().zip(std).map(|(&mean, &std)| gaussian_kl(mean, std, prior)).sum()
}

/// Estimate of the KL of the same entries from a scale mixture by one draw `w = mean + std ∘ eps`, nats:
/// `Σ ln q(w) − ln p(w)`.
pub(crate) fn sampled_kl(mean: &[f64], std: &[f64], eps: &[f64], prior: &ScaleMixture) -> f64 {
    let [weight, first, second] = prior.parts();
    // Without the constant of both densities.
    let log_normal = |z: f64, std: f64| -0.5 * z * z - std.ln();
    let entries = mean.iter().zip(std).zip(eps).map(|((mean, &std), &eps)| {
        let w = mean + std * eps;
        let components = [(weight, first), (1.0 - weight, second)];
        let [a, b] = components.map(|(share, std)| share.ln() + log_normal(w / std, std));
        let top = a.max(b);
        log_normal(eps, std) - top - ((a - top).exp() + (b - top).exp()).ln()
    });
    entries.sum()
}
