//! A layer's output by the core's loops, fed with the noise that the layer draws, and its slopes by difference quotients.

use burn::tensor::{DType, Gradients, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, LowRankAdapter, Posterior};
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::forward::{drawn_weights, moment_matched, nested};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_normal_f64};

use super::{gradient, host, product, slopes, transposed};

/// Output, gradient for the input and gradient for the posterior.
pub(crate) struct Reference {
    pub(crate) out: Vec<f64>,
    pub(crate) x: Vec<f64>,
    pub(crate) posterior: PosteriorGradient,
}

/// A gradient for A, B and the noise parameters, in the core's layout.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PosteriorGradient {
    pub(crate) a_mean: Vec<f64>,
    pub(crate) b_mean: Vec<f64>,
    /// One list, or one for each factor where there is a parameter per entry.
    pub(crate) noise: Vec<Vec<f64>>,
}

impl PosteriorGradient {
    /// From the lists of [`leaves`].
    fn from_leaves(mut leaves: Vec<Vec<f64>>) -> Self {
        let noise = leaves.split_off(2);
        let [a_mean, b_mean]: [Vec<f64>; 2] = leaves.try_into().unwrap();
        Self { a_mean, b_mean, noise }
    }
}

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

/// A, B and the noise parameters of an adapter.
pub(crate) fn leaves(adapter: &HostAdapter) -> Vec<Vec<f64>> {
    let noise = match adapter.noise.clone().unwrap() {
        HostNoise::RankVariance(v)
        | HostNoise::NoiseToSignal(v)
        | HostNoise::AsymRankVariance(v) => vec![v],
        HostNoise::ElementVariance { a, b } => vec![a, b],
    };
    [vec![adapter.a.clone(), adapter.b.clone()], noise].concat()
}

/// The adapter with other [`leaves`].
pub(crate) fn with_leaves(adapter: &HostAdapter, leaves: &[Vec<f64>]) -> HostAdapter {
    let [a, b, parameters @ ..] = leaves else { unreachable!("A, B and noise") };
    let per_rank = || parameters[0].clone();
    let noise = match adapter.noise.as_ref().unwrap() {
        HostNoise::RankVariance(_) => HostNoise::RankVariance(per_rank()),
        HostNoise::NoiseToSignal(_) => HostNoise::NoiseToSignal(per_rank()),
        HostNoise::AsymRankVariance(_) => HostNoise::AsymRankVariance(per_rank()),
        HostNoise::ElementVariance { .. } => {
            HostNoise::ElementVariance { a: per_rank(), b: parameters[1].clone() }
        }
    };
    HostAdapter { a: a.clone(), b: b.clone(), noise: Some(noise), ..adapter.clone() }
}

/// Slopes of `value` by A, B and the noise parameters.
pub(crate) fn posterior_slopes(
    adapter: &HostAdapter,
    value: impl Fn(&HostAdapter) -> f64,
) -> PosteriorGradient {
    let found = slopes(&leaves(adapter), |leaves| value(&with_leaves(adapter, leaves)));
    PosteriorGradient::from_leaves(found)
}

/// The noise that a layer draws in a pass.
enum Drawn {
    None,
    /// A in the core's layout and B, for each draw.
    Weights(Vec<[Vec<f64>; 2]>),
    Output(Vec<f64>),
    Nested([Vec<f64>; 2]),
}

/// Base product plus update for `x [sequences, tokens, d_input]`, with `grad` the gradient of the
/// loss for the output.
///
/// `use_index` is 0 for tokens, 1 for shared rows.
pub(crate) fn reference(
    layer: &AdaptedLinear,
    x: &[f64],
    sequences: usize,
    grad: &[f64],
    pass: &Pass,
    use_index: u32,
) -> Reference {
    let adapter = HostAdapter::read(layer.low_rank().unwrap());
    let weight = layer.weight.base();
    let dtype = weight.dtype();
    let (rank, d_in, d_out, c) = (adapter.rank, adapter.d_input, adapter.d_output, adapter.scaling);
    let key = pass.noise.for_module(layer.noise_id());
    let rows = x.len() / d_in;
    let of = |stream, n| noise(key.on_stream(stream).with_use(use_index), n, dtype);
    let drawn = match pass.scheme {
        Scheme::Mean => Drawn::None,
        Scheme::Weights(per) => {
            let draws = if per == DrawPer::Sequence { sequences } else { 1 };
            // In memory A is `[d_input, rank]`, and so is its noise.
            let of_a = noise(key.on_stream(Stream::WEIGHT_A), draws * d_in * rank, dtype);
            let of_b = noise(key.on_stream(Stream::WEIGHT_B), draws * rank * d_out, dtype);
            let draw = |(a, b): (&[f64], &[f64])| [transposed(a, d_in, rank), b.to_vec()];
            Drawn::Weights(
                of_a.chunks(d_in * rank).zip(of_b.chunks(rank * d_out)).map(draw).collect(),
            )
        }
        Scheme::MomentMatched(_) => Drawn::Output(of(Stream::OUTPUT, rows * d_out)),
        Scheme::Nested => {
            Drawn::Nested([of(Stream::RANK, rows * rank), of(Stream::OUTPUT, rows * d_out)])
        }
    };
    let update = |adapter: &HostAdapter, x: &[f64]| -> Vec<f64> {
        let q = &adapter.posterior().unwrap().unwrap();
        match (&drawn, pass.scheme) {
            (Drawn::Weights(draws), _) => {
                let output =
                    |([a, b], x): (&[Vec<f64>; 2], &[f64])| drawn_weights(q, x, [a, b], c).unwrap();
                draws.iter().zip(x.chunks(x.len() / draws.len())).flat_map(output).collect()
            }
            (Drawn::Output(eps), Scheme::MomentMatched(cross)) => {
                moment_matched(q, x, eps, c, cross).unwrap()
            }
            (Drawn::Nested([rank, output]), _) => nested(q, x, [rank, output], c).unwrap(),
            _ => {
                let (a, b) = (vec![0.0; rank * d_in], vec![0.0; rank * d_out]);
                drawn_weights(q, x, [&a, &b], c).unwrap()
            }
        }
    };
    let loss = |adapter: &HostAdapter, x: &[f64]| -> f64 {
        update(adapter, x).iter().zip(grad).map(|(y, g)| y * g).sum()
    };
    let weight = host(weight);
    let bias = host(layer.bias.as_ref().unwrap().val());
    let base = product(x, &weight, d_in, d_out);
    let through_base = product(grad, &transposed(&weight, d_in, d_out), d_out, d_in);
    let by_x = slopes(&[x.to_vec()], |x| loss(&adapter, &x[0])).remove(0);
    Reference {
        out: update(&adapter, x)
            .into_iter()
            .zip(base)
            .enumerate()
            .map(|(i, (update, base))| update + base + bias[i % d_out])
            .collect(),
        x: by_x.iter().zip(through_base).map(|(update, base)| update + base).collect(),
        posterior: posterior_slopes(&adapter, |adapter| loss(adapter, x)),
    }
}

/// `a`, `b` and the noise parameters of an adapter's gradient, in the core's layout.
pub(crate) fn posterior_gradient(
    adapter: &LowRankAdapter,
    gradients: &Gradients,
) -> PosteriorGradient {
    let (rank, d_in) = (adapter.rank(), adapter.d_input());
    let of_a = |t: &Tensor<2>| transposed(&gradient(t, gradients), d_in, rank);
    let noise = match adapter.posterior().unwrap() {
        Posterior::RankVariance(p)
        | Posterior::NoiseToSignal(p)
        | Posterior::AsymRankVariance(p) => vec![gradient(&p.value.val(), gradients)],
        Posterior::ElementVariance(p) => {
            vec![of_a(&p.a.val()), gradient(&p.b.val(), gradients)]
        }
    };
    PosteriorGradient {
        a_mean: of_a(&adapter.a.val()),
        b_mean: gradient(&adapter.b.val(), gradients),
        noise,
    }
}

/// The gradient in pieces, with their names.
pub(crate) fn pieces(gradient: &PosteriorGradient) -> Vec<(&'static str, &[f64])> {
    let mut pieces = vec![("A", &gradient.a_mean[..]), ("B", &gradient.b_mean[..])];
    for (name, noise) in ["noise", "noise of B"].into_iter().zip(&gradient.noise) {
        pieces.push((name, noise));
    }
    pieces
}
